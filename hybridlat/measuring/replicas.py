"""One run over jobs, in fresh processes: replicas of cells, or cells with their predecessors.

Jobs are shuffled together and visited in rounds; every visit stands between two runs of a reference
network. Each visit is cached as soon as it is made, so a run that was cut off goes on where it
stopped. When all visits are in, each job becomes one record: a failure where none was made.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
from msgspec import structs

from hybridlat.engines.base import Backend, Method
from hybridlat.errors import MeasurementError
from hybridlat.measuring import machine
from hybridlat.measuring.process import MeasuringProcess, alone
from hybridlat.measuring.schedule import Job, MeasurementConfig, needs_visit, probe_key, tasks_of
from hybridlat.measuring.statistics import flicker_share, level_us, now, record_of, usual_us
from hybridlat.measuring.visiting import VisitResult, VisitTask
from hybridlat.schema.files import decode_or_none
from hybridlat.schema.measurement import KINDS, Measurement, Visit, mean_load
from hybridlat.schema.workers import OnProgress, Progress
from hybridlat.store import Store

PROTOCOLS = {Method.REPLICAS: "twins-1", Method.DIFFERENTIAL: "differential-4"}
OVERHEAD = "the engine's overhead"
"""The label of progress that is of no network and no cell."""
_log = logging.getLogger(__name__)


def measure(
    backend: Backend,
    jobs: Sequence[Job],
    store: Store,
    settings: MeasurementConfig | None = None,
    progress: OnProgress | None = None,
) -> list[Measurement]:
    """Measure ``jobs`` on ``backend`` and add the records to ``store``; in order of the jobs.

    A job that nothing can run is a record with its failure; one that the budget left out, or that
    may run another time, is missing.
    MeasurementError where the budget ended while another process measured.
    """
    settings, started = settings or MeasurementConfig(), time.monotonic()
    with alone() as waits:
        store.add_signatures({job.signature.hash: job.signature.text for job in jobs})
        by_key = {job.key: job for job in jobs}
        run = _Run(backend, by_key, store, settings, progress, started)
        if waits and run.is_late():
            raise MeasurementError(
                f"the time limit ({settings.budget_s or 0:.0f} s) ended while another run measured "
                f"on this machine ({waits[0]}): repeat the command, or raise the limit"
            )
        run.visit()
        records = run.records()
        store.add(records)
        store.cache_remove(run.cached)
    return records


@dataclass
class _Run:
    """The visits of one call, by the key of a job or probe, and the last failure of each."""

    backend: Backend
    jobs: Mapping[str, Job]
    store: Store
    settings: MeasurementConfig
    progress: OnProgress | None
    started: float
    cached: list[str] = field(default_factory=list)
    visits: dict[str, list[VisitResult]] = field(default_factory=lambda: defaultdict(list))
    references_us: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, tuple[str, bool]] = field(default_factory=dict)
    done: int = 0

    def __post_init__(self) -> None:
        self._is_probing = not machine.is_overhead_known(self.store, self.backend)
        self._prefixes = _prefixes(self.store, self.backend, list(self.jobs.values()))

    def visit(self) -> None:
        for process in range(self.settings.max_processes):
            due = self._due(process)
            if not due or self.is_late():
                break
            self._visit_in(process, due)

    def _due(self, process: int) -> list[Job]:
        """The jobs that this process is to visit."""
        reference_us, overhead_us = self._constants_us()
        due = []
        for key, job in self.jobs.items():
            visits = _visits(self.visits[key], reference_us)
            own_us = overhead_us if job.has_overhead else 0.0
            if needs_visit(self.settings, process, visits, own_us):
                due.append(job)
        return due

    def is_late(self) -> bool:
        budget_s = self.settings.budget_s
        return budget_s is not None and time.monotonic() - self.started > budget_s

    def _visit_in(self, process: int, due: Sequence[Job]) -> None:
        """All rounds of one process, started again behind a job that brought it down."""
        failed: set[str] = set()
        tasks = tasks_of(self.settings, process, due, self._is_probing)
        todo = [task for task in tasks if not self._is_cached(process, task)]
        done = 0
        began = time.monotonic()
        worker: MeasuringProcess | None = None
        with ExitStack() as started:
            for task in todo:
                if self.is_late() and done:
                    break
                if task.key in failed:
                    continue
                worker = worker or started.enter_context(MeasuringProcess(self.backend))
                result = worker.ask(task)
                if result is None:
                    failed.add(task.key)
                    self.failures[task.key] = worker.last_words(), worker.may_recover
                    worker.kill()
                    worker = None
                    continue
                if result.failure is not None:
                    failed.add(task.key)
                    self.failures[task.key] = result.failure, False
                if result.samples_us:
                    text = msgspec.json.encode(result).decode()
                    self.store.cache_put({self._cache_key(process, task): text})
                    self._take(process, task, result)
                done += 1
                self.done += 1
                self._report(process, done, len(todo), began, task)

    def _is_cached(self, process: int, task: VisitTask) -> bool:
        """Whether an earlier run, cut off since, has made the visit, which is then taken up."""
        key = self._cache_key(process, task)
        result = self.store.cache_read(key, partial(decode_or_none, form=VisitResult))
        if result is not None:
            self._take(process, task, result)
        return result is not None

    def _take(self, process: int, task: VisitTask, result: VisitResult) -> None:
        """Count a visit, made now or by the run that was cut off."""
        self.cached.append(self._cache_key(process, task))
        self.references_us[process].append(result.reference_us)
        self.visits[task.key].append(replace(result, process=process))

    def _cache_key(self, process: int, task: VisitTask) -> str:
        return f"{self._prefixes[task.key]}/{process}/{task.seed}"

    def _report(self, process: int, done: int, total: int, began: float, task: VisitTask) -> None:
        if self.progress is None:
            return
        processes = max(self.settings.processes, process + 1)
        label = (task.networks[0].name or task.key) if task.key in self.jobs else OVERHEAD
        # How many visits the processes to come make is not known yet: as many as this one.
        ahead = total - done + total * (processes - process - 1)
        left_s = (time.monotonic() - began) / done * ahead
        self.progress(Progress(self.done, self.done + ahead, label, left_s))

    def _constants_us(self, is_last: bool = False) -> tuple[float, float]:
        """The reference latency and the dispatch overhead; 0 before any visit."""
        of_jobs = [result for key in self.jobs for result in self.visits[key]]
        if not of_jobs:
            return 0.0, 0.0
        load = mean_load(result.load for result in of_jobs)

        def constant_us(role: machine.Role, shown_us: float) -> float:
            new_us = shown_us if is_last else 0.0
            known_us = machine.constant_us(self.store, self.backend, role, new_us, load)
            return known_us or shown_us

        usual = usual_us([result.reference_us for result in of_jobs])
        reference_us = constant_us("reference", usual)
        levels_us = {
            length: [
                level_us(result.samples_us) * reference_us / result.reference_us
                for result in self.visits[probe_key(length)]
            ]
            for length in machine.PROBE_LENGTHS
        }
        fitted_us = machine.fit_dispatch_overhead_us(levels_us)
        return reference_us, constant_us("entry cost", fitted_us)

    def records(self) -> list[Measurement]:
        """A record of each job that was visited or failed for good, in order."""
        backend = self.backend
        reference_us, overhead_us = self._constants_us(is_last=True)
        flicker = max(map(flicker_share, self.references_us.values()), default=0.0)
        environment = backend.environment()
        records: list[Measurement] = []
        for key, job in self.jobs.items():
            load = mean_load(result.load for result in self.visits[key])
            subject = Measurement(
                backend.target,
                job.signature.hash,
                job.kind,
                None,
                protocol=PROTOCOLS[backend.method],
                environment={**environment, **(load.environment() if load else {})},
                measured_at=now(),
                labels=job.labels,
            )
            failure, may_recover = self.failures.get(key, ("", True))
            if self.visits[key]:
                visits = _visits(self.visits[key], reference_us)
                own_us = overhead_us if job.has_overhead else 0.0
                records.append(record_of(subject, visits, own_us, flicker))
            elif not may_recover:
                records.append(structs.replace(subject, failure=failure))
            elif failure:
                name = job.network.name or key
                _log.warning("%s was not measured, and may be another time: %s", name, failure)
        return records


def _visits(results: Sequence[VisitResult], reference_us: float | None = None) -> list[Visit]:
    """Visits of one job with their drift, which is 1 where no reference latency is known yet."""
    drifts = [round(r.reference_us / reference_us, 5) if reference_us else 1.0 for r in results]
    visits = zip(results, drifts, strict=True)
    return [Visit(result.samples_us, drift, result.process) for result, drift in visits]


def _prefixes(store: Store, backend: Backend, jobs: Sequence[Job]) -> dict[str, str]:
    """What the cached visits of jobs and probes are called: those for an older record otherwise."""
    prefix = f"visit-3/{PROTOCOLS[backend.method]}/{backend.target}"
    keys = [*(job.key for job in jobs), *map(probe_key, machine.PROBE_LENGTHS)]
    prefixes = {key: f"{prefix}/{key}/0" for key in keys}
    for kind in KINDS:
        own = {job.signature.hash: job.key for job in jobs if job.kind == kind}
        for hash_, stats in store.latencies(backend.target, own, kind).items():
            prefixes[own[hash_]] = f"{prefix}/{own[hash_]}/{stats.records}"
    return prefixes
