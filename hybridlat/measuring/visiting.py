"""One visit: replicas of a network in turn, between two runs of a reference network."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hybridlat.board.visits import take_turns
from hybridlat.engines.base import Backend, Session
from hybridlat.engines.host import LoadMeter
from hybridlat.errors import HybridlatError, MeasurementError
from hybridlat.graph.builder import reference_network
from hybridlat.graph.network import Network
from hybridlat.schema.measurement import MachineLoad

WARM_UP_S = 0.5
PATIENCE_S = 2.0
MIN_SAMPLES = 3
MAX_SAMPLES = 120
WARM_RUNS = 14
TIMED_RUNS = 11


@dataclass(frozen=True, slots=True)
class VisitTask:
    """One visit: ``replicas`` of a network in turn, for ``visit_ms``; see ``Backend.build``."""

    key: str
    network: Network
    lowered: bool
    visit_ms: float
    replicas: int
    seed: int


@dataclass(frozen=True, slots=True)
class VisitResult:
    """Samples of the replicas in turn, the reference around them, or a failure.

    ``load`` is that of other work, None where the system does not report it. No samples and no
    failure: every run was disturbed, and the next visit may do better.
    """

    key: str
    samples_us: tuple[float, ...] = ()
    reference_us: float = 0.0
    failure: str | None = None
    load: MachineLoad | None = None


class References:
    """A small network that shows the machine's speed around every visit, to divide drift out."""

    def __init__(self, backend: Backend) -> None:
        self._session = backend.build(reference_network(), seed=9, lowered=False)
        self._last_us = 0.0
        deadline = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < deadline:
            self.run_us()

    def run_us(self) -> float:
        """Median once warm: behind a visit the first dozen runs find caches and pages cold.

        On a machine so busy that every run is disturbed, the last latency stands; MeasurementError
        where there is none.
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
        samples = rotate(sessions, task.visit_ms)
        meter.sample()
        after = references.run_us()
        meter.sample()
    except HybridlatError as error:
        return VisitResult(task.key, failure=str(error))
    finally:
        for session in sessions:
            session.close()
    kept_us = tuple(round(sample, 2) for sample in samples)
    return VisitResult(task.key, kept_us, (before + after) / 2, load=meter.load())


def rotate(sessions: Sequence[Session], visit_ms: float) -> list[float]:
    """Samples of replicas run in turn for ``visit_ms``, longer where hardly a run is undisturbed.

    The first replica of every pass is dropped, where there are more.
    """
    timed = range(1, len(sessions)) if len(sessions) > 1 else range(1)
    enough = max(2, math.ceil(MIN_SAMPLES / len(timed)) + 1)

    def goes_on(taken: Mapping[int, Sequence[float]], passes: int, spent_s: float) -> bool:
        count = sum(len(taken[index]) for index in timed)
        if passes < enough:
            return True
        if count < MIN_SAMPLES:
            return spent_s < max(visit_ms / 1e3, PATIENCE_S)
        return spent_s < visit_ms / 1e3 and count < MAX_SAMPLES

    taken = take_turns({i: partial(s.run_us, 1) for i, s in enumerate(sessions)}, goes_on)
    return [sample for index in timed for sample in taken[index]]
