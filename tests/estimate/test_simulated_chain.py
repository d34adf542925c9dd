"""Simulated machines: from visits to the interval of a network, errors are as large as stated."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from hybridlat.estimate.calibration import HeldOutNetwork
from hybridlat.estimate.compose import machine
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import CellPrior
from hybridlat.measuring.statistics import flicker_share, record_of
from hybridlat.schema.measurement import Measurement, Visit
from hybridlat.schema.target import Target

TARGET = Target("made", "made-1.0", "fp32", 1)
REFERENCE_US = 50.0
FLICKER, OWN_NOISE = 0.02, 0.0115  # of a reference, and of what is visited beside it
LENT = Composition(residual_share=0.02)
CONSTANT = machine.BORROWING_SHARE / math.sqrt(2)
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
        if whole.latency_us is not None and whole.spread_share <= machine.MOST_NOISE_SHARE:
            known.append(machine.SummedNetwork(whole.latency_us, network.sum_of_measured_us))
    quiet = machine.undisturbed(known, 0.0)
    return machine.machine_composition(quiet, 0.0, LENT)


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
