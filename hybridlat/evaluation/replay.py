"""Play a state of knowledge on a network whose truth is recorded: none, some or all measured."""

from __future__ import annotations

import math

from hybridlat.estimate.compose.calibration import HeldOutNetwork
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.gate import gate
from hybridlat.evaluation.metrics import Prediction


def simulate_gate(
    network: HeldOutNetwork, composition: Composition, tolerance: float, fraction: float = 0.25
) -> ErrorPosterior:
    """Measure what the gate asks for, from the records, until it asks no more."""
    posterior = composition.start(network.cells)
    while chosen := gate.choose(posterior, composition, tolerance, fraction=fraction):
        posterior = posterior.observe(network.truth(chosen))
    return posterior


def all_measured(network: HeldOutNetwork, composition: Composition) -> ErrorPosterior:
    """The posterior once every cell is measured."""
    return composition.start(network.cells).observe(network.truth(range(len(network.cells))))


def prediction_in(
    network: HeldOutNetwork, composition: Composition, posterior: ErrorPosterior
) -> Prediction:
    """What is said of a network in the state of a posterior; no latency while a cell has none."""
    interval = composition.interval(posterior)
    complete = posterior.complete
    return Prediction(
        name=network.name,
        true_us=network.latency_us,
        predicted_us=interval.latency_us if complete else math.nan,
        interval_us=interval.interval_us if complete else None,
        measured_share=posterior.measured_share,
        device_s=math.fsum(network.cells[i].cost_s for i in posterior.measured),
        cells=len(network.cells),
        cells_measured=len(posterior.measured),
    )
