"""Measuring requests by the protocol of their engine, and what that adds.

Where the protocol is a plan, this writes it, runs it and imports its results. A plan lies in the
user's cache folder until the store has all of it: a call that was cut off goes on where it stopped.
Of two processes with the same plan the second waits, and takes what the first measured.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import platformdirs

from hybridlat.board import BoardError
from hybridlat.board.plan import Plan
from hybridlat.engines.base import Backend, Method
from hybridlat.errors import HybridlatError
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring import replicas
from hybridlat.measuring.plan_results import MISSING, read_results
from hybridlat.measuring.plans import Draft, Selection, draft_for
from hybridlat.measuring.process import alone
from hybridlat.measuring.schedule import Job, MeasurementConfig, pairs_of
from hybridlat.measuring.ssh import OLD_DAYS
from hybridlat.schema.measurement import Kind, Measurement
from hybridlat.schema.target import Target
from hybridlat.schema.workers import OnProgress, Progress
from hybridlat.store import Store

_LEAST_ROUNDS = 2  # one visit does not show its own spread


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
    """Measures on a backend of this machine by the protocol that suits its engine."""

    backend: Backend

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
        store.require_writable()
        backend = self.backend
        if backend.method is not Method.PLAN:
            jobs = _jobs_of(requests, backend)
            return replicas.measure(backend, jobs, store, settings, on_progress)
        requested: set[tuple[Kind, str]] = {("cell", hash_) for r in requests for hash_ in r.cells}
        requested |= {("network", sign(r.network).hash) for r in requests if r.whole}
        networks = [(request.name, request.network) for request in requests]

        def is_requested(kind: Kind, signature: str) -> bool:
            return (kind, signature) in requested

        rounds = max(settings.rounds, _LEAST_ROUNDS)
        draft = draft_for(networks, backend.target, is_requested, backend.lower, rounds)

        def run(folder: Path) -> None:
            """Measure a plan on the backend, reporting progress with the time left."""
            began = time.monotonic()

            def on_step(done: int, total: int, label: str) -> None:
                if on_progress is not None:
                    left_s = (time.monotonic() - began) / done * (total - done)
                    on_progress(Progress(done, total, label, left_s))

            backend.run_plan(folder, on_step)

        return measure_draft(draft, backend.target, store, run)


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


def import_results(folder: Path, store: Store) -> tuple[list[Measurement], int]:
    """Add the results in a plan's folder to ``store``: the records, and how many are new."""
    results = read_results(folder)
    return results.measurements, store.add_all(results).measurements


def measure_draft(
    draft: Draft, target: Target, store: Store, run: Callable[[Path], None]
) -> list[Measurement]:
    """Measure a plan on ``target``: the records, none where nothing is missing.

    ``run`` measures the plan in a folder; ``results*.jsonl`` lie in it afterwards. What was
    measured before it raised is imported too, and the next call goes on with that plan. Raises what
    ``run`` raises, and StoreError for results that make no sense.
    """
    manifest = draft.manifest()
    cache = platformdirs.user_cache_path("hybridlat", appauthor=False)
    unfinished = _unfinished(cache / "plans", target, manifest)
    if not manifest["tasks"] and unfinished is None:
        return []
    folder = unfinished or cache / "plans" / f"{target.folder}-{manifest['plan']}"
    names = ", ".join(network["network"] for network in manifest["breakdowns"])
    locks = cache / "locks"
    locks.mkdir(parents=True, exist_ok=True)  # a file of a line for each plan stays in it
    with alone(str(locks / folder.name[-16:]), f"{names} on {target}") as waits:
        if waits and not folder.exists():  # the other process measured and imported all of it
            records = manifest["records"]
            known = [store.measurements(target, r["kind"], r["signature"]) for r in records]
            theirs = [max(same, key=lambda m: m.measured_at, default=None) for same in known]
            if all(theirs):  # it may have imported into another store
                return list(filter(None, theirs))
        if unfinished is None or not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            draft.write(folder)
        try:
            run(folder)
        except HybridlatError:
            if any(folder.glob("results*.jsonl")):
                import_results(folder, store)
            raise
        records, _ = import_results(folder, store)
        shutil.rmtree(folder)
        return records


def _unfinished(plans: Path, target: Target, manifest: Mapping[str, Any]) -> Path | None:
    """A plan of these networks that was cut off, and measures all that is requested now."""
    requested = {(r["signature"], r["kind"]) for r in manifest["records"]}
    for folder in sorted(plans.glob(f"{target.folder}-{'[0-9a-f]' * 16}")):
        try:
            if time.time() - folder.stat().st_mtime > OLD_DAYS * 86400:
                shutil.rmtree(folder)
            other = Plan(str(folder)).content
        except (BoardError, OSError):  # one that was half written, or is gone by now
            continue
        is_alike = all(other[name] == manifest[name] for name in ("breakdowns", "runtime"))
        if is_alike and requested <= {(r["signature"], r["kind"]) for r in other["records"]}:
            return folder
    return None


def unknown_to(store: Store, target: Target, what: What, remeasure: bool = False) -> Selection:
    """Chooses the records of a plan: networks unless ``what`` is cells, and unknown cells."""

    def selects(kind: Kind, hash_: str) -> bool:
        if kind == "network":
            return what != "cells"
        records = () if remeasure else store.measurements(target, "cell", hash_)
        return what != "network" and all(MISSING in record.environment for record in records)

    return selects


What = Literal["cells", "network", "both"]


@dataclass(frozen=True)
class MeasureReport:
    """What measuring ``network`` on ``target`` added: ``records``, beside so many ``known`` cells.

    ``latency_us`` is that of the whole network, if measured, ``sum_of_cells_us`` that of the
    dispatch overhead and all cells; None where one has no latency. It took ``elapsed_s``.
    ``failures`` are sentences by signature, ``warnings`` of parts of the file that were not
    measured, and of a busy machine.
    """

    network: str
    target: str
    records: tuple[Measurement, ...]
    known: int
    latency_us: float | None
    sum_of_cells_us: float | None
    elapsed_s: float
    failures: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
