"""Visits kept in the store's cache until their record is written: a cut-off run goes on there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from hybridlat.measuring.messages import VisitResult, VisitTask
from hybridlat.measuring.schedule import Job
from hybridlat.schema.machine_load import MachineLoad
from hybridlat.schema.measurement import Kind
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.store import Store


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
