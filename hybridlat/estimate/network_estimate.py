"""From cells to an estimate: look up, predict, let the gate measure, compose."""

import logging
import math
import time
from dataclasses import replace

import numpy as np

from hybridlat.engines import registry
from hybridlat.engines.base import check_of
from hybridlat.errors import StoreError
from hybridlat.estimate import gate
from hybridlat.estimate.belief import Belief, MeasureNow, Request, composition_for, prior_belief
from hybridlat.estimate.compose import target_composition
from hybridlat.estimate.compose.composition import MOST_EXCESS_SHARE
from hybridlat.estimate.compose.posterior import CellSum
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.estimate.memory import memory_of
from hybridlat.estimate.predict.chain import device_of, family_law
from hybridlat.estimate.predict.source import measuring_cost_s
from hybridlat.estimate.structure import network_structure
from hybridlat.estimate.warnings import warnings_of
from hybridlat.model.conformal import USUAL, normal_quantile
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.measurement import BUSY_SPREAD_SHARE, MachineLoad, busiest
from hybridlat.schema.structure import CellEstimate, LatencySource, Structure
from hybridlat.store import LatencyStats

_log = logging.getLogger(__name__)
_RUN_NOISE_SHARE = 0.035  # how far cells measured one by one sum up to those in a row
_MOST_NETWORK_RUNS = 3  # of one estimate; of all where measurements contradict each other


def belief_of(request: Request, data: TargetData) -> Belief:
    """What is believed of a network once the gate has measured all that it needs."""
    data.refresh()
    belief = _first_belief(request, data)
    if request.measure is not None:
        while step := _next_step(request, data, belief):
            belief = _measured(request, request.measure, data, belief, step)
    return belief


def _first_belief(request: Request, data: TargetData) -> Belief:
    measured_now = frozenset[str]()
    if request.remeasure and request.measure is not None:
        request.measure(request.signatures, True)
        measured_now = frozenset(request.signatures)
    whole, runs = _whole_network(request, data), request.partition.runs
    confidence, measures = request.confidence, request.measure is not None
    belief = prior_belief(data, request.cells, confidence, measures, whole)
    # Runs that were measured before they were cut into cells tell the sums of those.
    known, sums = data.known([run for run, _ in runs]), list[CellSum]()
    for run, of_run in runs:
        if (one := known.get(run)) is not None and one.latency_us is not None:
            noise = math.hypot(one.spread_share, _RUN_NOISE_SHARE)
            counts = tuple([of_run.count(signature) for signature in request.signatures])
            sums.append(CellSum(counts, one.latency_us, noise))
    belief = replace(
        belief,
        posterior=belief.posterior.after_sums(sums),
        measured_now=measured_now,
        network_runs=int(bool(measured_now) and whole is not None),
    )
    return belief.after_whole(belief.priors.whole)


def _whole_network(request: Request, data: TargetData) -> WholeLatency | None:
    """What is recorded of the network here; it is not signed where no record can be of it."""
    partition = request.partition
    may_be_recorded = partition.network is None or data.may_record(partition.outline)
    exact = data.whole(partition.whole) if may_be_recorded else None
    if exact is None and (data.networks or data.user_networks):
        return data.of_cells(partition.counts.items())
    return exact


def _next_step(request: Request, data: TargetData, belief: Belief) -> gate.Step:
    """What the gate measures next: nothing where the network itself is known well enough."""
    exact, composition = belief.exact, belief.composition
    runs_left = belief.network_runs < _MOST_NETWORK_RUNS
    if exact is not None:
        # Measured once more, its noise is that of a mean of two.
        now = composition.measured_half_width_share(exact.noise_share)
        again = composition.measured_half_width_share(exact.noise_share / math.sqrt(2))
        worth = now > request.tolerance and again < now / 1.05
        unsettled = belief.contradicted and exact.times < _MOST_NETWORK_RUNS
        return gate.Step((), runs_left and (worth or unsettled))
    posterior, refused = belief.posterior, belief.failures.keys()
    network_us = composition.latency_us(posterior.sum_us)
    cost_s = None if belief.network_runs else measuring_cost_s(network_us, is_network=True)
    composes = belief.priors.composition is None or belief.priors.learns
    anyway = composes and target_composition.is_calibrating(data)
    return gate.next_step(posterior, composition, request.tolerance, refused, cost_s, anyway)


