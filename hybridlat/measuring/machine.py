"""What belongs to a machine and to no network: two latencies, and how steadily it runs.

The **dispatch overhead** is the latency of a chain of no operators, extrapolated from chains of a
few tiny ones (the *overhead probes*). The **reference latency** is that of the reference network on
a quiet machine. What a busy machine recorded holds until a quiet one records it anew.
"""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hybridlat.engines.base import Backend
from hybridlat.errors import MeasurementError
from hybridlat.graph.builder import null_network, reference_network
from hybridlat.graph.signature import sign
from hybridlat.measuring.process import MeasuringProcess, alone
from hybridlat.measuring.statistics import flicker_share, level_us, now, record_of, usual_us
from hybridlat.measuring.visiting import VisitTask
from hybridlat.schema.measurement import MachineLoad, Measurement, Visit, was_busy
from hybridlat.store import Store

Role = Literal["entry cost", "reference"]
"""What a constant's record is of: the dispatch overhead, or the reference latency."""
_PROCESSES, _VISIT_MS, _LEAST_VISITS = 2, 50.0, 3  # of the steadiness


def fit_dispatch_overhead_us(levels_us: Mapping[int, Sequence[float]]) -> float:
    """Latency of a chain of no operators, by least squares; 0 where a probe has no visit."""
    if not levels_us or not all(levels_us.values()):
        return 0.0
    lengths = [float(length) for length in levels_us]
    medians = [statistics.median(levels) for levels in levels_us.values()]
    return max(0.0, statistics.linear_regression(lengths, medians).intercept)


def is_overhead_known(store: Store, backend: Backend) -> bool:
    """Whether a quiet machine recorded the dispatch overhead, so that no probe is visited."""
    return _recorded_us(store, backend, sign(null_network(1)).hash)[0] is not None


def constant_us(
    store: Store,
    backend: Backend,
    role: Role,
    value_us: float,
    load: MachineLoad | None,
    is_final: bool = True,
) -> float:
    """One of the machine's constants, as the store knows it.

    Else ``value_us`` of this run and its ``load``, recorded now if it is final, and not 0.
    """
    signature = sign(null_network(1) if role == "entry cost" else reference_network())
    quiet_us, busy_us = _recorded_us(store, backend, signature.hash)
    if quiet_us is not None:
        return quiet_us
    is_new = is_final and value_us > 0
    if busy_us is not None and (not is_new or (load is not None and load.is_busy)):
        return busy_us
    if is_new:
        subject = Measurement(
            backend.target,
            signature.hash,
            "cell",
            None,
            protocol="reference-1",
            environment={**backend.environment(), **(load.environment() if load else {})},
            measured_at=now(),
            labels={"role": role},
        )
        store.add_signatures({signature.hash: signature.text})
        store.add([record_of(subject, [Visit((value_us,))])])
    return value_us


def _recorded_us(store: Store, backend: Backend, hash_: str) -> tuple[float | None, float | None]:
    """The median of what the machine recorded while quiet, and of what it did while busy."""
    quiet, busy = list[float](), list[float]()
    for record in store.measurements(backend.target, "cell", hash_):
        if record.latency_us and record.labels.get("role"):  # else it is a cell of some network
            (busy if was_busy(record.environment) else quiet).append(record.latency_us)
    quiet_us = statistics.median(quiet) if quiet else None
    return quiet_us, statistics.median(busy) if busy else None


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How steadily the machine ran the reference network for ``seconds`` in ``processes``.

    ``noise_share`` is how visits differ within a process (relative standard deviation).
    ``wander_share`` and ``slowest_share`` are how far all are from a quiet ``latency_us``.
    """

    target: str
    seconds: float
    processes: int
    visits: int
    latency_us: float
    noise_share: float
    wander_share: float
    slowest_share: float


@alone()
def steadiness(backend: Backend, seconds: float) -> Steadiness:
    """Visit the reference network for ``seconds`` in two processes, one after the other.

    Raises BackendUnavailable where the engine does not start, MeasurementError where it fails.
    """
    began, levels = time.monotonic(), list[list[float]]()
    for process in range(_PROCESSES):
        end, of_process = began + seconds * (process + 1) / _PROCESSES, list[float]()
        levels.append(of_process)
        with MeasuringProcess(backend) as worker:
            while len(of_process) < _LEAST_VISITS or time.monotonic() < end:
                seed = 1 + len(of_process)
                task = VisitTask("steadiness", (reference_network(),), _VISIT_MS, seed)
                report = worker.ask(task)
                if report is None or report.failure is not None:
                    reason = worker.last_words() if report is None else report.failure
                    raise MeasurementError(f"the reference network cannot be run: {reason}")
                if report.samples_us:
                    of_process.append(level_us(report.samples_us))
    return of_levels(str(backend.target), time.monotonic() - began, levels)


def of_levels(target: str, seconds: float, levels: Sequence[Sequence[float]]) -> Steadiness:
    """The steadiness that the levels of each process's visits show (at least one visit in all)."""
    every = [level for of_process in levels for level in of_process]
    usual = usual_us(every)
    paces = [math.log(level / usual) for level in every]
    return Steadiness(
        target=target,
        seconds=seconds,
        processes=len(levels),
        visits=len(every),
        latency_us=usual,
        noise_share=flicker_share(*levels),
        wander_share=math.sqrt(statistics.fmean(pace**2 for pace in paces)),
        slowest_share=math.expm1(max(paces)),
    )
