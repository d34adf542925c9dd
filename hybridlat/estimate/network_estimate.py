"""From cells to an estimate: look up, predict, let the gate measure, compose."""

from __future__ import annotations

import math
from dataclasses import replace

from hybridlat.estimate.belief import Belief, MeasureNow, Request
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.target_composition import (
    composition_of,
    is_calibrating,
    on_this_machine,
    own_composition,
)
from hybridlat.estimate.gate import gate
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.predict.chain import CellPriors, cell_priors
from hybridlat.estimate.predict.other_targets import whole_network
from hybridlat.estimate.predict.priors import network_cost_s
from hybridlat.estimate.predict.source import NetworkCells, copied_bytes
from hybridlat.estimate.result import estimate_of
from hybridlat.schema.estimate import Estimate

MOST_NETWORK_RUNS = 3
"""Of one estimate; of all together where the network and its cells contradict each other."""


def estimate_network(request: Request, data: TargetData) -> Estimate:
    """The estimate of one network from what is known of its target."""
    data.refresh()
    belief = first_belief(request, data)
    if request.measure is not None:
        while step := next_step(request, data, belief):
            belief = _measured(request, request.measure, data, belief, step)
    return estimate_of(request, data, belief)


def first_belief(request: Request, data: TargetData) -> Belief:
    """What records and sources state of a network, its cells measured anew where that is wanted."""
    measured_now: frozenset[str] = frozenset()
    if request.remeasure and request.measure is not None:
        request.measure(request.file, request.partition, request.signatures, True)
        measured_now = frozenset(request.signatures)
    whole = whole_network(data, request.partition)
    priors = cell_priors(data, cells_of(request, data), request.measure is not None, whole)
    composition = composition_for(data, priors, request.confidence)
    belief = Belief(
        priors,
        composition,
        composition.start(priors.cells),
        priors.failures,
        measured_now=measured_now,
        network_runs=1 if measured_now and whole is not None else 0,
    )
    return belief.given_whole(whole)


def cells_of(request: Request, data: TargetData) -> NetworkCells:
    """The cells of a network, as the sources of latencies take them."""
    partition = request.partition
    return NetworkCells(
        request.signatures,
        tuple([use.count for use in partition.uses]),
        request.confidence,
        lambda: data.texts(partition, request.signatures),
        lambda: copied_bytes(request.network()),
    )


def composition_for(data: TargetData, priors: CellPriors, confidence: float) -> Composition:
    """The target's own constants and width, else those of the source that answered for it."""
    if priors.composition is not None and own_composition(data) is None:
        return on_this_machine(data, priors.composition)
    return composition_of(data).at(confidence)


def next_step(request: Request, data: TargetData, belief: Belief) -> gate.Step:
    """What the gate measures next: nothing where the network itself is known well enough."""
    exact, composition = belief.exact, belief.composition
    runs_left = belief.network_runs < MOST_NETWORK_RUNS
    if exact is not None:
        # Measured once more, its noise is that of a mean of two.
        now = composition.measured_half_width_share(exact.noise_share)
        again = composition.measured_half_width_share(exact.noise_share / math.sqrt(2))
        worth = now > request.tolerance and again < now / 1.05
        unsettled = belief.contradicted and exact.times < MOST_NETWORK_RUNS
        return gate.Step((), runs_left and (worth or unsettled))
    network = None
    if not belief.network_runs:
        cost_s = network_cost_s(composition.latency_us(belief.posterior.sum_us))
        anyway = belief.priors.composition is None and is_calibrating(data)
        network = gate.NetworkAction(cost_s, anyway=anyway)
    return gate.next_step(
        belief.posterior, composition, request.tolerance, belief.failures.keys(), network
    )


def _measured(
    request: Request, measure: MeasureNow, data: TargetData, belief: Belief, step: gate.Step
) -> Belief:
    """The belief after a step of the gate was measured."""
    wanted = [request.signatures[i] for i in step.positions]
    measure(request.file, request.partition, wanted, step.network)
    records = data.known(wanted)
    latencies: dict[int, tuple[float, float]] = {}
    failures = dict(belief.failures)
    for i, signature in zip(step.positions, wanted, strict=True):
        record = records.get(signature)
        if record is None or record.latency_us is None:
            reason = record.failure if record else None
            failures[i] = reason or "no undisturbed run of it was made in time"
        else:
            latencies[i] = (record.latency_us, record.spread_share)
    after = replace(
        belief,
        # The first measurement on a machine also tells what entering its engine costs.
        composition=composition_for(data, belief.priors, request.confidence),
        posterior=belief.posterior.observe(latencies),
        failures=failures,
        measured_now=belief.measured_now.union(wanted),
        network_runs=belief.network_runs + step.network,
    )
    whole = whole_network(data, request.partition) if step.network else belief.whole
    return after.given_whole(whole)
