"""From cells to an estimate: look up, predict, let the gate measure, compose."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.estimate import remarks
from hybridlat.estimate.compose.composition import Composition, NetworkInterval
from hybridlat.estimate.compose.conflict import Disagreement, disagreement, load_while_measured
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.estimate_details import MEASURED, Basis, cell_rows
from hybridlat.estimate.gate import gate
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.estimate.predict.chain import CellPriors, cell_priors
from hybridlat.estimate.predict.other_versions import whole_network
from hybridlat.estimate.predict.priors import network_cost_s
from hybridlat.estimate.predict.roofline import contradiction
from hybridlat.estimate.predict.source import NetworkCells
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.machine_load import MachineLoad
from hybridlat.schema.structure import Structure

if TYPE_CHECKING:
    from hybridlat.estimate.lookup.target_data import TargetData
    from hybridlat.estimate.partition.partition import Partition
    from hybridlat.graph.network import Network
    from hybridlat.onnx_io import OnnxFile

_log = logging.getLogger(__name__)
MeasureNow = Callable[["OnnxFile", "Partition", Sequence[str], bool], None]
"""Measures these cells of a network, and whether the network as a whole as well."""
MOST_NETWORK_RUNS = 3
"""Of one answer; of all together where the network and its cells contradict each other."""


@dataclass(frozen=True)
class Request:
    """One network to be answered for, and what the answer has to be like.

    ``measure`` None means that nothing may be measured, and ``why_not`` says why in the warnings;
    ``remeasure`` measures every cell, known or not. ``started`` is the ``time.perf_counter()`` at
    which the call began; ``network`` reads the file's network, where more than its cells is asked
    for. ``describe`` asks for what the cells are made of too.
    """

    file: OnnxFile
    partition: Partition
    network: Callable[[], Network]
    tolerance: float
    confidence: float
    measure: MeasureNow | None = None
    remeasure: bool = False
    why_not: str = ""
    started: float = 0.0
    describe: bool = False


@dataclass
class _State:
    """How far an answer has got: what is believed of the cells, and what measuring came to.

    ``whole`` is what the records say of the network itself, ``disagreement`` how that differs from
    its cells where it may not, and ``network_runs`` how often it was measured for this answer.
    """

    composition: Composition
    posterior: ErrorPosterior
    priors: CellPriors
    failures: dict[int, str]
    fresh: set[str] = field(default_factory=set)
    whole: WholeLatency | None = None
    disagreement: Disagreement | None = None
    network_runs: int = 0

    @property
    def exact(self) -> WholeLatency | None:
        """The network's own latency, where it is known."""
        return self.whole if self.whole is not None and self.whole.is_exact else None

    @property
    def contradicted(self) -> bool:
        """Whether the network and its cells, both measured, cannot both be right."""
        found = self.disagreement
        return self.exact is not None and found is not None and found.is_measured

    def take_whole(self, whole: WholeLatency | None) -> None:
        """The network as it was measured: evidence on the sum of its cells, if it may be."""
        self.whole = whole
        if self.posterior.total is not None:
            self.posterior = replace(self.posterior, total=None).observe({})
        self.disagreement = disagreement(whole, self.composition, self.posterior)
        disturbed = self.disagreement is not None and self.disagreement.is_measured
        if whole is not None and not disturbed:
            total = self.composition.total(whole.latency_us, whole.noise_share)
            if total is not None:
                self.posterior = self.posterior.observe_total(*total)


def estimate_network(request: Request, data: TargetData) -> Estimate:
    """The estimate of one network from what is known of its target."""
    partition = request.partition
    hashes = [use.signature for use in partition.uses]
    fresh: set[str] = set()
    runs = 0
    if request.remeasure and request.measure is not None:
        request.measure(request.file, partition, hashes, True)
        fresh.update(hashes)
        runs = 1
    whole = whole_network(data, partition)
    priors = cell_priors(data, cells_of(request, data), request.measure is not None, whole)
    composition = composition_of(request, data, priors)
    posterior = composition.start(priors.cells)
    state = _State(composition, posterior, priors, dict(priors.failures), fresh)
    state.network_runs = runs if whole is not None else 0
    state.take_whole(whole)
    if request.measure is not None:
        _let_the_gate_measure(request, request.measure, data, state)
    return _estimate(request, data, state)


