from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.family_choice import choose
from hybridlat.model.family.calibration import calibrate
from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.fit import fit
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import KernelSet, Observation
from hybridlat.model.family.tasks import Array, Sharing, Task
from tests.model.family.worlds import THERE, log_us, observations, true_us

SLOWER = 0.4


@pytest.fixture(scope="module")
def model() -> FamilyModel:
    return fit(observations(60, 1), Embedding(Hyper(), size=40))


def test_a_few_networks_correct_a_new_device(model: FamilyModel) -> None:
    few = observations(5, 2, THERE, slower=SLOWER)
    held_out = observations(30, 3, THERE, slower=SLOWER)
    truth = np.array([np.log(true_us(one.kernels, THERE, SLOWER)) for one in held_out])

    def errors(count: int) -> Array:
        conditioned = model.condition(few[:count])
        return np.asarray([log_us(conditioned, one) for one in held_out] - truth)

    def spreads(count: int) -> float:
        conditioned = model.condition(few[:count])
        return float(np.mean([conditioned.predict(one.kernels, THERE).log_sd for one in held_out]))

    assert np.median(np.abs(errors(0))) > 0.3
    assert np.median(np.abs(errors(5))) < 0.06
    assert spreads(0) > spreads(1) > spreads(5)


def test_one_network_does_not_tell_what_the_host_of_another_costs() -> None:
    eager, apart = Task("other", "torch-2.4", "fp32"), {"host": Sharing(1.0, device=6.0)}
    hyper = Hyper(overlap=3.0, apart=apart)
    few = observations(4, 2, eager)
    small = [replace(one, kernels=_of_batches(one.kernels, 1e-3)) for one in few]

    def spread(host: float, rows: Sequence[Observation]) -> float:
        model = fit(observations(40, 1), Embedding(replace(hyper, host=host), size=40))
        known = [replace(rows[0], latency_us=5000.0)] * 3
        return model.condition(known).predict(rows[1].kernels, eager).log_sd

    assert spread(0.3, small) > 0.25 > 2 * spread(0.0, small)
    large = [replace(one, kernels=_of_batches(one.kernels, 1e3)) for one in few]
    assert spread(0.3, large) == pytest.approx(spread(0.0, large), rel=0.02)


def _of_batches(kernels: KernelSet, times: float) -> KernelSet:
    """The kernels, each so many times as long."""
    return replace(kernels, base_us=kernels.base_us * times)


def test_one_wrong_network_among_five_is_held_off(model: FamilyModel) -> None:
    few = observations(6, 2, THERE, slower=SLOWER)
    wrong = [*few[:5], replace(few[5], latency_us=few[5].latency_us * 20)]
    held_out = observations(20, 3, THERE, slower=SLOWER)
    conditioned = model.condition(wrong)
    errors = [
        log_us(conditioned, one) - np.log(true_us(one.kernels, THERE, SLOWER)) for one in held_out
    ]
    assert np.median(np.abs(errors)) < 0.3


def test_a_measured_latency_must_be_above_zero(model: FamilyModel) -> None:
    (one,) = observations(1, 4, THERE)
    with pytest.raises(ValueError, match="not above zero"):
        model.condition([replace(one, latency_us=0.0)])


def test_the_chosen_leave_less_uncertain_than_random_ones(model: FamilyModel) -> None:
    candidates = [one.kernels for one in observations(30, 5, THERE)]
    chosen = choose(model, THERE, candidates, 4)
    assert len(set(chosen)) == 4

    def left(places: Sequence[int] | NDArray[np.intp]) -> float:
        measured = [
            Observation(candidates[i], THERE, model.predict(candidates[i], THERE).median_us, str(i))
            for i in places
        ]
        conditioned = model.condition(measured)
        return float(sum(conditioned.predict(k, THERE).log_sd ** 2 for k in candidates))

    draw = np.random.default_rng(0)
    random = [left(draw.choice(30, 4, replace=False)) for _ in range(6)]
    assert left(chosen) < np.mean(random)


def test_intervals_hold_as_often_as_they_say() -> None:
    draw = np.random.default_rng(1)
    spreads = draw.uniform(0.02, 0.3, 800)
    errors = 1.7 * spreads * draw.standard_normal(800)  # the spreads are too small by that much
    calibration = calibrate(errors[:400], spreads[:400], ["a"] * 400)
    widths = [calibration.half_width(s, "a", 0.9) for s in spreads[400:]]
    assert np.mean(np.abs(errors[400:]) <= widths) == pytest.approx(0.9, abs=0.04)


def test_surer_is_wider_and_an_unknown_task_has_the_pool() -> None:
    calibration = calibrate(np.linspace(-0.5, 0.5, 101), np.full(101, 0.1), ["a"] * 101)
    widths = [calibration.half_width(0.1, "a", c) for c in (0.5, 0.8, 0.9, 0.99)]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    assert calibration.half_width(0.1, "new") == pytest.approx(calibration.half_width(0.1, "a"))
    after = [calibration.half_width(s, "new", prior_spread=1.0) for s in (0.1, 0.2, 9.0)]
    assert after[0] < after[1] < after[2] == calibration.half_width(1.0, "new")
    with pytest.raises(ValueError, match="no held-out error"):
        calibrate(np.zeros(0), np.zeros(0), [])
