"""The measuring protocol: what is visited how often, where drift and overhead go, what is kept.

Jobs are shuffled together and visited in rounds by fresh processes; every visit stands between two
runs of a reference network. Each visit is kept as soon as it is made, so a run that was cut off
goes on where it stopped. When all visits are in, each job becomes one record, a failure too.
"""

from __future__ import annotations

import datetime
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hybridlat.engines import registry
from hybridlat.graph.network import Network
from hybridlat.graph.reference_networks import null_network, reference_network
from hybridlat.graph.signature import sign
from hybridlat.measuring.process import MeasuringProcess
from hybridlat.measuring.statistics import combine, entry_cost_us, level_us
from hybridlat.measuring.worker import NULL_CHAINS, Report, Task
from hybridlat.schema.measurement import Kind, Measurement, Visit

if TYPE_CHECKING:
    from hybridlat.engines.base import Backend
    from hybridlat.store import Store

PROTOCOL = "twins-1"


@dataclass(frozen=True)
class Progress:
    """How far a long call is; ``seconds_left`` None while that cannot be said."""

    done: int
    total: int
    label: str
    seconds_left: float | None


Report_ = Callable[[Progress], None]


@dataclass(frozen=True)
class Job:
    """One thing to measure. ``lowered``: it is part of an engine's graph and runs as it is."""

    signature: str
    network: Network
    kind: Kind = "cell"
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def lowered(self) -> bool:
        return self.kind == "cell"


@dataclass(frozen=True)
class Settings:
    """How much measuring: ``rounds`` visits of every job in each of ``processes`` processes.

    A whole network is one session and varies more from one to the next than a sum of many cells:
    it is visited ``network_visits`` times a round. A job whose spread is still above
    ``spread_share`` is visited by up to ``max_processes``.
    ``budget_s`` ends the run early; what has been visited by then is kept.
    """

    rounds: int = 3
    processes: int = 2
    max_processes: int = 3
    spread_share: float = 0.02
    visit_ms: float = 25.0
    network_visit_ms: float = 200.0
    network_visits: int = 2
    budget_s: float | None = None
    seed: int = 0


HEAVY_BYTES = 24_000_000
# By the context of a cell: at most and at least so many twins, and in between as many as hold
# these bytes of weights together.
TWINS = {"small": (4, 4, 0), "medium": (14, 6, 24_000_000), "": (28, 8, 64_000_000)}


def twins_for(network: Network) -> int:
    """How many copies of a cell run in turn, so that it is as cold as inside a network.

    A network comes back to a cell after all the others, whose weights, operators and bookkeeping
    have been through the caches: many copies of a small cell do the same, a few of a heavy one,
    and a few where the whole network is small.
    """
    weight_bytes = max(network.weight_bytes, 1)
    if weight_bytes > HEAVY_BYTES:
        return 3
    most, least, together = TWINS.get(network.context, TWINS[""])
    return max(least, min(most, math.ceil(together / weight_bytes)))


def measure(
    backend: Backend,
    options: Mapping[str, int | str],
    jobs: Sequence[Job],
    store: Store,
    settings: Settings | None = None,
    progress: Report_ | None = None,
) -> list[Measurement]:
    """Measure ``jobs`` on ``backend`` and add the records to ``store``; in order of the jobs.

    ``options`` start the backend again in the measuring processes. A job that nothing can run
    becomes a record with its failure; one that the budget left out is missing from the result.
    """
    run = _Run(backend, options, jobs, store, settings or Settings(), progress)
    store.add_signatures({job.signature: sign(job.network).text for job in jobs})
    if backend.protocol == "direct":
        records = [run.direct(job) for job in jobs]
    else:
        records = run.in_processes()
    store.add(records)
    store.cache_remove(run.kept_visits)  # the records hold the samples now
    return [record for record in records if record.protocol != "reference-1"]


