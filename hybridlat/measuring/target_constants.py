"""Two latencies that belong to a target and to no network, each recorded once.

The **dispatch overhead** is the cost of one call of the engine, which is part of a network's
latency and of no cell's: the latency of a chain of no operators, extrapolated from chains of a few
tiny ones (the *overhead probes*). The **reference latency** is that of the reference network on a
quiet machine: the machine's speed around a visit is a multiple of it, so that runs agree. A
constant that was recorded while the machine was busy holds until a quiet machine records it anew.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from hybridlat.engines.base import Backend
from hybridlat.graph.builder import null_network, reference_network
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.statistics import Subject, record_of
from hybridlat.schema.measurement import MachineLoad, Visit, was_busy
from hybridlat.store import Store

PROTOCOL = "reference-1"
PROBE_LENGTHS = (1, 2, 4, 8)


def overhead_probes() -> dict[int, Network]:
    """Chains of tiny operators by their length."""
    return {length: null_network(length) for length in PROBE_LENGTHS}


def fit_dispatch_overhead_us(levels_us: Mapping[int, Sequence[float]]) -> float:
    """Latency of a chain of no operators, by least squares over the probes' medians.

    ``levels_us`` are the levels of each probe's visits, by its length. 0 where a probe has none,
    and never below.
    """
    if not levels_us or not all(levels_us.values()):
        return 0.0
    lengths = [float(length) for length in levels_us]
    medians = [statistics.median(levels) for levels in levels_us.values()]
    return max(0.0, statistics.linear_regression(lengths, medians).intercept)


def is_overhead_known(store: Store, backend: Backend) -> bool:
    """Whether a quiet machine recorded the dispatch overhead, so that no probe is visited."""
    return _recorded_us(store, backend, sign(null_network(1)).hash)[0] is not None


def dispatch_overhead_us(
    store: Store, backend: Backend, fitted_us: float, load: MachineLoad | None = None
) -> float:
    """The target's, as the store knows it; else ``fitted_us``, recorded now unless it is 0.

    ``load`` is how busy the machine was in this run.
    """
    return _constant_us(store, backend, null_network(1), fitted_us, "entry cost", load)


def reference_latency_us(
    store: Store, backend: Backend, usual_us: float, load: MachineLoad | None = None
) -> float:
    """The target's, as the store knows it; else ``usual_us`` of this run, recorded now."""
    return _constant_us(store, backend, reference_network(), usual_us, "reference", load)


def _constant_us(
    store: Store,
    backend: Backend,
    network: Network,
    value_us: float,
    role: str,
    load: MachineLoad | None,
) -> float:
    signature = sign(network)
    quiet_us, busy_us = _recorded_us(store, backend, signature.hash)
    if quiet_us is not None:
        return quiet_us
    if busy_us is not None and ((load is not None and load.is_busy) or value_us <= 0):
        return busy_us
    if value_us > 0:
        subject = Subject(backend.target, signature.hash, "cell", PROTOCOL,
                          backend.environment(), {"role": role}, load=load)  # fmt: skip
        store.add_signatures({signature.hash: signature.text})
        store.add([record_of(subject, [Visit((value_us,))])])
    return value_us


def _recorded_us(store: Store, backend: Backend, hash_: str) -> tuple[float | None, float | None]:
    """The median of what the machine recorded while quiet, and of what it did while busy."""
    records = [r for r in store.measurements(backend.target, "cell", hash_) if r.latency_us]
    busy = [r.latency_us for r in records if r.latency_us and was_busy(r.environment)]
    quiet = [r.latency_us for r in records if r.latency_us and not was_busy(r.environment)]
    return (statistics.median(quiet) if quiet else None,
            statistics.median(busy) if busy else None)  # fmt: skip
