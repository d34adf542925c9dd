"""The replica protocol: replicas of each cell in turn, each network as it is, in fresh processes.

Jobs are shuffled together and visited in rounds; every visit stands between two runs of a reference
network. Each visit is kept as soon as it is made, so a run that was cut off goes on where it
stopped. When all visits are in, each job becomes one record, a failure too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from hybridlat.engines import registry
from hybridlat.graph.signature import sign
from hybridlat.measuring.process import MeasuringProcess
from hybridlat.measuring.schedule import (
    Job,
    MeasurementConfig,
    is_wanted,
    probe_key,
    replicas_for,
    tasks_of,
)
from hybridlat.measuring.statistics import (
    SINGLE_VISIT_SPREAD,
    Subject,
    failure_of,
    flicker_share,
    level_us,
    record_of,
    usual_us,
)
from hybridlat.measuring.target_constants import (
    PROBE_LENGTHS,
    dispatch_overhead_us,
    fit_dispatch_overhead_us,
    is_overhead_known,
    reference_latency_us,
)
from hybridlat.measuring.visiting import VisitResult, VisitTask
from hybridlat.schema.machine_load import MachineLoad, mean_load
from hybridlat.schema.measurement import Kind, Measurement, Visit
from hybridlat.schema.progress import OnProgress, Progress
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.engines.base import Backend
    from hybridlat.store import Store

__all__ = ["Job", "MeasurementConfig", "Progress", "measure", "replicas_for"]

PROTOCOL = "twins-1"
OVERHEAD = "the engine's overhead"
"""What people are told is measured when it is no network and no cell."""


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
    journal = VisitJournal(store, backend.target, PROTOCOL, jobs)
    probing = not is_overhead_known(store, backend)
    chosen = settings or MeasurementConfig()
    run = _Run(backend, options, jobs, chosen, journal, progress, probing)
    run.visit()
    records = _records(backend, store, run)
    store.add(records)
    journal.drop()
    return records


class _Run:
    """The visits of one call, as they come in."""

    def __init__(
        self,
        backend: Backend,
        options: Mapping[str, int | str],
        jobs: Sequence[Job],
        settings: MeasurementConfig,
        journal: VisitJournal,
        progress: OnProgress | None,
        probing: bool,
    ) -> None:
        self._probing = probing
        self._backend, self._options, self._settings = backend, options, settings
        self._journal, self._progress = journal, progress
        self.jobs = {job.key: job for job in jobs}
        self.reports: dict[str, list[tuple[int, VisitResult]]] = {key: [] for key in self.jobs}
        self.probes: dict[str, list[VisitResult]] = {probe_key(n): [] for n in PROBE_LENGTHS}
        self.references_us: dict[int, list[float]] = {}
        self.failures: dict[str, str] = {}
        self._started = time.monotonic()
        self._done = 0

    def visit(self) -> None:
        """Make the visits, by one process after the other."""
        for process in range(self._settings.max_processes):
            wanted = [
                job
                for key, job in self.jobs.items()
                if key not in self.failures and is_wanted(self._settings, process, self._found(key))
            ]
            if not wanted or self._is_late():
                break
            self._visit_in(process, wanted)

    def _found(self, key: str) -> list[Visit]:
        return [Visit(report.samples_us, 1.0, process) for process, report in self.reports[key]]

    def _is_late(self) -> bool:
        budget_s = self._settings.budget_s
        return budget_s is not None and time.monotonic() - self._started > budget_s

    def _visit_in(self, process: int, wanted: Sequence[Job]) -> None:
        """All rounds of one process; it is started again behind a job that brought it down."""
        todo = list(self._not_kept(process, wanted))
        done = 0
        began = time.monotonic()
        worker: MeasuringProcess | None = None
        try:
            for task in todo:
                if self._is_late() and done:
                    break
                if task.key in self.failures:
                    continue
                worker = worker or MeasuringProcess(registry.place_of(self._backend), self._options)
                report = worker.ask(task)
                if report is None:
                    self.failures[task.key] = worker.last_words()
                    worker.kill()
                    worker = None
                    continue
                self._take(process, task, report)
                done += 1
                self._done += 1
                self._tell(process, done, len(todo), began, task)
        except BaseException:
            if worker is not None:
                worker.kill()
            raise
        if worker is not None:
            worker.stop()

    def _not_kept(self, process: int, wanted: Sequence[Job]) -> Iterator[VisitTask]:
        """The visits that no earlier run, cut off since, has made; those are taken up."""
        for task in tasks_of(self._settings, process, wanted, self._probing):
            kept = self._journal.recall(process, task) if task.key in self.jobs else None
            if kept is None:
                yield task
            else:
                self.reports[task.key].append((process, kept))

    def _take(self, process: int, task: VisitTask, report: VisitResult) -> None:
        if report.failure is not None:
            if task.key in self.jobs:
                self.failures[task.key] = report.failure
            return
        if not report.samples_us:
            return
        self.references_us.setdefault(process, []).append(report.reference_us)
        if task.key in self.probes:
            self.probes[task.key].append(report)
        else:
            self.reports[task.key].append((process, report))
            self._journal.keep(process, task, report)

    def _tell(self, process: int, done: int, total: int, began: float, task: VisitTask) -> None:
        if self._progress is None:
            return
        passed_s = time.monotonic() - began
        processes = max(self._settings.processes, process + 1)
        left_s = passed_s / done * (total - done + total * (processes - process - 1))
        label = (task.network.name or task.key) if task.key in self.jobs else OVERHEAD
        # How many visits the processes to come make is not known yet: as many as this one.
        ahead = total - done + total * (processes - process - 1)
        self._progress(Progress(self._done, self._done + ahead, label, left_s))


def _records(backend: Backend, store: Store, run: _Run) -> list[Measurement]:
    """A record of each job that was visited or failed, in order."""
    references_us = [r.reference_us for results in run.reports.values() for _, r in results]
    reference_us = overhead_us = 0.0
    load = mean_load(r.load for results in run.reports.values() for _, r in results)
    flicker = max(map(flicker_share, run.references_us.values()), default=0.0)
    single = max(SINGLE_VISIT_SPREAD, flicker)
    if references_us:
        reference_us = reference_latency_us(store, backend, usual_us(references_us), load)
        levels_us = {
            length: [
                level_us(report.samples_us) * reference_us / report.reference_us
                for report in run.probes[probe_key(length)]
            ]
            for length in PROBE_LENGTHS
        }
        fitted_us = fit_dispatch_overhead_us(levels_us)
        overhead_us = dispatch_overhead_us(store, backend, fitted_us, load)
    environment = backend.environment()
    records: list[Measurement] = []
    for key, job in run.jobs.items():
        load = mean_load(result.load for _, result in run.reports[key])
        of_job = {**environment, **(load.environment() if load else {})}
        subject = Subject(backend.target, job.signature, job.kind, PROTOCOL, of_job, job.labels)
        if key in run.failures:
            records.append(failure_of(subject, run.failures[key]))
        elif run.reports[key]:
            visits = [
                Visit(
                    tuple(round(sample, 2) for sample in report.samples_us),
                    round(report.reference_us / reference_us, 5),
                    process,
                )
                for process, report in run.reports[key]
            ]
            is_network = job.kind == "network"
            taken_off_us = 0.0 if is_network else overhead_us
            records.append(record_of(subject, visits, taken_off_us, single))
    return records


class VisitJournal:
    """The visits of ``jobs`` on ``target`` under one protocol."""

    def __init__(self, store: Store, target: Target, protocol: str, jobs: Sequence[Job]) -> None:
        self._store = store
        self._prefix = f"visit-2/{protocol}/{target}"
        self._generation = _generations(store, target, jobs)
        self._kept: list[str] = []

    def recall(self, process: int, task: VisitTask) -> VisitResult | None:
        """The report of the task's visit, if an earlier run that was cut off has made it."""
        key = self._key(process, task)
        kept = self._store.cache_get(key)
        if kept is None:
            return None
        self._kept.append(key)
        samples, reference_us, load = json.loads(kept)
        known = None if load is None else MachineLoad(*load)
        return VisitResult(task.key, tuple(samples), reference_us, load=known)

    def keep(self, process: int, task: VisitTask, report: VisitResult) -> None:
        """Keep a visit as soon as it is made."""
        key = self._key(process, task)
        rounded = [round(sample, 2) for sample in report.samples_us]
        load = None if report.load is None else astuple(report.load)
        self._store.cache_put(key, json.dumps([rounded, report.reference_us, load]))
        self._kept.append(key)

    def drop(self) -> None:
        """Forget what was recalled and kept: records hold the samples now."""
        self._store.cache_remove(self._kept)
        self._kept = []

    def _key(self, process: int, task: VisitTask) -> str:
        return f"{self._prefix}/{task.key}/{self._generation[task.key]}/{process}/{task.seed}"


def _generations(store: Store, target: Target, jobs: Sequence[Job]) -> dict[str, int]:
    """How many records each job has: visits made for an older record are not taken again."""
    generations = {job.key: 0 for job in jobs}
    kinds: set[Kind] = {job.kind for job in jobs}
    for kind in kinds:
        own = {job.signature: job.key for job in jobs if job.kind == kind}
        for hash_, known in store.latencies(target, own, kind).items():
            generations[own[hash_]] = known.records
    return generations