def _measured(
    request: Request, measure: MeasureNow, data: TargetData, belief: Belief, step: gate.Step
) -> Belief:
    chosen = [request.signatures[i] for i in step.positions]
    measure(chosen, step.network)
    records = data.known(chosen)
    latencies: dict[int, tuple[float, float]] = {}
    failures = dict(belief.failures)
    for i, signature in zip(step.positions, chosen, strict=True):
        record = records.get(signature, LatencyStats(None, 0.0, 0))
        if record.latency_us is None:
            failures[i] = record.failure or "no undisturbed run of it was made in time"
        else:
            latencies[i] = (record.latency_us, record.spread_share)
    if belief.priors.learns:
        after = _first_belief(replace(request, remeasure=False), data)
        failures |= after.failures
    else:
        # The first measurement on a machine also tells what entering its engine costs.
        posterior = belief.posterior.observe(latencies)
        composition = composition_for(data, belief.priors, request.confidence).for_cells(posterior)
        after = replace(belief, composition=composition, posterior=posterior)
        after = after.after_whole(_whole_network(request, data) if step.network else belief.whole)
    return replace(
        after,
        failures=failures,
        measured_now=belief.measured_now.union(chosen),
        network_runs=belief.network_runs + step.network,
    )


def estimate_network(request: Request, data: TargetData) -> Estimate:
    """The estimate of one network by all that is known of its target."""
    belief = belief_of(request, data)
    posterior, partition, exact = belief.posterior, request.partition, belief.exact
    interval = belief.interval
    load = _load_while_measured(request, data, belief)
    tight = interval.half_width_share <= request.tolerance and not belief.contradicted
    known = exact is not None or (posterior.complete and not posterior.required)
    within = tight and load is None and known and not request.left_out
    plan = None
    if not within and exact is None and request.measure is None:
        best = gate.plan(posterior, belief.composition, request.tolerance, belief.failures)
        plan = best if best.positions else None
    to_measure = () if plan is None or registry.refuses(data.target) else plan.positions
    any_latency = exact is not None or posterior.sum_us > 0
    low_us, high_us = interval.interval_us
    if exact is None:
        # No device of this sheet is quicker; an estimate that says so carries a warning.
        low_us = max(low_us, min(belief.priors.least_us, interval.latency_us))
    if request.left_out or (exact is None and not posterior.complete):
        high_us = math.inf
    cells, names = _rows(request, belief), request.file.facts.node_names
    device = device_of(data)
    memory = memory_of(partition.footprint, data.target, device)
    if request.left_out and memory.verdict != "too large":  # what is left out takes more
        memory = replace(memory, total_bytes=None)
    origins, latencies_us = belief.priors.origins, posterior.latencies_us
    law = family_law(data) if origins and data.target.engine == "tensorrt" else None
    graphs = law is None or law.task.graphs
    check, check_field = check_of(data.target, request.file.path, request.bound, graphs)
    own = [latencies_us[i] for i in posterior.unmeasured if i not in origins]
    has_own_model = exact is None and not np.isnan(own).all()
    constants = request.file.facts.constant_nodes.intersection(partition.removed)
    estimate = Estimate(
        network=request.file.name,
        target=str(replace(data.target, runtime=request.runtime or data.target.runtime)),
        batch=partition.batch,
        latency_us=interval.latency_us if any_latency else None,
        interval_us=(low_us, high_us) if any_latency else None,
        confidence=request.confidence,
        within_tolerance=within,
        sum_of_cells_us=posterior.sum_us,
        measured_share=posterior.measured_share if exact is None else 1.0,
        measured_now=len(belief.measured_now),
        elapsed_s=time.perf_counter() - request.started,
        cells=cells,
        # Those of constants stand last.
        removed=tuple([names[i] for i in sorted(partition.removed, key=constants.__contains__)]),
        constants=len(constants),
        to_measure=tuple([request.signatures[i] for i in to_measure]),
        tolerance=request.tolerance,
        tolerance_given=request.tolerance_given,
        structure=_structure(request, data) if request.describe else None,
        source="composed" if exact is None else "measured",
        reason="" if exact is None else exact.basis,
        network_measured_now=belief.network_runs > 0,
        pace_share=belief.composition.measured_half_width_share(0.0),
        contradicted=belief.contradicted,
        busy=load is not None,
        reaches=belief.reaches,
        left_out=request.left_out,
        answered_as=str(data.target),
        check=check,
        check_field=check_field,
        memory=memory,
        power_w=device.power_w if device else None,
        peak_flops=device.known_peak(data.target.precision) if device else None,
        model=data.model_hash if has_own_model else "",
    )
    return estimate.warned(warnings_of(request, data, belief, estimate, load, plan))


