"""One visit: replicas of a cell, or a cell and its predecessor, in turn between references."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hybridlat.board.visits import take_turns
from hybridlat.engines.base import Backend, Session, build_all
from hybridlat.engines.host import LoadMeter
from hybridlat.errors import HybridlatError, MeasurementError
from hybridlat.graph.builder import reference_network
from hybridlat.graph.network import Network
from hybridlat.measuring.statistics import difference
from hybridlat.schema.measurement import MachineLoad

WARM_UP_S = 0.5
PATIENCE_S = 2.0
MIN_SAMPLES = 3
MAX_SAMPLES = 120
WARM_RUNS = 14
TIMED_RUNS = 11


@dataclass(frozen=True, slots=True)
class VisitTask:
    """What one visit of the job ``key`` runs for ``visit_ms``: ``replicas`` of a lowered cell.

    Without replicas it is a network of a file, less a second if there is one. As much other memory
    as the rest of the network works in, ``rest_bytes``, is read before each of their runs.
    """

    key: str
    networks: tuple[Network, ...]
    visit_ms: float
    seed: int
    replicas: int = 0
    rest_bytes: int = 0


@dataclass(frozen=True, slots=True)
class VisitResult:
    """Samples and the reference around them, or a failure; neither: every run was disturbed."""

    samples_us: tuple[float, ...] = ()
    reference_us: float = 0.0
    failure: str | None = None
    load: MachineLoad | None = None
    process: int = 0  # its number in a run of ``replicas``, which sets it


class _MachineBusy(MeasurementError):
    """No run of the reference network was undisturbed."""


class References:
    """The reference network: it shows the machine's pace, so that drift is divided out."""

    def __init__(self, backend: Backend) -> None:
        self._session = backend.build(reference_network(), seed=9, lowered=False)
        self._last_us = 0.0
        deadline = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < deadline:
            self.run_us()

    def run_us(self) -> float:
        """Median once warm, the last one where every run is disturbed."""
        self._session.run_us(WARM_RUNS)
        samples = self._session.run_us(TIMED_RUNS)
        deadline = time.perf_counter() + PATIENCE_S
        while not samples and time.perf_counter() < deadline:
            samples = self._session.run_us(1)
        if samples:
            self._last_us = statistics.median(samples)
        if self._last_us <= 0:
            raise _MachineBusy(
                f"the machine is too busy to measure on: for {PATIENCE_S:.0f} s not one run of a "
                "small network was undisturbed; stop what else runs on it, and try again"
            )
        return self._last_us


def visit(
    backend: Backend, references: References, task: VisitTask, cores: int | None = None
) -> VisitResult:
    """Build the networks of the task, run them, close them; ``cores`` are those of the load."""
    meter = LoadMeter(backend.target.threads or 1, cores)
    sessions: list[Session] = []
    try:
        if task.replicas:
            (cell,) = task.networks
            sessions = backend.build_replicas(cell, count=task.replicas, seed=task.seed)
        else:
            build, networks = partial(backend.build, lowered=False), enumerate(task.networks)
            sessions = build_all(partial(build, n, seed=task.seed + i) for i, n in networks)
        before = references.run_us()
        meter.sample()
        samples = rotate(sessions, task)
        meter.sample()
        after = references.run_us()
        meter.sample()
        lost_share = statistics.fmean(session.lost_share for session in sessions)
    except _MachineBusy:
        return VisitResult()
    except HybridlatError as error:
        return VisitResult(failure=str(error))
    finally:
        for session in sessions:
            session.close()
    kept_us = tuple(round(sample, 2) for sample in samples)
    return VisitResult(kept_us, (before + after) / 2, load=meter.load(lost_share))


def rotate(sessions: Sequence[Session], task: VisitTask) -> Sequence[float]:
    """Samples of sessions run in turn, for longer where hardly a run is undisturbed.

    Of replicas the first in a pass is dropped, as it runs behind bookkeeping.
    """
    visit_s, runs = task.visit_ms / 1e3, [partial(session.run_us, 1) for session in sessions]
    groups: list[Sequence[int]] = [[index] for index in range(len(sessions))]
    if task.replicas:
        groups = [range(1, len(sessions))]
    elif task.rest_bytes:
        runs = [partial(_run_cold, session, np.ones(task.rest_bytes // 8)) for session in sessions]
    least_passes = max(2, math.ceil(MIN_SAMPLES / len(groups[0])) + 1)

    def goes_on(taken: Mapping[int, Sequence[float]], passes: int, spent_s: float) -> bool:
        count = min(sum(len(taken[index]) for index in group) for group in groups)
        if passes < least_passes:
            return True
        if count < MIN_SAMPLES:
            return spent_s < max(visit_s, PATIENCE_S)
        return spent_s < visit_s and count < MAX_SAMPLES

    taken = take_turns(dict(enumerate(runs)), goes_on)
    timed, *taken_off = ([s for index in group for s in taken[index]] for group in groups)
    return difference(timed, taken_off[0]) if taken_off else timed


def _run_cold(session: Session, rest: np.ndarray) -> list[float]:
    rest.sum()  # what was in the caches no longer is
    return session.run_us(1)
