"""The estimate of a network from what is believed of it: latency, interval, rows and warnings."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.estimate.belief import Belief, Request
from hybridlat.estimate.compose.composition import NetworkInterval, normal_quantile
from hybridlat.estimate.compose.conflict import load_while_measured
from hybridlat.estimate.gate import gate
from hybridlat.estimate.lookup.models import known_device
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.partition.structure import network_structure
from hybridlat.estimate.warnings import Findings, warnings_of
from hybridlat.schema.estimate import CellEstimate, Estimate, LatencySource, Structure

_log = logging.getLogger(__name__)


class _Basis(NamedTuple):
    """What the latency of a cell rests on; see ``CellEstimate``."""

    source: LatencySource
    reason: str = ""
    trusted: bool = True


def estimate_of(request: Request, data: TargetData, belief: Belief) -> Estimate:
    """The estimate that a belief comes to, with what the gate would measure next."""
    posterior, partition, exact = belief.posterior, request.partition, belief.exact
    interval = _interval(belief)
    load = load_while_measured(data, request.signatures, posterior, belief.whole)
    tight = interval.half_width_share <= request.tolerance and not belief.contradicted
    known = exact is not None or (posterior.complete and not posterior.required)
    within = tight and load is None and known
    refused = belief.failures.keys()
    would_help = (
        not within
        and exact is None
        and request.measure is None
        and gate.would_measure(posterior, belief.composition, request.tolerance, refused)
    )
    to_measure: tuple[str, ...] = ()
    if would_help and not registry.refuses(data.target):
        plan = gate.plan(posterior, belief.composition, request.tolerance, refused)
        to_measure = tuple([request.signatures[i] for i in plan.positions])
    cells = _rows(request, belief)
    constants = request.file.constant_nodes.intersection(partition.removed)
    findings = Findings(cells, interval, within, would_help, load)
    has_latency = exact is not None or posterior.sum_us > 0
    has_interval = exact is not None or posterior.complete
    return Estimate(
        network=request.file.name,
        target=str(data.target),
        batch=partition.batch,
        latency_us=interval.latency_us if has_latency else None,
        interval_us=interval.interval_us if has_interval else None,
        confidence=request.confidence,
        within_tolerance=within,
        sum_of_cells_us=posterior.sum_us,
        measured_share=posterior.measured_share if exact is None else 1.0,
        measured_now=len(belief.measured_now),
        elapsed_s=time.perf_counter() - request.started,
        cells=cells,
        removed=_removed(request, constants),
        constants=len(constants),
        to_measure=to_measure,
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


def _rows(request: Request, belief: Belief) -> tuple[CellEstimate, ...]:
    """One row for each distinct cell, in the order of the partition."""
    posterior, names = belief.posterior, request.file.node_names
    z, total_us = normal_quantile(request.confidence), posterior.sum_us
    latencies_us, uses_us = posterior.latencies_us.tolist(), posterior.uses_us.tolist()
    variances = posterior.covariance.diagonal().tolist()
    rows = []
    for i, (use, basis) in enumerate(
        zip(request.partition.uses, _bases(request, belief), strict=True)
    ):
        latency_us: float | None = None
        interval_us = None
        if basis.source != "unsupported":
            latency_us = latencies_us[i]
            factor = math.exp(min(z * math.sqrt(max(variances[i], 0.0)), 20.0))
            interval_us = (latency_us / factor, latency_us * factor)
        rows.append(
            CellEstimate(
                signature=use.signature,
                ops=use.ops,
                nodes=tuple([names[n] for n in use.nodes]),
                count=use.count,
                latency_us=latency_us,
                interval_us=interval_us,
                share=uses_us[i] / total_us if total_us > 0 else 0.0,
                source=basis.source,
                reason=basis.reason,
                trusted=basis.trusted,
            )
        )
    return tuple(rows)


def _bases(request: Request, belief: Belief) -> Sequence[_Basis]:
    """What the latency of each cell rests on, or why it has none."""
    posterior = belief.posterior
    unknown = np.isnan(posterior.latencies_us).tolist()
    never = "it was never measured" + (f", and {request.why_not}" if request.why_not else "")
    bases = []
    for i, prior in enumerate(posterior.priors):
        if unknown[i]:
            bases.append(_Basis("unsupported", belief.failures.get(i) or never))
        elif posterior.is_measured(i):
            bases.append(_Basis("measured"))
        else:
            bases.append(_Basis("predicted", prior.reason, prior.trusted))
    return bases


def _removed(request: Request, constants: frozenset[int]) -> tuple[str, ...]:
    """Names of the operators that the engine does not run; those of constants stand last."""
    names = request.file.node_names
    return tuple([names[i] for i in sorted(request.partition.removed, key=constants.__contains__)])


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
