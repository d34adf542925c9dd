"""The estimate of a network from what is believed of it: latency, interval and rows."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

import numpy as np

from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.estimate.belief import Belief, Request
from hybridlat.estimate.compose.composition import NetworkInterval, normal_quantile
from hybridlat.estimate.compose.machine import MOST_EXCESS_SHARE
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.gate import gate
from hybridlat.estimate.lookup.models import known_device
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.estimate.partition.structure import network_structure
from hybridlat.estimate.warnings import Findings, warnings_of
from hybridlat.schema.estimate import CellEstimate, Estimate, LatencySource, Structure
from hybridlat.schema.measurement import BUSY_SPREAD_SHARE, MachineLoad, busiest

_log = logging.getLogger(__name__)


def estimate_of(request: Request, data: TargetData, belief: Belief) -> Estimate:
    """The estimate that a belief comes to, with what the gate would measure next."""
    posterior, partition, exact = belief.posterior, request.partition, belief.exact
    interval = _interval(belief)
    load = load_while_measured(data, request.signatures, posterior, belief.whole)
    tight = interval.half_width_share <= request.tolerance and not belief.contradicted
    known = exact is not None or (posterior.complete and not posterior.required)
    within = tight and load is None and known
    wanted: tuple[int, ...] = ()
    if not within and exact is None and request.measure is None:
        refused = belief.failures.keys()
        wanted = gate.plan(posterior, belief.composition, request.tolerance, refused).positions
    cells, names = _rows(request, belief), request.file.node_names
    constants = request.file.constant_nodes.intersection(partition.removed)
    findings = Findings(cells, interval, within, bool(wanted), load)
    return Estimate(
        network=request.file.name,
        target=str(data.target),
        batch=partition.batch,
        latency_us=interval.latency_us if exact or posterior.sum_us > 0 else None,
        interval_us=interval.interval_us if exact or posterior.complete else None,
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
        to_measure=()
        if registry.refuses(data.target)
        else tuple([request.signatures[i] for i in wanted]),
        tolerance=request.tolerance,
        structure=_structure(request, data) if request.describe else None,
        warnings=warnings_of(request, data, belief, findings),
        source="composed" if exact is None else "measured",
        reason="" if exact is None else f"measured whole {exact.basis}",
        network_measured_now=belief.network_runs > 0,
        pace_share=belief.composition.measured_half_width_share(0.0),
        contradicted=belief.contradicted,
        busy=load is not None,
    )


def _interval(belief: Belief) -> NetworkInterval:
    """The network's own latency where it is known, else that which its cells make.

    Where the two contradict each other either may be right: the interval covers both.
    """
    exact, composition = belief.exact, belief.composition
    if exact is None:
        return composition.interval(belief.posterior)
    half = composition.measured_half_width_share(exact.noise_share)
    own = composition.around(exact.latency_us, half, belief.posterior.sum_us)
    if belief.contradicted:
        return own.covering(composition.interval(belief.posterior))
    return own


def load_while_measured(
    data: TargetData, signatures: Sequence[str], cells: ErrorPosterior, whole: WholeLatency | None
) -> MachineLoad | None:
    """How busy the machine was while what an answer rests on was measured; None if it was quiet.

    An answer rests on the network itself, else on its cells: ``signatures``, in the order of the
    posterior. Few cells that a busy machine measured are in their own intervals.
    """
    if whole is not None and (whole.is_exact or whole.load is not None):
        return whole.load
    unsure = {
        i
        for i, prior in enumerate(cells.priors)
        if cells.is_measured(i)
        and cells.measured.get(i, (0.0, prior.spread_share))[1] >= BUSY_SPREAD_SHARE
    }
    if sum(cells.uses_us[i] for i in unsure) <= MOST_EXCESS_SHARE * cells.sum_us:
        return None
    largest = max(unsure, key=lambda i: float(cells.uses_us[i]))
    records = (
        record
        for target in (data.target, *data.related)
        for record in data.store.measurements(target, "cell", signatures[largest])
    )
    return busiest(record.environment for record in records)


def _rows(request: Request, belief: Belief) -> tuple[CellEstimate, ...]:
    """One row for each distinct cell, in the order of the partition."""
    posterior, names = belief.posterior, request.file.node_names
    z, total_us = normal_quantile(request.confidence), posterior.sum_us
    uses_us = posterior.uses_us.tolist()
    deviations = np.sqrt(np.maximum(posterior.covariance.diagonal(), 0.0))
    factors = np.exp(np.minimum(z * deviations, 20.0)).tolist()
    never = "it was never measured" + (f", and {request.why_not}" if request.why_not else "")
    rows = []
    for i, (use, prior, us) in enumerate(
        zip(request.partition.uses, posterior.priors, posterior.latencies_us.tolist(), strict=True)
    ):
        source: LatencySource = "measured" if posterior.is_measured(i) else "predicted"
        reason, trusted = (prior.reason, prior.trusted) if source == "predicted" else ("", True)
        if is_unknown := math.isnan(us):
            source, reason, trusted = "unsupported", belief.failures.get(i) or never, True
        rows.append(
            CellEstimate(
                signature=use.signature,
                ops=use.ops,
                nodes=tuple([names[n] for n in use.nodes]),
                count=use.count,
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
    """What the cells are made of; None where the store has lost the text of one."""
    try:
        texts = data.texts(request.partition, request.signatures)
        ordered = [texts[signature] for signature in request.signatures]
        device = known_device(data.target, data.store)
        return network_structure(
            request.file, request.partition, ordered, device, data.target.precision
        )
    except (StoreError, ValueError) as error:
        _log.warning("%s is not drawn: %s", request.file.name, error)
        return None
