"""Play a state of knowledge on a network whose truth is recorded: none, some or all measured."""

from __future__ import annotations

import math

from hybridlat.estimate import gate
from hybridlat.estimate.calibration import JudgedNetwork
from hybridlat.estimate.composition import Composition
from hybridlat.estimate.posterior import Belief
from hybridlat.evaluation.metrics import Answer


def play_gate(
    network: JudgedNetwork, composition: Composition, tolerance: float, fraction: float = 0.25
) -> Belief:
    """Measure what the gate asks for, from the records, until it asks no more."""
    belief = composition.start(network.cells)
    while chosen := gate.choose(belief, composition, tolerance, fraction=fraction):
        belief = belief.observe(network.truth(chosen))
    return belief


def all_measured(network: JudgedNetwork, composition: Composition) -> Belief:
    """The belief once every cell is measured."""
    return composition.start(network.cells).observe(network.truth(range(len(network.cells))))


def answer(network: JudgedNetwork, composition: Composition, belief: Belief) -> Answer:
    """What is said of a network in the state of a belief; no latency while a cell has none."""
    interval = composition.interval(belief)
    complete = belief.complete
    return Answer(
        name=network.name,
        true_us=network.latency_us,
        predicted_us=interval.latency_us if complete else math.nan,
        interval_us=interval.interval_us if complete else None,
        measured_share=belief.measured_share,
        device_s=math.fsum(network.cells[i].cost_s for i in belief.measured),
        cells=len(network.cells),
        cells_measured=len(belief.measured),
    )
