"""The measuring process: builds what it is told, times it between reference kernels, reports.

It is a process of its own so that a crash or a hang costs one job, and so that what a process is
given for its whole life (addresses, cores) differs between visits of the same thing.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from hybridlat.engines.base import Backend, Session
from hybridlat.errors import HybridlatError
from hybridlat.graph.network import Network
from hybridlat.graph.reference_networks import reference_network

WARM_UP_S = 0.5
MIN_SAMPLES = 3
MAX_SAMPLES = 120
WARM_RUNS = 14
TIMED_RUNS = 11
NULL_CHAINS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Task:
    """One visit to make: ``kind`` network builds as a file, the others as they are."""

    key: str
    network: Network
    lowered: bool
    visit_ms: float
    twins: int
    seed: int


@dataclass(frozen=True)
class Report:
    """What a visit found: samples of the twins in turn and the references around, or a failure."""

    key: str
    samples_us: tuple[float, ...] = ()
    reference_us: float = 0.0
    seconds: float = 0.0
    failure: str | None = None


Message = Report | Literal["ready"] | tuple[Literal["fatal"], str]


def serve(place: str, options: Mapping[str, int | str], pinned: bool, pipe: Connection) -> None:
    """Answer tasks from ``pipe`` until it closes or sends None; ``place`` is the backend's."""
    from hybridlat.engines import registry
    from hybridlat.engines.host import pin

    try:
        backend = registry.backend_at(place)(**options)
        if pinned:
            pin(backend.target.threads or 1)
        references = References(backend)
    except HybridlatError as error:
        pipe.send(("fatal", str(error)))
        return
    pipe.send("ready")
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        if task is None:
            return
        pipe.send(visit(backend, references, task))


def visit(backend: Backend, references: References, task: Task) -> Report:
    """Build the twins, run them in turn for ``visit_ms``, take them down again.

    The first pass warms up and is dropped. So is the first twin of every pass: it runs behind the
    bookkeeping of the pass, the others behind each other, as cells do in a network.
    """
    started = time.perf_counter()
    sessions: list[Session] = []
    try:
        if task.twins == 1:
            sessions = [backend.build(task.network, seed=task.seed, lowered=task.lowered)]
        else:
            sessions = backend.build_twins(
                task.network, count=task.twins, seed=task.seed, lowered=task.lowered
            )
        before = references.run_us()
        samples = _rotate(sessions, task.visit_ms)
        after = references.run_us()
    except HybridlatError as error:
        return Report(task.key, failure=str(error), seconds=time.perf_counter() - started)
    finally:
        for session in sessions:
            session.close()
    # No samples and no failure: everything was disturbed, and the next visit may do better.
    return Report(task.key, tuple(samples), (before + after) / 2, time.perf_counter() - started)


def _rotate(sessions: list[Session], visit_ms: float) -> list[float]:
    samples: list[float] = []
    timed = sessions[1:] or sessions
    deadline = None
    passes = 0
    enough = max(2, math.ceil(MIN_SAMPLES / len(timed)) + 1)
    while passes < enough or (deadline is not None and time.perf_counter() < deadline):
        for place, session in enumerate(sessions):
            found = session.run_us(1)
            if passes and (place or len(timed) == len(sessions)):
                samples.extend(found)
        passes += 1
        if deadline is None:
            deadline = time.perf_counter() + visit_ms / 1e3
        if passes >= enough and len(samples) >= MAX_SAMPLES:
            break
    return samples


class References:
    """A small network that is the machine's pulse: run around every visit, to divide drift out."""

    def __init__(self, backend: Backend) -> None:
        self._session = backend.build(reference_network(), seed=9, lowered=False)
        deadline = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < deadline:
            self.run_us()

    def run_us(self) -> float:
        """Median once warm: behind a visit the first dozen runs find caches and pages cold."""
        self._session.run_us(WARM_RUNS)
        return statistics.median(self._session.run_us(TIMED_RUNS) or self._session.run_us(1) or [0])