def _load_while_measured(request: Request, data: TargetData, belief: Belief) -> MachineLoad | None:
    """How busy the machine was while the network, or much of its cells, was measured."""
    if belief.exact is not None:
        return belief.exact.load
    cells, signatures = belief.posterior, request.signatures
    measured = set(range(len(signatures))).difference(cells.unmeasured)
    spreads = {i: cells.measured.get(i, (0, cells.priors[i].spread_share))[1] for i in measured}
    unsure = [i for i, spread in spreads.items() if spread >= BUSY_SPREAD_SHARE]
    if sum(cells.uses_us[i] for i in unsure) <= MOST_EXCESS_SHARE * cells.sum_us:
        return None
    largest = max(unsure, key=lambda i: float(cells.uses_us[i]))
    targets, signature = (data.target, *data.related), signatures[largest]
    records = (r for one in targets for r in data.store.measurements(one, "cell", signature))
    return busiest(record.environment for record in records)


def _rows(request: Request, belief: Belief) -> tuple[CellEstimate, ...]:
    posterior, names = belief.posterior, request.file.facts.node_names
    factor, total_us = belief.composition.interval_factor, posterior.sum_us
    z = normal_quantile(USUAL) * factor(request.confidence) / factor(USUAL)
    uses_us = posterior.uses_us.tolist()
    deviations = np.sqrt(np.maximum(posterior.covariance.diagonal(), 0.0))
    factors = np.exp(np.minimum(z * deviations, 20.0)).tolist()
    never = "it was never measured" + (f", and {request.why_not}" if request.why_not else "")
    rows = []
    latencies_us = posterior.latencies_us.tolist()
    for i, (use, us) in enumerate(zip(request.partition.uses, latencies_us, strict=True)):
        prior = posterior.priors[i]
        source: LatencySource = "measured" if posterior.is_measured(i) else "predicted"
        reason, trusted = (prior.reason, prior.trusted) if source == "predicted" else ("", True)
        if is_unknown := math.isnan(us):
            source, reason, trusted = "unsupported", belief.failures.get(i) or never, True
        rows.append(
            CellEstimate(
                signature=use.signature,
                ops=use.ops,
                nodes=tuple([names[n] for n in use.nodes]),
                uses=use.count,
                latency_us=None if is_unknown else us,
                interval_us=None if is_unknown else (us / factors[i], us * factors[i]),
                share=uses_us[i] / total_us if total_us > 0 else 0.0,
                source=source,
                reason=reason,
                trusted=trusted,
            )
        )
    return tuple(rows)


def _structure(request: Request, data: TargetData) -> Structure | None:
    """What the cells are made of; None where that cannot be told."""
    try:
        device, precision = device_of(data), registry.float_precision(data.target)
        structure = network_structure(request.file, request.partition, device, precision)
        has_peak = device is None or device.known_peak(data.target.precision) is not None
        return structure if has_peak else replace(structure, roofs=None)
    except (StoreError, ValueError) as error:
        _log.warning("%s is not drawn: %s", request.file.name, error)
        return None
