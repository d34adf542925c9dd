"""How steadily this machine runs: the reference network, visited for some seconds."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hybridlat.engines import registry
from hybridlat.engines.base import Backend
from hybridlat.errors import MeasurementError
from hybridlat.graph.builder import reference_network
from hybridlat.measuring.process import MeasuringProcess
from hybridlat.measuring.statistics import level_us, usual_us
from hybridlat.measuring.visiting import VisitTask

PROCESSES = 2
VISIT_MS = 50.0
_LEAST_VISITS = 3


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How steadily the machine ran the reference network for ``seconds`` in ``processes``.

    ``latency_us`` is what it took when nothing slowed it, ``noise_share`` by how much single visits
    differ within a process (relative standard deviation), ``wander_share`` how far the visits of
    all processes are from that latency (root mean square), ``slowest_share`` the farthest.
    """

    target: str
    seconds: float
    processes: int
    visits: int
    latency_us: float
    noise_share: float
    wander_share: float
    slowest_share: float


def steadiness(
    backend: Backend,
    options: Mapping[str, int | str],
    seconds: float,
    tell: Callable[[float], None] | None = None,
) -> Steadiness:
    """Visit the reference network for ``seconds`` in two processes, one after the other.

    ``tell`` gets the seconds that are left. Raises BackendUnavailable where the engine does not
    start in a process of its own, MeasurementError where it cannot run the reference network.
    """
    began = time.monotonic()
    place = registry.place_of(backend)
    levels: list[list[float]] = []
    for process in range(PROCESSES):
        end = began + seconds * (process + 1) / PROCESSES
        with MeasuringProcess(place, options) as worker:
            of_process: list[float] = []
            while len(of_process) < _LEAST_VISITS or time.monotonic() < end:
                task = VisitTask(
                    "steadiness", reference_network(), False, VISIT_MS, 1, 1 + len(of_process)
                )
                report = worker.ask(task)
                if report is None or report.failure is not None:
                    reason = worker.last_words() if report is None else report.failure
                    raise MeasurementError(f"the reference network cannot be run: {reason}")
                if report.samples_us:
                    of_process.append(level_us(report.samples_us))
                if tell is not None:
                    tell(max(began + seconds - time.monotonic(), 0.0))
            levels.append(of_process)
    return of_levels(str(backend.target), time.monotonic() - began, levels)


def of_levels(target: str, seconds: float, levels: Sequence[Sequence[float]]) -> Steadiness:
    """The steadiness that the levels of each process's visits show (at least one visit in all)."""
    every = [level for of_process in levels for level in of_process]
    usual = usual_us(every)
    # From one visit to the next, so that a pace that changes slowly is not taken for noise.
    steps = [
        math.log(after / before)
        for of_process in levels
        for before, after in itertools.pairwise(of_process)
    ]
    noise = 1.4826 * statistics.median(map(abs, steps)) / math.sqrt(2) if steps else 0.0
    paces = [math.log(level / usual) for level in every]
    return Steadiness(
        target=target,
        seconds=seconds,
        processes=len(levels),
        visits=len(every),
        latency_us=usual,
        noise_share=noise,
        wander_share=math.sqrt(statistics.fmean(pace**2 for pace in paces)),
        slowest_share=math.expm1(max(paces)),
    )
