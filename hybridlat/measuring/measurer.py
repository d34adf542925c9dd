"""Measuring requests by the protocol of their engine, on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hybridlat.engines.base import Backend, Method
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring import replicas
from hybridlat.measuring.plan_runs import measure_draft
from hybridlat.measuring.plans import Draft, draft_for
from hybridlat.measuring.schedule import Job, MeasurementConfig, pairs_of
from hybridlat.schema.measurement import Kind, Measurement
from hybridlat.schema.progress import OnProgress, Progress
from hybridlat.store import Store

LEAST_ROUNDS = 2
"""One visit does not show its own spread."""


@dataclass(frozen=True)
class MeasureRequest:
    """What to measure of one network of a file: cells by signature hash, and the ``whole``.

    ``cells`` are as the engine runs them. ``labels`` go into the records, by default the name.
    """

    name: str
    network: Network
    cells: Mapping[str, Network] = field(default_factory=dict)
    whole: bool = False
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Measurer:
    """Measures on a backend of this machine by the protocol that suits its engine.

    ``options`` start the backend anew in another process.
    """

    backend: Backend
    options: Mapping[str, int | str]

    @property
    def needs_network(self) -> bool:
        """Whether a cell can only be measured inside a network of a file."""
        return self.backend.method is not Method.REPLICAS

    def measure(
        self,
        requests: Sequence[MeasureRequest],
        store: Store,
        settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:
        """Measure what is requested; records, failures too, are in ``store`` and returned."""
        backend = self.backend
        if backend.method is Method.PLAN:
            draft = _draft_of(requests, backend, max(settings.rounds, LEAST_ROUNDS))
            run = partial(_run_here, backend, on_progress)
            return measure_draft(draft, backend.target, store, run)
        jobs = _jobs_of(requests, backend)
        return replicas.measure(backend, self.options, jobs, store, settings, on_progress)


def _run_here(backend: Backend, on_progress: OnProgress | None, folder: Path) -> None:
    """Measure a plan on the backend, reporting progress with the time left."""
    began = time.monotonic()

    def on_step(done: int, total: int, label: str) -> None:
        if on_progress is not None:
            left_s = (time.monotonic() - began) / done * (total - done)
            on_progress(Progress(done, total, label, left_s))

    backend.run_plan(folder, on_step)


def _jobs_of(requests: Sequence[MeasureRequest], backend: Backend) -> list[Job]:
    """Each cell and network once, with the labels of the first request that names it."""
    jobs: dict[str, Job] = {}
    for request in requests:
        name, network = request.name, request.network
        labels = {"network": name} if request.labels is None else request.labels
        if backend.method is Method.REPLICAS:
            of_request = [Job(sign(cell), cell, "cell", labels) for cell in request.cells.values()]
        else:
            pairs = pairs_of(name, network, backend.lower(network)) if request.cells else []
            of_request = [job for job in pairs if job.signature.hash in request.cells]
        if request.whole:
            of_request.append(Job(sign(network), network, "network", labels))
        for job in of_request:
            jobs.setdefault(job.key, job)
    return list(jobs.values())


def _draft_of(requests: Sequence[MeasureRequest], backend: Backend, rounds: int) -> Draft:
    requested: set[tuple[Kind, str]] = {("cell", hash_) for r in requests for hash_ in r.cells}
    requested |= {("network", sign(r.network).hash) for r in requests if r.whole}
    networks = [(request.name, request.network) for request in requests]

    def selects(kind: Kind, hash_: str) -> bool:
        return (kind, hash_) in requested

    return draft_for(networks, backend.target, selects, backend.lower, rounds)
