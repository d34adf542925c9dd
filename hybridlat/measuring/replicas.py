"""The replica protocol: replicas of each cell in turn, each network as it is, in fresh processes.

Jobs are shuffled together and visited in rounds; every visit stands between two runs of a reference
network. Each visit is cached as soon as it is made, so a run that was cut off goes on where it
stopped. When all visits are in, each job becomes one record, a failure too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hybridlat.engines import registry
from hybridlat.engines.base import Backend
from hybridlat.graph.signature import sign
from hybridlat.measuring.process import MeasuringProcess
from hybridlat.measuring.schedule import Job, MeasurementConfig, is_wanted, probe_key, tasks_of
from hybridlat.measuring.statistics import (
    SINGLE_VISIT_SPREAD,
    Subject,
    failure_of,
    flicker_share,
    level_us,
    record_of,
    usual_us,
    without_outliers,
)
from hybridlat.measuring.target_constants import (
    PROBE_LENGTHS,
    dispatch_overhead_us,
    fit_dispatch_overhead_us,
    is_overhead_known,
    reference_latency_us,
)
from hybridlat.measuring.visiting import VisitResult, VisitTask
from hybridlat.schema.measurement import Kind, MachineLoad, Measurement, Visit, mean_load
from hybridlat.schema.progress import OnProgress, Progress
from hybridlat.schema.target import Target
from hybridlat.schema.wire import decode_or_none
from hybridlat.store import Store

PROTOCOL = "twins-1"
OVERHEAD = "the engine's overhead"
"""The label of progress that is of no network and no cell."""


def measure(
    backend: Backend,
    options: Mapping[str, int | str],
    jobs: Sequence[Job],
    store: Store,
    settings: MeasurementConfig | None = None,
    progress: OnProgress | None = None,
) -> list[Measurement]:
    """Measure ``jobs`` on ``backend`` and add the records to ``store``; in order of the jobs.

    ``options`` start the backend again in the measuring processes. A job that nothing can run
    becomes a record with its failure; one that the budget left out is missing from the result.
    """
    store.add_signatures({job.signature: sign(job.network).text for job in jobs})
    run = _Run(backend, options, jobs, store, settings or MeasurementConfig(), progress)
    run.visit()
    records = run.records(store)
    store.add(records)
    run.journal.drop()
    return records


class _Run:
    """The visits of one call, as they come in."""

    def __init__(
        self,
        backend: Backend,
        options: Mapping[str, int | str],
        jobs: Sequence[Job],
        store: Store,
        settings: MeasurementConfig,
        progress: OnProgress | None,
    ) -> None:
        self._backend, self._options, self._settings = backend, options, settings
        self._progress = progress
        self._probing = not is_overhead_known(store, backend)
        self.journal = VisitJournal(store, backend.target, PROTOCOL, jobs)
        self._jobs = {job.key: job for job in jobs}
        self._visits: dict[str, list[tuple[int, VisitResult]]] = {key: [] for key in self._jobs}
        self._probes: dict[str, list[VisitResult]] = {probe_key(n): [] for n in PROBE_LENGTHS}
        self._references_us: dict[int, list[float]] = {}
        self._failures: dict[str, str] = {}
        self._started = time.monotonic()
        self._done = 0

    # ---- visits --------------------------------------------------------------------------------

    def visit(self) -> None:
        """Make the visits, by one process after the other."""
        for process in range(self._settings.max_processes):
            wanted = [
                job
                for key, job in self._jobs.items()
                if key not in self._failures
                and is_wanted(self._settings, process, _steady(self._visits[key]))
            ]
            if not wanted or self._is_late():
                break
            self._visit_in(process, wanted)

    def _is_late(self) -> bool:
        budget_s = self._settings.budget_s
        return budget_s is not None and time.monotonic() - self._started > budget_s

    def _visit_in(self, process: int, wanted: Sequence[Job]) -> None:
        """All rounds of one process; it is started again behind a job that brought it down."""
        todo = list(self._not_cached(process, wanted))
        done = 0
        began = time.monotonic()
        worker: MeasuringProcess | None = None
        try:
            for task in todo:
                if self._is_late() and done:
                    break
                if task.key in self._failures:
                    continue
                worker = worker or MeasuringProcess(registry.place_of(self._backend), self._options)
                result = worker.ask(task)
                if result is None:
                    self._failures[task.key] = worker.last_words()
                    worker.kill()
                    worker = None
                    continue
                self._keep(process, task, result)
                done += 1
                self._done += 1
                self._tell(process, done, len(todo), began, task)
        except BaseException:
            if worker is not None:
                worker.kill()
            raise
        if worker is not None:
            worker.stop()

    def _not_cached(self, process: int, wanted: Sequence[Job]) -> Iterator[VisitTask]:
        """The visits that no earlier run, cut off since, has made; those are taken up."""
        for task in tasks_of(self._settings, process, wanted, self._probing):
            result = self.journal.recall(process, task) if task.key in self._jobs else None
            if result is None:
                yield task
            else:
                self._visits[task.key].append((process, result))

    def _keep(self, process: int, task: VisitTask, result: VisitResult) -> None:
        if result.failure is not None:
            if task.key in self._jobs:
                self._failures[task.key] = result.failure
            return
        if not result.samples_us:
            return
        self._references_us.setdefault(process, []).append(result.reference_us)
        if task.key in self._probes:
            self._probes[task.key].append(result)
        else:
            self._visits[task.key].append((process, result))
            self.journal.keep(process, task, result)

    def _tell(self, process: int, done: int, total: int, began: float, task: VisitTask) -> None:
        if self._progress is None:
            return
        passed_s = time.monotonic() - began
        processes = max(self._settings.processes, process + 1)
        label = (task.network.name or task.key) if task.key in self._jobs else OVERHEAD
        # How many visits the processes to come make is not known yet: as many as this one.
        ahead = total - done + total * (processes - process - 1)
        self._progress(Progress(self._done, self._done + ahead, label, passed_s / done * ahead))

    # ---- records -------------------------------------------------------------------------------

    def records(self, store: Store) -> list[Measurement]:
        """A record of each job that was visited or failed, in order."""
        results = [result for visits in self._visits.values() for _, result in visits]
        reference_us = overhead_us = 0.0
        flickers = map(flicker_share, self._references_us.values())
        single_spread = max([SINGLE_VISIT_SPREAD, *flickers])
        if results:
            load = mean_load(result.load for result in results)
            usual_reference_us = usual_us([result.reference_us for result in results])
            reference_us = reference_latency_us(store, self._backend, usual_reference_us, load)
            fitted_us = self._fitted_overhead_us(reference_us)
            overhead_us = dispatch_overhead_us(store, self._backend, fitted_us, load)
        environment = self._backend.environment()
        records: list[Measurement] = []
        for key, job in self._jobs.items():
            load = mean_load(result.load for _, result in self._visits[key])
            subject = Subject(
                self._backend.target, job.signature, job.kind, PROTOCOL, environment, job.labels,
                load=load,
            )  # fmt: skip
            if key in self._failures:
                records.append(failure_of(subject, self._failures[key]))
            elif self._visits[key]:
                visits = _steady(self._visits[key], reference_us)
                taken_off_us = 0.0 if job.kind == "network" else overhead_us
                counted = without_outliers(visits)
                records.append(record_of(subject, visits, taken_off_us, single_spread, counted))
        return records

    def _fitted_overhead_us(self, reference_us: float) -> float:
        levels_us = {
            length: [
                level_us(result.samples_us) * reference_us / result.reference_us
                for result in self._probes[probe_key(length)]
            ]
            for length in PROBE_LENGTHS
        }
        return fit_dispatch_overhead_us(levels_us)


def _steady(
    visits: Sequence[tuple[int, VisitResult]], reference_us: float | None = None
) -> list[Visit]:
    """Visits of one job with their drift, which is 1 where no reference latency is known yet."""
    return [
        Visit(
            tuple(round(sample, 2) for sample in result.samples_us),
            round(result.reference_us / reference_us, 5) if reference_us else 1.0,
            process,
        )
        for process, result in visits
    ]


class _CachedVisit(msgspec.Struct, array_like=True):
    samples_us: tuple[float, ...]
    reference_us: float
    load: MachineLoad | None


class VisitJournal:
    """Visits of ``jobs`` on ``target`` under one protocol, cached until they are records."""

    def __init__(self, store: Store, target: Target, protocol: str, jobs: Sequence[Job]) -> None:
        self._store = store
        self._prefix = f"visit-2/{protocol}/{target}"
        self._generation = _generations(store, target, jobs)
        self._keys: list[str] = []

    def recall(self, process: int, task: VisitTask) -> VisitResult | None:
        """The result of the task's visit, if an earlier run that was cut off has made it."""
        key = self._key(process, task)
        visit = decode_or_none(self._store.cache_get(key), _CachedVisit)
        if visit is None:
            return None
        self._keys.append(key)
        return VisitResult(task.key, visit.samples_us, visit.reference_us, load=visit.load)

    def keep(self, process: int, task: VisitTask, result: VisitResult) -> None:
        """Cache a visit as soon as it is made."""
        key = self._key(process, task)
        samples_us = tuple(round(sample, 2) for sample in result.samples_us)
        visit = _CachedVisit(samples_us, result.reference_us, result.load)
        self._store.cache_put(key, msgspec.json.encode(visit).decode())
        self._keys.append(key)

    def drop(self) -> None:
        """Drop the cached visits: records hold the samples now."""
        self._store.cache_remove(self._keys)
        self._keys = []

    def _key(self, process: int, task: VisitTask) -> str:
        return f"{self._prefix}/{task.key}/{self._generation[task.key]}/{process}/{task.seed}"


def _generations(store: Store, target: Target, jobs: Sequence[Job]) -> dict[str, int]:
    """How many records each job has: visits made for an older record are not taken again."""
    generations = {job.key: 0 for job in jobs}
    kinds: set[Kind] = {job.kind for job in jobs}
    for kind in kinds:
        own = {job.signature: job.key for job in jobs if job.kind == kind}
        for hash_, stats in store.latencies(target, own, kind).items():
            generations[own[hash_]] = stats.records
    return generations