def _let_the_gate_measure(
    request: Request, measure: MeasureNow, data: TargetData, state: _State
) -> None:
    """Measure what the gate asks for until it asks no more."""
    hashes = [use.signature for use in request.partition.uses]
    while step := _next_step(request, data, state):
        wanted = [hashes[i] for i in step.positions]
        measure(request.file, request.partition, wanted, step.network)
        # The first measurement on a machine also tells what entering its engine costs.
        state.composition = composition_of(request, data, state.priors)
        state.fresh.update(wanted)
        stats = data.known(wanted)
        news: dict[int, tuple[float, float]] = {}
        for i in step.positions:
            record = stats.get(hashes[i])
            if record is None or record.latency_us is None:
                reason = record.failure if record else None
                state.failures[i] = reason or "no undisturbed run of it was made in time"
            else:
                news[i] = (record.latency_us, record.spread_share)
        state.posterior = state.posterior.observe(news)
        if step.network:
            state.network_runs += 1
        state.take_whole(whole_network(data, request.partition) if step.network else state.whole)


def _next_step(request: Request, data: TargetData, state: _State) -> gate.Step:
    """What the gate asks for: nothing where the network itself is known well enough."""
    exact, composition = state.exact, state.composition
    runs_left = state.network_runs < MOST_NETWORK_RUNS
    if exact is not None:
        # Measured once more, its noise is that of a mean of two.
        now = composition.measured_half_width_share(exact.noise_share)
        again = composition.measured_half_width_share(exact.noise_share / math.sqrt(2))
        worth = now > request.tolerance and again < now / 1.05
        unsettled = state.contradicted and exact.times < MOST_NETWORK_RUNS
        return gate.Step((), runs_left and (worth or unsettled))
    network = None
    if runs_left and not state.network_runs:
        cost_s = network_cost_s(composition.latency_us(state.posterior.sum_us))
        anyway = state.priors.composition is None and data.is_calibrating
        network = gate.NetworkAction(cost_s, anyway=anyway)
    return gate.next_step(
        state.posterior, composition, request.tolerance, state.failures.keys(), network
    )


def cells_of(request: Request, data: TargetData) -> NetworkCells:
    """The cells of a network, as the sources of latencies are asked about them."""
    partition = request.partition
    signatures = tuple([use.signature for use in partition.uses])

    def copied_bytes() -> float:
        network = request.network()
        outside = (*network.inputs, *network.outputs)
        return float(sum(network.type_of(name).bytes for name in outside))

    return NetworkCells(
        signatures,
        tuple([use.count for use in partition.uses]),
        request.confidence,
        lambda: data.texts(partition, signatures),
        copied_bytes,
    )


def composition_of(request: Request, data: TargetData, priors: CellPriors) -> Composition:
    """The target's own constants and width, else those of the source that answered for it."""
    if priors.composition is not None and not data.trained.has_composition:
        return data.on_this_machine(priors.composition)
    return data.composition.at(request.confidence)


def _estimate(request: Request, data: TargetData, state: _State) -> Estimate:
    posterior, partition, exact = state.posterior, request.partition, state.exact
    interval = _interval(state)
    bases = _bases(request, state)
    supported = posterior.complete
    something = posterior.sum_us > 0
    signatures = [use.signature for use in partition.uses]
    load = load_while_measured(data, signatures, posterior, state.whole)
    tight = interval.half_width_share <= request.tolerance and not state.contradicted
    tight = tight and load is None
    within = tight and (exact is not None or (supported and not posterior.required))
    constants = _constants(request)
    asks = not within and exact is None and request.measure is None
    would_help = asks and gate.would_measure(
        posterior, state.composition, request.tolerance, state.failures.keys()
    )
    asks = would_help and not registry.refuses(data.target)
    to_measure: tuple[str, ...] = ()
    if asks:
        plan = gate.plan(posterior, state.composition, request.tolerance, state.failures.keys())
        to_measure = tuple([partition.uses[i].signature for i in plan.positions])
    return Estimate(
        network=request.file.name,
        target=str(data.target),
        batch=partition.batch,
        latency_us=interval.latency_us if something or exact else None,
        interval_us=interval.interval_us if supported or exact else None,
        confidence=request.confidence,
        within_tolerance=within,
        sum_of_cells_us=posterior.sum_us,
        measured_share=posterior.measured_share if exact is None else 1.0,
        measured_now=len(state.fresh),
        elapsed_s=time.perf_counter() - request.started,
        cells=cell_rows(partition, request.file.node_names, bases, posterior, request.confidence),
        removed=_removed(request, constants),
        constants=len(constants),
        to_measure=to_measure,
        tolerance=request.tolerance,
        structure=_structure(request, data) if request.describe else None,
        warnings=_warnings(request, data, state, bases, interval, within, would_help, load),
        source="composed" if exact is None else "measured",
        reason="" if exact is None else f"measured whole {exact.basis}",
        network_measured_now=state.network_runs > 0,
        pace_share=state.composition.measured_half_width_share(0.0),
        contradicted=state.contradicted,
        busy=load is not None,
    )


