from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.fit import fit
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import Observation
from hybridlat.model.family.tasks import Array
from tests.model.family.worlds import THERE, log_us, observations, true_us

EMBEDDING = Embedding(Hyper(), size=60)


def _errors(model: FamilyModel, held_out: list[Observation]) -> Array:
    return np.array([
        log_us(model, one) - np.log(true_us(one.kernels, one.task))
        for one in held_out
    ])  # fmt: skip


def _base_errors(held_out: list[Observation]) -> Array:
    guesses = [np.log((o.kernels.counts * o.kernels.base_us).sum()) for o in held_out]
    truth = [np.log(true_us(o.kernels, o.task)) for o in held_out]
    return np.subtract(guesses, truth)


def test_the_law_of_kernels_is_found_from_sums_alone() -> None:
    model = fit(observations(60, 1), EMBEDDING)
    held_out = observations(30, 2)
    errors = _errors(model, held_out)
    assert np.median(np.abs(errors)) < 0.03
    assert np.median(np.abs(errors)) < 0.2 * np.median(np.abs(_base_errors(held_out)))


def test_wrong_rows_do_little_harm() -> None:
    rows = observations(60, 1)
    spoilt = [
        replace(one, latency_us=one.latency_us * (4.0 if i % 12 == 0 else 1.0))
        for i, one in enumerate(rows)
    ]
    errors = _errors(fit(spoilt, EMBEDDING), observations(30, 2))
    assert np.median(np.abs(errors)) < 0.1


def test_another_device_is_answered_from_this_one() -> None:
    model = fit(observations(60, 1), EMBEDDING)
    there = observations(30, 2, THERE)
    errors = _errors(model, there)
    assert np.median(np.abs(errors)) < 0.15
    known = [model.predict(one.kernels, one.task).log_sd for one in observations(5, 3)]
    unknown = [model.predict(one.kernels, one.task).log_sd for one in there[:5]]
    assert np.mean(unknown) > 1.4 * np.mean(known)


def test_two_tasks_together_are_told_apart() -> None:
    rows = [*observations(40, 1), *observations(40, 5, THERE, slower=0.5)]
    model = fit(rows, EMBEDDING)
    here, there = observations(20, 2), observations(20, 3, THERE)
    assert np.median(np.abs(_errors(model, here))) < 0.05
    assert np.median(_errors(model, there)) == pytest.approx(0.5, abs=0.05)


def test_a_latency_must_be_above_zero() -> None:
    (row,) = observations(1, 1)
    with pytest.raises(ValueError, match="a latency of 0"):
        fit([replace(row, latency_us=0.0)], EMBEDDING)


def test_a_kernel_of_many_launches_is_learned_where_that_is_believed() -> None:
    slower = 4.2  # sixty-odd launches where the base has one
    rows, held_out = observations(40, 1, slower=slower), observations(10, 2, slower=slower)
    truth = [np.log(true_us(one.kernels, one.task, slower)) for one in held_out]

    def error(highest: float) -> float:
        embedding = Embedding(replace(Hyper(offset=2.0), highest=highest), size=60)
        model = fit(rows, embedding)
        said = [log_us(model, one) for one in held_out]
        return float(np.median(np.abs(np.subtract(said, truth))))

    assert error(6.0) < 0.2 < error(3.5)