class _Run:
    def __init__(
        self,
        backend: Backend,
        options: Mapping[str, int | str],
        jobs: Sequence[Job],
        store: Store,
        settings: Settings,
        progress: Report_ | None,
    ) -> None:
        self.backend, self.options, self.store = backend, options, store
        self.settings, self.progress = settings, progress
        self.jobs = {f"{job.kind}/{job.signature}": job for job in jobs}
        self.environment = dict(backend.environment())
        self.visits: dict[str, list[tuple[int, Report]]] = {key: [] for key in self.jobs}
        self.kept_visits: list[str] = []
        self.failures: dict[str, str] = {}
        self.started = time.monotonic()
        self.generation = self._generations()
        chains = NULL_CHAINS if backend.has_entry_cost else ()
        self.null = {f"null/{n}": null_network(n) for n in chains}
        self.null_visits: dict[str, list[float]] = {key: [] for key in self.null}

    def _generations(self) -> dict[str, int]:
        """How many records each job has: visits made for an older record are not taken again."""
        found: dict[str, int] = {}
        kinds: set[Kind] = {job.kind for job in self.jobs.values()}
        for kind in kinds:
            hashes = [job.signature for job in self.jobs.values() if job.kind == kind]
            known = self.store.latencies(self.backend.target, hashes, kind)
            for hash_ in hashes:
                found[f"{kind}/{hash_}"] = known[hash_].records if hash_ in known else 0
        return found

    def direct(self, job: Job) -> Measurement:
        """One visit in this process: for recordings and fakes, which have no caches to cool."""
        from hybridlat.errors import MeasurementError

        try:
            with self.backend.build(job.network, seed=1, lowered=job.lowered) as session:
                visits = (Visit(tuple(session.run_us(16))),)
            return self._record(job, visits, None, 0.0)
        except MeasurementError as error:
            return self._record(job, (), str(error), 0.0)

    # ---- visiting ------------------------------------------------------------------------------

    def in_processes(self) -> list[Measurement]:
        for process in range(self.settings.max_processes):
            wanted = [key for key in self.jobs if self._wants(key, process)]
            if not wanted or self._out_of_time():
                break
            self._process(process, wanted)
        return self._records()

    def _wants(self, key: str, process: int) -> bool:
        if key in self.failures:
            return False
        if process < self.settings.processes:
            return True
        visits = [Visit(r.samples_us, 1.0, p) for p, r in self.visits[key]]
        if not visits:
            return False
        return combine(visits).spread_share > self.settings.spread_share

    def _out_of_time(self) -> bool:
        budget = self.settings.budget_s
        return budget is not None and time.monotonic() - self.started > budget

    def _process(self, process: int, wanted: list[str]) -> None:
        """All rounds of one process; it is started again behind a job that brought it down."""
        todo = list(self._tasks(process, wanted))
        done = 0
        began = time.monotonic()
        worker: MeasuringProcess | None = None
        try:
            for task in todo:
                if self._out_of_time() and done:
                    break
                if task.key in self.failures:
                    continue
                worker = worker or MeasuringProcess(registry.place_of(self.backend), self.options)
                report = worker.ask(task)
                if report is None:
                    self.failures[task.key] = worker.last_words()
                    worker.stop()
                    worker = None
                    continue
                self._take(process, task, report)
                done += 1
                self._tell(process, done, len(todo), began, task)
        finally:
            if worker is not None:
                worker.stop()

    def _tasks(self, process: int, wanted: list[str]) -> Iterator[Task]:
        """The visits of one process that are not kept from before, in the order to make them."""
        settings = self.settings
        for round_ in range(settings.rounds):
            order = [*wanted, *self.null]
            networks = [key for key in wanted if self.jobs[key].kind == "network"]
            order += networks * (settings.network_visits - 1)
            random.Random(f"{settings.seed}/{process}/{round_}").shuffle(order)
            place: dict[str, int] = {}
            for key in order:
                place[key] = place.get(key, -1) + 1
                seed = 1 + 100 * ((process * settings.rounds + round_) * 10 + place[key])
                if key in self.null:
                    yield Task(key, self.null[key], True, 5.0, 4, seed)
                elif not self._recalled(key, process, seed):
                    yield self._task(key, seed)

    def _task(self, key: str, seed: int) -> Task:
        job, settings = self.jobs[key], self.settings
        if job.kind == "network":
            return Task(key, job.network, False, settings.network_visit_ms, 1, seed)
        twins = twins_for(job.network)
        return Task(key, job.network, job.lowered, settings.visit_ms, twins, seed)

    def _recalled(self, key: str, process: int, seed: int) -> bool:
        """Take up a visit that an earlier run, cut off since, has made."""
        place = self._visit_key(key, process, seed)
        kept = self.store.cache_get(place)
        if kept is None:
            return False
        self.kept_visits.append(place)
        samples, reference = json.loads(kept)
        self.visits[key].append((process, Report(key, tuple(samples), reference)))
        return True

    def _visit_key(self, key: str, process: int, seed: int) -> str:
        target, generation = self.backend.target, self.generation[key]
        return f"visit/{PROTOCOL}/{target}/{key}/{generation}/{process}/{seed}"

    def _take(self, process: int, task: Task, report: Report) -> None:
        if task.key in self.null:
            if report.samples_us:
                self.null_visits[task.key].append(level_us(report.samples_us))
            return
        if report.failure is not None:
            self.failures[task.key] = report.failure
            return
        if not report.samples_us:
            return
        self.visits[task.key].append((process, report))
        rounded = [round(sample, 2) for sample in report.samples_us]
        text = json.dumps([rounded, report.reference_us])
        self.kept_visits.append(self._visit_key(task.key, process, task.seed))
        self.store.cache_put(self.kept_visits[-1], text)

    def _tell(self, process: int, done: int, total: int, began: float, task: Task) -> None:
        if self.progress is None:
            return
        passed = time.monotonic() - began
        processes = max(self.settings.processes, process + 1)
        left = passed / done * (total - done + total * (processes - process - 1))
        label = task.network.name or task.key
        self.progress(Progress(process * total + done, processes * total, label, left))

    # ---- records -------------------------------------------------------------------------------

    def _records(self) -> list[Measurement]:
        references = [r.reference_us for found in self.visits.values() for _, r in found]
        if not references:
            return [self._record(j, (), self.failures[k], 0.0)
                    for k, j in self.jobs.items() if k in self.failures]  # fmt: skip
        records: list[Measurement] = []
        nominal = self._nominal(references, records)
        overhead = self._overhead(records)
        for key, job in self.jobs.items():
            if key in self.failures:
                records.append(self._record(job, (), self.failures[key], 0.0))
                continue
            visits = tuple(
                Visit(
                    tuple(round(s, 2) for s in r.samples_us), round(r.reference_us / nominal, 5), p
                )
                for p, r in self.visits[key]
            )
            if visits:
                cost = 0.0 if job.kind == "network" else overhead
                records.append(self._record(job, visits, None, cost))
        return records

    def _nominal(self, references: list[float], records: list[Measurement]) -> float:
        """What the reference takes on this target: as first recorded, so that runs agree."""
        signature = sign(reference_network())
        known = self.store.latencies(self.backend.target, [signature.hash])
        if signature.hash in known and known[signature.hash].latency_us:
            return known[signature.hash].latency_us or 1.0
        nominal = statistics.median(references)
        self.store.add_signatures({signature.hash: signature.text})
        job = Job(signature.hash, reference_network(), labels={"role": "reference"})
        record = self._record(job, (Visit((nominal,)),), None, 0.0)
        records.append(replace(record, protocol="reference-1"))
        return nominal

    def _overhead(self, records: list[Measurement]) -> float:
        """The engine's entry cost: known for the target, or fitted on this run's null chains."""
        signature = sign(null_network(1))
        known = self.store.latencies(self.backend.target, [signature.hash])
        if signature.hash in known and known[signature.hash].latency_us is not None:
            return known[signature.hash].latency_us or 0.0
        if not self.null:
            return 0.0
        levels = {n: self.null_visits[f"null/{n}"] for n in NULL_CHAINS}
        if not all(levels.values()):
            return 0.0
        cost = entry_cost_us(NULL_CHAINS, [statistics.median(levels[n]) for n in NULL_CHAINS])
        if cost <= 0.0:
            return 0.0
        self.store.add_signatures({signature.hash: signature.text})
        job = Job(signature.hash, null_network(1), labels={"role": "entry cost"})
        record = self._record(job, (Visit((cost,)),), None, 0.0)
        records.append(replace(record, protocol="reference-1"))
        return cost

    def _protocol(self, job: Job) -> str:
        """Where cells can only be timed behind their predecessor, this one was timed alone."""
        if self.backend.protocol == "twins":
            return PROTOCOL
        alone = self.backend.protocol == "differential" and job.kind == "cell"
        return "isolated" if alone else self.backend.protocol

    def _record(
        self, job: Job, visits: tuple[Visit, ...], failure: str | None, overhead_us: float
    ) -> Measurement:
        result = combine(visits, overhead_us) if failure is None else None
        return Measurement(
            target=self.backend.target,
            signature=job.signature,
            kind=job.kind,
            latency_us=result.latency_us if result else None,
            spread_share=result.spread_share if result else 0.0,
            visits=visits,
            overhead_us=overhead_us,
            protocol=self._protocol(job),
            environment=self.environment,
            measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            failure=failure,
            labels=dict(job.labels),
        )
