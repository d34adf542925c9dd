"""One run over jobs, in fresh processes: replicas of cells, or cells with their predecessors.

Jobs are shuffled together and visited in rounds; every visit stands between two runs of a reference
network. Each visit is cached as soon as it is made, so a run that was cut off goes on where it
stopped. When all visits are in, each job becomes one record: a failure where none was made.
"""

import logging
import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
from msgspec import structs

from hybridlat.engines.base import Backend, Method
from hybridlat.errors import MeasurementError
from hybridlat.measuring import machine, schedule
from hybridlat.measuring.process import MeasuringProcess, alone
from hybridlat.measuring.schedule import Job, MeasurementConfig, needs_visit, probe_key, tasks_of
from hybridlat.measuring.statistics import flicker_share, level_us, now, record_of, usual_us
from hybridlat.measuring.visiting import VisitResult, VisitTask
from hybridlat.schema.files import decode_or_none
from hybridlat.schema.measurement import KINDS, Measurement, Visit, mean_load
from hybridlat.schema.workers import OnProgress, Progress
from hybridlat.store import Store

PROTOCOLS = {Method.REPLICAS: "twins-1", Method.DIFFERENTIAL: "differential-4"}
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
        # Of each job so many, a part of what its cached visits are called: those that were made
        # for an older record are not taken again.
        self._records = dict[str, int]()
        for kind in KINDS:
            own = {job.signature.hash: key for key, job in self.jobs.items() if job.kind == kind}
            for hash_, stats in self.store.latencies(self.backend.target, own, kind).items():
                self._records[own[hash_]] = stats.records

    def is_late(self) -> bool:
        budget_s = self.settings.budget_s
        return budget_s is not None and time.monotonic() - self.started > budget_s

    def visit(self) -> None:
        for process in range(self.settings.max_processes):
            known = self._known(*self._constants_us())
            due = [job for job, v, us in known if needs_visit(self.settings, process, v, us)]
            if not due or self.is_late():
                break
            self._visit_in(process, due)

    def _known(
        self, reference_us: float, overhead_us: float
    ) -> Iterator[tuple[Job, list[Visit], float]]:
        """Each job with its visits, their drift divided out, and the overhead that is in them."""
        for key, job in self.jobs.items():
            visits = [
                Visit(r.samples_us, round(r.reference_us / reference_us, 5), r.process)
                for r in self.visits[key]
            ]
            yield job, visits, overhead_us if job.has_overhead else 0.0

    def _visit_in(self, process: int, due: Sequence[Job]) -> None:
        """All rounds of one process, started again behind a job that brought it down."""
        todo: list[tuple[str, VisitTask]] = []
        # Other machines of this name may share the store.
        named = f"visit-3/{platform.node()}/{PROTOCOLS[self.backend.method]}/{self.backend.target}"
        for task in tasks_of(self.settings, process, due, self._is_probing):
            records = self._records.get(task.key, 0)
            place = f"{named}/{task.key}/{records}/{process}/{task.seed}"
            made = self.store.cache_read(place, partial(decode_or_none, form=VisitResult))
            if made is None:
                todo.append((place, task))
            else:  # by a run that was cut off since
                self._take(place, process, task, made)
        failed, done, began = set[str](), 0, time.monotonic()
        worker: MeasuringProcess | None = None
        with ExitStack() as started:
            for place, task in todo:
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
                    self.store.cache_put({place: msgspec.json.encode(result).decode()})
                    self._take(place, process, task, result)
                done += 1
                self.done += 1
                self._report(process, done, len(todo), began, task)

    def _take(self, place: str, process: int, task: VisitTask, result: VisitResult) -> None:
        self.cached.append(place)
        self.references_us[process].append(result.reference_us)
        self.visits[task.key].append(replace(result, process=process))

    def _report(self, process: int, done: int, total: int, began: float, task: VisitTask) -> None:
        if self.progress is None:
            return
        label = "the engine's overhead"  # of what is no network and no cell
        if task.key in self.jobs:
            label = task.networks[0].name or task.key
        # How many visits the processes to come make is not known yet: as many as this one.
        processes = max(self.settings.processes, process + 1)
        ahead = total - done + total * (processes - process - 1)
        left_s = (time.monotonic() - began) / done * ahead
        self.progress(Progress(self.done, self.done + ahead, label, left_s))

    def _constants_us(self, is_last: bool = False) -> tuple[float, float]:
        """The reference latency and the dispatch overhead; 0 before any visit."""
        of_jobs = [result for key in self.jobs for result in self.visits[key]]
        if not of_jobs:
            return 0.0, 0.0
        load = mean_load(result.load for result in of_jobs)
        known_us = partial(
            machine.constant_us, self.store, self.backend, load=load, is_final=is_last
        )
        usual = usual_us([result.reference_us for result in of_jobs])
        reference_us = known_us("reference", usual)
        levels_us = {
            length: [
                level_us(result.samples_us) * reference_us / result.reference_us
                for result in self.visits[probe_key(length)]
            ]
            for length in schedule.PROBE_LENGTHS
        }
        return reference_us, known_us("entry cost", machine.fit_dispatch_overhead_us(levels_us))

    def records(self) -> list[Measurement]:
        """A record of each job that was visited or failed for good, in order."""
        backend, environment = self.backend, self.backend.environment()
        known = self._known(*self._constants_us(is_last=True))
        flicker = max(map(flicker_share, self.references_us.values()), default=0.0)
        records: list[Measurement] = []
        for job, visits, own_us in known:
            load = mean_load(result.load for result in self.visits[job.key])
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
            failure, may_recover = self.failures.get(job.key, ("", True))
            if visits:
                records.append(record_of(subject, visits, own_us, flicker))
            elif not may_recover:
                records.append(structs.replace(subject, failure=failure))
            elif failure:
                name = job.network.name or job.key
                _log.warning("%s was not measured, and may be another time: %s", name, failure)
        return records