def _constants(request: Request) -> frozenset[int]:
    """Operators that only make constants, of those that the engine does not run."""
    return request.file.constant_nodes.intersection(request.partition.removed)


def _removed(request: Request, constants: frozenset[int]) -> tuple[str, ...]:
    """Names of the operators that the engine does not run; those of constants stand last."""
    names = request.file.node_names
    return tuple([names[i] for i in sorted(request.partition.removed, key=constants.__contains__)])


def _structure(request: Request, data: TargetData) -> Structure | None:
    """What the cells are made of; None where the store has lost the text of one."""
    from hybridlat.estimate.lookup.devices import known_device
    from hybridlat.estimate.partition.structure import network_structure

    hashes = [use.signature for use in request.partition.uses]
    try:
        texts = data.texts(request.partition, hashes)
        ordered = [texts[h] for h in hashes]
        device = known_device(data.target, data.store)
        return network_structure(
            request.file, request.partition, ordered, device, data.target.precision
        )
    except (StoreError, ValueError) as error:
        _log.warning("%s is not drawn: %s", request.file.name, error)
        return None


def _warnings(
    request: Request,
    data: TargetData,
    state: _State,
    bases: Sequence[Basis],
    interval: NetworkInterval,
    within: bool,
    would_help: bool,
    load: MachineLoad | None,
) -> tuple[str, ...]:
    found = [*data.trained.warnings, *request.partition.warnings]
    if load is not None:
        found.append(load.sentence)
    if state.exact is None:
        unmeasured = data.target if would_help else None
        found += remarks.about_cells(request, bases, interval, within, unmeasured)
        found += remarks.about_evidence(state.whole)
        best_us = state.priors.best_us
        far_off = best_us and contradiction(interval.latency_us, best_us)
        found += [far_off] if far_off else []
    else:
        found += remarks.about_disagreement(state.disagreement, request, data.target)
    found += remarks.about_device(data.target.device, bases)
    found += remarks.about_origins(bases)
    own = state.priors.composition is None or data.trained.has_composition
    if state.exact is None and own:
        found += remarks.about_interval(data)  # a family is named as the cells' origin
    found += remarks.about_wandering(data)
    return tuple(found)


def _interval(state: _State) -> NetworkInterval:
    """The network's own latency where it is known, else that which its cells make.

    Where the two contradict each other nobody knows which is right: the interval holds both.
    """
    exact, composition = state.exact, state.composition
    if exact is None:
        return composition.interval(state.posterior)
    half = composition.measured_half_width_share(exact.noise_share)
    own = composition.around(exact.latency_us, half, state.posterior.sum_us)
    if state.contradicted:
        return own.covering(composition.interval(state.posterior))
    return own


def _bases(request: Request, state: _State) -> tuple[Basis, ...]:
    """What the latency of each cell rests on, or why it has none."""
    posterior, why_not = state.posterior, request.why_not
    unknown = np.isnan(posterior.latencies_us).tolist()
    bases = []
    for i, prior in enumerate(posterior.priors):
        if unknown[i]:
            reason = state.failures.get(i) or (
                f"it was never measured, and {why_not}" if why_not else "it was never measured"
            )
            bases.append(Basis("unsupported", reason))
        elif posterior.is_measured(i):
            bases.append(MEASURED)
        else:
            bases.append(Basis("predicted", prior.reason, prior.trusted))
    return tuple(bases)
