"""Constants, intervals and their calibration; simulated machines err as they state."""

import functools
import json
import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from hybridlat.estimate import calibration
from hybridlat.estimate.calibration import HeldOutNetwork, fit_composition
from hybridlat.estimate.compose.composition import (
    BORROWING_SHARE,
    Composition,
    SummedNetwork,
    machine_composition,
    student_quantile,
    undisturbed,
)
from hybridlat.estimate.compose.posterior import DEGREES, CellPrior
from hybridlat.estimate.compose.target_composition import MOST_NOISE_SHARE
from hybridlat.measuring.statistics import flicker_share, record_of
from hybridlat.model.conformal import normal_quantile
from hybridlat.schema.measurement import Measurement, Visit
from hybridlat.schema.target import Target
from tests.estimate.known import make_network


def test_a_scale_is_found_in_spite_of_outliers_and_moved_little_by_few_networks() -> None:
    rng = np.random.default_rng(0)
    sums_us = np.exp(rng.uniform(4, 9, 40))
    truth_us = 1.05 * sums_us * np.exp(rng.normal(0, 0.01, 40))
    truth_us[:3] *= 1.6
    networks = [SummedNetwork(*pair) for pair in zip(truth_us, sums_us, strict=True)]
    assert machine_composition(networks, 0.0).scale == pytest.approx(1.05, abs=0.01)
    thirty = [SummedNetwork(1.3 * us, us) for us in np.linspace(100, 5000, 30)]
    assert machine_composition([], 0.0).scale == 1.0
    assert 1.0 < machine_composition(thirty[:1], 0.0).scale < 1.25
    assert machine_composition(thirty, 0.0).scale == pytest.approx(1.3, abs=0.01)


def test_interval_of_measured_cells_is_the_composition_and_their_noise() -> None:
    priors = [CellPrior("a", 4, 25.0, 0.04, source="measured")]
    composition = Composition(overhead_us=10.0, scale=1.1, residual_share=0.03)
    interval = composition.interval(composition.start(priors))
    assert interval.latency_us == pytest.approx(120.0)
    sigma = math.hypot(0.03, 0.04 * 110 / 120)
    expected = 120.0 * math.exp(normal_quantile(0.9) * sigma)
    assert interval.interval_us[1] == pytest.approx(expected)
    assert interval.half_width_share == pytest.approx(expected / 120.0 - 1)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    inside: dict[tuple[float, float], list[bool]] = {}
    composition = fit_composition([make_network(i, 8 + i % 25) for i in range(60)])
    for i in range(120):
        network = make_network(5000 + i, 8 + i % 25)
        start = composition.start(network.cells)
        for share in (0.0, 0.2, 1.0):
            cells = calibration.cells_at(share, len(network.cells))
            posterior = calibration.measure_greedily(start, network, cells)
            for level in (0.5, 0.8, 0.9, 0.95, 0.99):
                low, high = composition.at(level).interval(posterior).interval_us
                result = inside.setdefault((share, level), [])
                result.append(low <= network.latency_us <= high)
    for (share, level), result in inside.items():
        allowed = 3 * math.sqrt(level * (1 - level) / len(result))
        assert level - allowed <= np.mean(result) <= level + allowed, (share, level)


def test_networks_without_convolutions_take_longer_and_are_less_sure_than_others() -> None:
    """Sixty plain networks, and fifteen without convolutions that miss by 8 +/- 6 %."""
    rng, networks = np.random.default_rng(0), [make_network(i, 20) for i in range(75)]
    for i in range(60, 75):
        one, miss = networks[i], math.exp(rng.normal(0.08, 0.06))
        cells = tuple([replace(cell, convolves=False) for cell in one.cells])
        networks[i] = replace(one, latency_us=one.latency_us * miss, cells=cells)
    fitted = fit_composition(networks)
    plain, without = (fitted.for_cells(fitted.start(networks[i].cells)) for i in (0, 60))
    assert without.scale / plain.scale == pytest.approx(1.08, abs=0.04)
    assert plain.residual_share < 0.04 < without.residual_share < 0.1
    assert (plain.scale, plain.residual_share) == (fitted.scale, fitted.residual_share)
    assert fitted.of_network(0.5).of_network(0.5) == fitted.of_network(0.5)
    half = fitted.of_network(0.5).scale - fitted.scale
    assert half == pytest.approx((without.scale - fitted.scale) / 2)
    # Another machine borrows both, and sums up its own networks by them.
    lent = machine_composition([], 0.0, fitted)
    assert lent.unconvolved_ratio == fitted.unconvolved_ratio
    assert lent.unconvolved_spread == fitted.unconvolved_spread


