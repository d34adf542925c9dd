"""The second law of a task: factors of the base's parts, trees, and what they count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hybridlat.model.family import trees
from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.fit import fit
from hybridlat.model.family.observations import Observation, family_of, task_base
from hybridlat.model.family.tasks import Array
from hybridlat.model.family.trees import LARGEST_CORRECTION, TaskTrees
from tests.model.family.worlds import HERE, log_us, observations, true_us

ROWS = observations(40, 1)


def weighed(rows: list[Observation], errors: Array) -> TaskTrees | None:
    names = np.array([one.architecture for one in rows])
    families = np.array([family_of(one.architecture) for one in rows])
    return trees.weighed(rows, [(names, errors), (families, errors)])


def test_parts_of_the_base_have_factors_of_their_own() -> None:
    rows = observations(40, 1)
    law = weighed(rows, np.where(np.arange(40) % 2, 0.3, -0.3))
    assert law is not None
    off = [
        law.log_us(one.kernels, HERE) - np.log(true_us(one.kernels, HERE))
        for one in observations(30, 2)
    ]
    before = [
        np.log(one.kernels.counts @ task_base(one.kernels, HERE) / true_us(one.kernels, HERE))
        for one in observations(30, 2)
    ]
    assert np.median(np.abs(off)) < 0.3 * np.median(np.abs(before))


def test_trees_count_by_how_much_nearer_they_are() -> None:
    rows = observations(40, 1)
    wrong, half_wrong = (weighed(rows, np.where(np.arange(40) % 2, e, -e)) for e in (0.1, 0.02))
    assert wrong is not None and half_wrong is not None
    assert wrong.weight > 0.5 > half_wrong.weight
    assert weighed(rows, np.zeros(40)) is None  # nothing is left to tell


def test_a_correction_is_bounded() -> None:
    rows = observations(40, 1)
    law = weighed(rows, np.where(np.arange(40) % 2, 0.3, -0.3))
    assert law is not None
    kernels = rows[0].kernels
    log_us_by_trees = law.log_us(kernels, HERE)
    for apart in (-5.0, -0.05, 0.0, 0.05, 5.0):
        expected = law.weight * float(np.clip(-apart, -LARGEST_CORRECTION, LARGEST_CORRECTION))
        assert law.correction(kernels, HERE, log_us_by_trees + apart) == pytest.approx(expected)


def test_trees_fade_where_a_network_is_unlike_those_of_the_task() -> None:
    rows = observations(40, 1)
    law = weighed(rows, np.where(np.arange(40) % 2, 0.3, -0.3))
    assert law is not None
    near = replace(law, reach=0.2)
    log_us_by_trees = law.log_us(rows[0].kernels, HERE) - 0.1
    full, *faded = (
        near.correction(rows[0].kernels, HERE, log_us_by_trees, s) for s in (0.1, 0.2, 0.3, 0.4)
    )
    assert faded[0] == full == pytest.approx(0.1 * law.weight)
    assert full > 4 * faded[1] > 4 * faded[2] > 0
    assert faded[2] == pytest.approx(full / 16)


def test_trees_mend_a_law_that_is_too_stiff_and_belong_to_a_task_with_networks_enough() -> None:
    stiff = Hyper(smooth=0.02, rough=0.02, by_class=0.02, offset=0.02, boosted=True)
    embedding = Embedding(stiff, size=40)
    model = fit(ROWS, embedding)
    assert set(model.trees) == {HERE}
    assert 0 < model.trees[HERE].reach < 1

    def error(with_trees: bool) -> float:
        law = model if with_trees else replace(model, trees={})
        held_out = observations(30, 2)
        log_us_by_trees = [log_us(law, one) for one in held_out]
        truth = [np.log(true_us(one.kernels, HERE)) for one in held_out]
        return float(np.median(np.abs(np.subtract(log_us_by_trees, truth))))

    assert error(True) < 0.7 * error(False)
    assert not fit(ROWS[: trees.LEAST - 1], embedding).trees
    assert not fit(ROWS, embedding, with_trees=False).trees
    assert not fit(ROWS, Embedding(replace(stiff, boosted=False), size=40)).trees


def test_what_trees_add_stays_when_networks_correct_a_task() -> None:
    rows = observations(40, 1)
    plain = fit(rows, Embedding(Hyper(), size=40), with_trees=False)
    law = weighed(rows, np.where(np.arange(40) % 2, 0.3, -0.3))
    assert law is not None
    model = replace(plain, trees={HERE: replace(law, weight=0.5)})
    (other,) = observations(1, 5)
    added = log_us(model, other) - log_us(plain, other)
    assert added != 0
    # A network that takes what is predicted anyway moves nothing.
    predicted = log_us(model, other)
    conditioned = model.condition([replace(other, latency_us=float(np.exp(predicted)))])
    assert log_us(conditioned, other) == pytest.approx(predicted)
    slower = plain.condition([replace(other, latency_us=1.2 * other.latency_us)])
    boosted_too = replace(slower, trees=model.trees)
    assert log_us(boosted_too, other) - log_us(slower, other) == pytest.approx(added)
