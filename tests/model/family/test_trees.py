"""The second law of a task: factors of the base's parts, trees, and what they count."""

from dataclasses import replace

import numpy as np
import pytest

from hybridlat.model.family import trees
from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.fit import fit
from hybridlat.model.family.observations import family_of, task_base
from hybridlat.model.family.trees import LARGEST_CORRECTION, TaskTrees
from tests.model.family.worlds import HERE, log_us, observations, true_us

ROWS = observations(40, 1)
HELD_OUT = observations(30, 2)
KERNELS = ROWS[0].kernels
TRUTH = np.log([true_us(one.kernels, HERE) for one in HELD_OUT])


def weighed(off: float) -> TaskTrees | None:
    """Trees where the process is so far off, one way and the other."""
    errors = np.where(np.arange(40) % 2, off, -off)
    names = np.array([one.architecture for one in ROWS])
    families = np.array([family_of(one.architecture) for one in ROWS])
    return trees.weighed(ROWS, [(names, errors), (families, errors)])


@pytest.fixture(scope="module")
def law() -> TaskTrees:
    made = weighed(0.3)
    assert made is not None
    return made


def test_parts_of_the_base_have_factors_of_their_own(law: TaskTrees) -> None:
    by_trees = [law.log_us(one.kernels, HERE) for one in HELD_OUT]
    base = [one.kernels.counts @ task_base(one.kernels, HERE) for one in HELD_OUT]
    assert np.median(np.abs(by_trees - TRUTH)) < 0.3 * np.median(np.abs(np.log(base) - TRUTH))


def test_trees_count_by_how_much_nearer_they_are() -> None:
    wrong, half_wrong = weighed(0.1), weighed(0.02)
    assert wrong is not None and half_wrong is not None
    assert wrong.weight > 0.5 > half_wrong.weight
    assert weighed(0.0) is None  # nothing is left to tell


def test_a_correction_is_bounded(law: TaskTrees) -> None:
    by_trees = law.log_us(KERNELS, HERE)
    for apart in (-5.0, -0.05, 0.0, 0.05, 5.0):
        expected = law.weight * float(np.clip(-apart, -LARGEST_CORRECTION, LARGEST_CORRECTION))
        assert law.correction(KERNELS, HERE, by_trees + apart) == pytest.approx(expected)


def test_trees_fade_where_a_network_is_unlike_those_of_the_task(law: TaskTrees) -> None:
    near, log_us = replace(law, reach=0.2), law.log_us(KERNELS, HERE) - 0.1
    full, *faded = (near.correction(KERNELS, HERE, log_us, s) for s in (0.1, 0.2, 0.3, 0.4))
    assert faded[0] == full == pytest.approx(0.1 * law.weight)
    assert full > 4 * faded[1] > 4 * faded[2] > 0
    assert faded[2] == pytest.approx(full / 16)


def test_trees_mend_a_law_that_is_too_stiff_and_belong_to_a_task_with_networks_enough() -> None:
    stiff = Hyper(smooth=0.02, rough=0.02, by_class=0.02, offset=0.02, boosted=True)
    embedding = Embedding(stiff, size=40)
    model = fit(ROWS, embedding)
    assert set(model.trees) == {HERE}
    assert 0 < model.trees[HERE].reach < 1
    both, alone = (
        np.median(np.abs([log_us(one, row) for row in HELD_OUT] - TRUTH))
        for one in (model, replace(model, trees={}))
    )
    assert both < 0.7 * alone
    assert not fit(ROWS[: trees.LEAST - 1], embedding).trees
    assert not fit(ROWS, embedding, with_trees=False).trees
    assert not fit(ROWS, Embedding(replace(stiff, boosted=False), size=40)).trees


def test_what_trees_add_stays_when_networks_correct_a_task(law: TaskTrees) -> None:
    plain = fit(ROWS, Embedding(Hyper(), size=40), with_trees=False)
    model = replace(plain, trees={HERE: replace(law, weight=0.5)})
    (other,) = observations(1, 5)
    added = log_us(model, other) - log_us(plain, other)
    assert added != 0
    slower = plain.condition([replace(other, latency_us=1.2 * other.latency_us)])
    boosted_too = replace(slower, trees=model.trees)
    assert log_us(boosted_too, other) - log_us(slower, other) == pytest.approx(added)