@pytest.mark.parametrize("count", [1, 2, 12])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_networks_that_agree_with_their_cells_tell_nothing_of_others(
    count: int, noise: float
) -> None:
    rng, networks = np.random.default_rng(count), [make_network(i) for i in range(count)]
    exact = [
        replace(one, latency_us=one.sum_of_measured_us * math.exp(rng.normal(0, noise)))
        for one in networks
    ]
    fitted = fit_composition(exact)
    assert fitted.unconvolved_ratio == pytest.approx(1.0, abs=0.03)
    assert fitted.unconvolved_spread == pytest.approx(0.05, abs=0.01)
    assert Composition.from_json(json.loads(json.dumps(fitted.to_json()))) == fitted


def test_networks_compose_alike_by_cells_measured_now_and_on_record() -> None:
    """Some were unknown before, others predicted too short."""
    composition = Composition(unconvolved_ratio=1.4, unconvolved_spread=0.1)
    first = [
        CellPrior("conv", 1, 10.0, 0.3),
        CellPrior("new", 2, None, 1.0, convolves=False),
        CellPrior("pool", 1, 1.0, 0.3, convolves=False),
    ]
    known_us = 10.0, 5.0, 4.0
    now = composition.start(first).observe({i: (us, 0.01) for i, us in enumerate(known_us)})
    later = composition.start(
        [
            replace(one, latency_us=us, spread_share=0.01, source="measured")
            for one, us in zip(first, known_us, strict=True)
        ]
    )
    each = [composition.for_cells(cells).interval(cells).interval_us for cells in (now, later)]
    assert each[0] == pytest.approx(each[1], rel=1e-3)
    assert composition.for_cells(now).latency_us(24.0) == pytest.approx(10.0 + 1.4 * 14.0)


def test_calibration_does_not_depend_on_order_and_survives_json() -> None:
    networks = [make_network(i, cells=6) for i in range(12)]
    fitted = fit_composition(networks)
    assert fit_composition(networks[::-1]) == fitted
    assert Composition.from_json(json.loads(json.dumps(fitted.to_json()))) == fitted


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 1}, r"format 1 is none that this version reads \(2, 3, 4\)"),
        ({"scale": "x"}, "scale"),
        ({"quantiles": None}, "quantiles"),
        ({"levels": [[0.9, 2.0], [0.95, 1.0]]}, "do not rise"),
    ],
)
def test_a_damaged_composition_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Composition.from_json({**Composition().to_json(), **change})


@functools.cache
def _fitted(networks: int) -> Composition:
    return fit_composition([make_network(i, cells=6) for i in range(networks)])


def test_levels_come_from_networks_where_there_are_enough_of_them() -> None:
    assert [level for level, _ in _fitted(60).levels] == [0.5, 0.8, 0.9, 0.95]
    assert [level for level, _ in _fitted(12).levels] == [0.5, 0.8, 0.9]
    assert _fitted(0).levels == ()
    few = _fitted(3)
    ratio = few.at(0.99).quantiles[0][1] / few.quantiles[0][1]
    assert ratio == pytest.approx(student_quantile(0.99, DEGREES) / student_quantile(0.9, DEGREES))


@pytest.mark.parametrize("degrees", [1.0, 2.0, 2.7, 4.0, 16.0, 1000.0])
@pytest.mark.parametrize("level", [0.05, 0.5, 0.9, 0.99, 0.999])
def test_student_quantiles_are_those_of_scipy(degrees: float, level: float) -> None:
    special = pytest.importorskip("scipy.special")
    expected = special.stdtrit(degrees, 0.5 + level / 2)
    assert student_quantile(level, degrees) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("lent", [None, Composition(residual_share=0.02)])
@pytest.mark.parametrize("networks", [0, 1, 2, 10])
def test_a_new_machine_reaches_as_far_as_its_degrees_of_freedom(
    networks: int, lent: Composition | None
) -> None:
    own = machine_composition([SummedNetwork(1e3, 1e3)] * networks, 0.0, lent)
    assert own.degrees is not None and 2.0 <= own.degrees <= 2.0 + networks
    for level in (0.9, 0.99):
        reach = math.log1p(own.at(level).half_width_share(0.0, 1e3))
        assert reach == pytest.approx(own.residual_share * student_quantile(level, own.degrees))
        cells = replace(own, residual_share=0.0).at(level).half_width_share(0.1**2, 1e3)
        four = student_quantile(level, max(own.degrees, 4.0))
        assert math.log1p(cells) == pytest.approx(0.1 * four)
    # What borrowing costs counts once, in the constant or in the scatter.
    if lent is not None and not networks:
        assert own.residual_share == pytest.approx(math.hypot(0.02, BORROWING_SHARE))
    body = {k: v for k, v in own.to_json().items() if k != "degrees"}
    assert Composition.from_json(own.to_json()) == own
    assert Composition.from_json(body).degrees is None  # as older versions wrote it


