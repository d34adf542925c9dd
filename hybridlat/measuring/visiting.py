"""One visit: replicas of a network in turn, between two runs of a reference network."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence

from hybridlat.engines.base import Backend, Session
from hybridlat.engines.host import LoadMeter
from hybridlat.errors import HybridlatError, MeasurementError
from hybridlat.graph.reference_networks import reference_network
from hybridlat.measuring.messages import VisitResult, VisitTask

WARM_UP_S = 0.5
PATIENCE_S = 2.0
MIN_SAMPLES = 3
MAX_SAMPLES = 120
WARM_RUNS = 14
TIMED_RUNS = 11


class References:
    """A small network that is the machine's pulse: run around every visit, to divide drift out."""

    def __init__(self, backend: Backend) -> None:
        self._session = backend.build(reference_network(), seed=9, lowered=False)
        self._last_us = 0.0
        deadline = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < deadline:
            self.run_us()

    def run_us(self) -> float:
        """Median once warm: behind a visit the first dozen runs find caches and pages cold.

        Sessions leave out runs that were disturbed. On a machine so busy that none is left, it is
        run on for a while, then what it last took stands; MeasurementError where it never ran.
        """
        self._session.run_us(WARM_RUNS)
        samples = self._session.run_us(TIMED_RUNS)
        deadline = time.perf_counter() + PATIENCE_S
        while not samples and time.perf_counter() < deadline:
            samples = self._session.run_us(1)
        if samples:
            self._last_us = statistics.median(samples)
        if self._last_us <= 0:
            raise MeasurementError(
                f"the machine is too busy to measure on: for {PATIENCE_S:.0f} s not one run of a "
                "small network was undisturbed; stop what else runs on it, and try again"
            )
        return self._last_us


def visit(
    backend: Backend, references: References, task: VisitTask, cores: int | None = None
) -> VisitResult:
    """Build the replicas, run them in turn for ``visit_ms``, take them down again.

    The first pass warms up and is dropped. So is the first replica of every pass: it runs behind
    the bookkeeping of the pass, the others behind each other, as cells do in a network. ``cores``
    are those of the machine that measuring may use, where this process is pinned to fewer.
    """
    started = time.perf_counter()
    meter = LoadMeter(backend.target.threads or 1, cores)
    sessions: list[Session] = []
    try:
        if task.replicas == 1:
            sessions = [backend.build(task.network, seed=task.seed, lowered=task.lowered)]
        else:
            sessions = backend.build_replicas(
                task.network, count=task.replicas, seed=task.seed, lowered=task.lowered
            )
        before = references.run_us()
        meter.sample()
        samples = _rotate(sessions, task.visit_ms)
        meter.sample()
        after = references.run_us()
        meter.sample()
    except HybridlatError as error:
        return VisitResult(task.key, failure=str(error), seconds=time.perf_counter() - started)
    finally:
        for session in sessions:
            session.close()
    return VisitResult(
        task.key,
        tuple(samples),
        (before + after) / 2,
        time.perf_counter() - started,
        load=meter.load(),
    )


def _rotate(sessions: list[Session], visit_ms: float) -> list[float]:
    samples: list[float] = []
    timed = sessions[1:] or sessions
    began = time.perf_counter()
    passes = 0
    enough = max(2, math.ceil(MIN_SAMPLES / len(timed)) + 1)
    while passes < enough or _goes_on(samples, (time.perf_counter() - began) * 1e3, visit_ms):
        for index, session in enumerate(sessions):
            times_us = session.run_us(1)
            if passes and (index or len(timed) == len(sessions)):
                samples.extend(times_us)
        if not passes:
            began = time.perf_counter()
        passes += 1
    return samples


def _goes_on(samples: Sequence[float], passed_ms: float, visit_ms: float) -> bool:
    """Until the visit's time has passed; longer where hardly a run was left undisturbed."""
    if len(samples) < MIN_SAMPLES:
        return passed_ms < max(visit_ms, PATIENCE_S * 1e3)
    return passed_ms < visit_ms and len(samples) < MAX_SAMPLES
