"""Ratios of latencies between targets: what cells that are known on both tell of others."""

import math

import numpy as np
import pytest

from hybridlat.estimate.compose.posterior import Matrix
from hybridlat.estimate.predict.ratios import Kinds, Pair, RatioPrior, Ratios

PRIOR = RatioPrior(0.02, 0.03, 0.03, 0.02)
NAMES = ("Conv 1x1", "Conv kxk", "Conv depthwise", "MaxPool")
ALONE: list[Kinds] = [((name, 1.0),) for name in NAMES]


def pairs_of(draw: np.random.Generator, count: int) -> list[Pair]:
    """Cells of one or two kinds, whose ratios are as the prior has them."""
    scales = [PRIOR.common, *[PRIOR.kind] * len(NAMES)]
    parts = student(draw, len(scales)) * scales
    pairs = []
    for _ in range(count):
        first, second = draw.choice(len(NAMES), 2, replace=False)
        share = float(draw.choice([1.0, 0.6]))
        kinds = ((NAMES[first], share), (NAMES[second], 1 - share))
        ratio = parts[0] + share * parts[1 + first] + (1 - share) * parts[1 + second]
        ratio += PRIOR.cell * student(draw, 1)[0] + 0.01 * draw.standard_normal()
        pairs.append(Pair(kinds, float(ratio), 0.01))
    return pairs


def student(draw: np.random.Generator, count: int) -> Matrix:
    """Of four degrees of freedom and variance 1."""
    return draw.standard_t(4.0, count) / math.sqrt(2.0)


@pytest.mark.parametrize("counts", [(0, 1), (1, 4), (4, 16), (16, 64)])
def test_cells_compared_never_widen_an_interval_in_the_mean(counts: tuple[int, int]) -> None:
    spreads: dict[int, list[float]] = {count: [] for count in counts}
    for seed in range(60):
        pairs = pairs_of(np.random.default_rng(seed), counts[1])
        for count in counts:
            _, covariance = Ratios(PRIOR, pairs[:count]).of(ALONE)
            weights = np.array([0.5, 0.3, 0.1, 0.1])
            spreads[count].append(math.sqrt(weights @ covariance @ weights))
    assert np.mean(spreads[counts[1]]) < np.mean(spreads[counts[0]])


def test_intervals_hold_what_they_promise() -> None:
    held = []
    for seed in range(300):
        *pairs, last = pairs_of(np.random.default_rng(seed), 13)
        means, covariance = Ratios(PRIOR, pairs).of([last.kinds])
        reach = 1.645 * math.hypot(math.sqrt(covariance[0, 0]), last.noise)
        held.append(abs(last.log_ratio - means[0]) <= reach)
    assert 0.84 < np.mean(held) < 0.96


def test_a_rewritten_kernel_moves_its_kind_and_not_the_others() -> None:
    rewritten = [Pair((("Conv depthwise", 1.0),), math.log(1.5), 0.01)] * 4
    alike = [Pair(kinds, 0.0, 0.01) for kinds in ALONE if kinds[0][0] != "Conv depthwise"] * 4
    means, covariance = Ratios(PRIOR, [*rewritten, *alike]).of(ALONE)
    assert np.exp(means) == pytest.approx([1.0, 1.0, 1.5, 1.0], abs=0.03)
    untouched = Ratios(PRIOR, alike).of(ALONE)[1].diagonal()
    assert np.all(covariance.diagonal()[[0, 1, 3]] < 1.3 * untouched[[0, 1, 3]])


def test_a_kind_that_contradicts_becomes_wide() -> None:
    alike = [Pair(kinds, 0.0, 0.01) for kinds in ALONE] * 3
    odd = Pair((("Conv kxk", 1.0),), math.log(1.5), 0.01)
    before = np.sqrt(Ratios(PRIOR, alike).of(ALONE)[1].diagonal())
    after = np.sqrt(Ratios(PRIOR, [*alike, odd]).of(ALONE)[1].diagonal())
    assert after[1] > 3 * before[1] and after[0] < 1.2 * before[0]


def test_a_cell_of_every_kind_that_takes_time_is_asked_for_once() -> None:
    cells: list[Kinds] = [*ALONE[:3], (("Conv 1x1", 0.5), ("Conv kxk", 0.5)), *ALONE[3:]]
    uses_us = [100.0, 100.0, 100.0, 300.0, 5.0]
    asked = Ratios(PRIOR, []).unchecked(cells, uses_us)
    assert sorted(asked) == [2, 3]  # both convolutions by the one that takes most
    seen = [Pair(ALONE[2], 0.0, 0.01)]
    assert Ratios(PRIOR, seen).unchecked(cells, uses_us) == [3]