TARGET = Target("made", "made-1.0", "fp32", 1)
REFERENCE_US = 50.0
FLICKER, OWN_NOISE = 0.02, 0.0115  # of a reference, and of what is visited beside it
LENT = Composition(residual_share=0.02)
CONSTANT = BORROWING_SHARE / math.sqrt(2)
SCATTER = math.hypot(LENT.residual_share, CONSTANT)
SAMPLES = np.exp(np.linspace(-0.002, 0.008, 9))  # a fifth of them is below 1
Rng = np.random.Generator


def measured(rng: Rng, true_us: float, visits: int) -> Measurement:
    """The record of visits in two processes, on a machine that flickers and drifts by a tenth."""
    drift = np.exp(0.1 * np.sin(np.arange(visits + 20) / 20 + rng.uniform(0, 6)))
    references_us = REFERENCE_US * drift * np.exp(rng.normal(0, FLICKER, len(drift)))
    levels_us = true_us * drift * np.exp(rng.normal(0, OWN_NOISE, len(drift)))
    made = [
        Visit(tuple((levels_us[i] * SAMPLES).tolist()), references_us[i] / REFERENCE_US, i % 2)
        for i in range(visits)
    ]
    subject = Measurement(TARGET, "0" * 32, "cell", None, measured_at="2026-01-01")
    return record_of(subject, made, flicker=flicker_share(references_us.tolist()))


def network_of(rng: Rng, constant: float, visits: int) -> HeldOutNetwork:
    """A network whose latency is its cells', but for the constant and the scatter."""
    true_us = np.exp(rng.normal(5.0, 1.0, 5))
    latency_us = float(true_us.sum() * math.exp(constant + rng.normal(0, SCATTER)))
    cells, truth = [], []
    for i, us in enumerate(true_us.tolist()):
        record = measured(rng, us, visits)
        known_us, noise = record.latency_us or 0.0, record.spread_share
        cells.append(CellPrior(f"{i}", 1, known_us, noise, source="measured"))
        truth.append((known_us, noise))
    return HeldOutNetwork(f"{rng.integers(10**9)}", latency_us, tuple(cells), tuple(truth))


def machine_of(rng: Rng, constant: float, networks: int, visits: int) -> Composition:
    known = []
    for _ in range(networks):
        network = network_of(rng, constant, visits)
        whole = measured(rng, network.latency_us, 4)
        if whole.latency_us is not None and whole.spread_share <= MOST_NOISE_SHARE:
            known.append(SummedNetwork(whole.latency_us, network.sum_of_measured_us))
    return machine_composition(undisturbed(known, 0.0), 0.0, LENT)


@pytest.mark.parametrize("visits", [2, 3, 5, 10, 20])
def test_cells_err_as_they_state(visits: int) -> None:
    rng = np.random.default_rng(visits)
    records = [measured(rng, 100.0, visits) for _ in range(600)]
    error = math.sqrt(np.mean([math.log((r.latency_us or 0) / 100) ** 2 for r in records]))
    stated = math.sqrt(np.mean([r.spread_share**2 for r in records]))
    assert stated == pytest.approx(error, rel=0.1)


@pytest.mark.parametrize(
    ("networks", "machines", "visits"),
    [(0, 60, 2), (1, 60, 2), (3, 50, 3), (5, 40, 2), (20, 15, 2), (60, 8, 2)],
)
def test_networks_err_as_they_state(networks: int, machines: int, visits: int) -> None:
    rng = np.random.default_rng(networks)
    errors, stated, inside = [], [], []
    for place in range(machines):
        constant = CONSTANT * NormalDist().inv_cdf((place + 0.5) / machines)
        own = machine_of(rng, constant, networks, visits)
        for _ in range(max(6, 240 // machines)):
            network = network_of(rng, constant, visits)
            posterior = own.start(network.cells)
            interval = own.interval(posterior)
            errors.append(math.log(network.latency_us / interval.latency_us))
            stated.append(own.variances(posterior.variance_share, posterior.sum_us)[1])
            low_us, high_us = interval.interval_us
            inside.append(low_us <= network.latency_us <= high_us)
    error, own_error = math.sqrt(np.mean(np.square(errors))), math.sqrt(np.mean(stated))
    assert own_error == pytest.approx(error, rel=0.1)
    assert np.mean(inside) > 0.87
