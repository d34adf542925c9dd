"""The one conformal quantile, and its edges."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.model.conformal import conformal_quantile, rank_of

LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=60), st.sampled_from(LEVELS))
def test_it_has_enough_scores_below(scores: list[float], level: float) -> None:
    quantile, rank = conformal_quantile(scores, level), rank_of(len(scores), level)
    assert rank == math.ceil((len(scores) + 1) * level - 1e-9)
    assert sum(s <= quantile for s in scores) >= min(rank, len(scores))
    assert sum(s < quantile for s in scores) < rank
    assert rank <= len(scores) or quantile == max(scores)


@pytest.mark.parametrize(
    ("count", "level", "rank"),
    [(9, 0.9, 9), (8, 0.9, 9), (19, 0.95, 19), (99, 0.99, 99), (1, 0.01, 1), (0, 0.9, 1),
     (99, 0.55, 55)],
)  # fmt: skip
def test_the_edges_are_exact(count: int, level: float, rank: int) -> None:
    """Where (n + 1)·confidence is whole, rounding adds no rank: 100·0.55 is above 55."""
    assert rank_of(count, level) == rank
    scores = [float(i) for i in range(1, count + 1)]
    if scores:
        assert conformal_quantile(scores, level) == min(rank, count)


def test_no_scores_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no score"):
        conformal_quantile([], 0.9)
