"""Measure networks by a plan: write it, run it here or far away, import its results.

A plan lies in the user's cache folder while it runs, named by what it asks for, so that a call
that was cut off goes on where it stopped; it is gone once the store has all of it. Of two processes
with the same plan at the same time the second waits, and measures only what the first left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hybridlat.errors import HybridlatError, MeasurementError
from hybridlat.measuring.plans.build import Draft, PlanRequest, RecordKey, draft_for
from hybridlat.measuring.plans.results import read_breakdowns, read_results
from hybridlat.schema.measurement import Kind, Measurement
from hybridlat.schema.progress import OnProgress, Progress
from hybridlat.schema.target import Target
from hybridlat.store import Store

RunPlan = Callable[[Path], None]
"""Measures the plan in a folder: ``results*.jsonl`` lie in it afterwards."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlanImport:
    """The records of a plan, how many of them are new in the store, and their targets."""

    records: tuple[Measurement, ...] = ()
    new: int = 0

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets that the records are of, sorted."""
        return tuple(sorted({record.target for record in self.records}, key=str))


def import_results(folder: Path, store: Store, board_id: str | None = None) -> PlanImport:
    """Check the results in a plan's folder and add them to ``store``; StoreError, see plan."""
    signatures, measurements = read_results(folder, board_id=board_id)
    store.add_signatures(signatures)
    new = store.add(measurements)
    store.add_breakdowns(read_breakdowns(folder))
    return PlanImport(tuple(measurements), new)


def measure_networks(request: PlanRequest, store: Store, run: RunPlan) -> PlanImport:
    """Measure what is requested, by ``run``.

    What was measured before ``run`` raised is imported too. Nothing that is wanted gives an
    empty result. Raises what ``run`` raises, and StoreError for results that make no sense.
    """
    draft = draft_for(request)
    if not draft.has_tasks:
        return PlanImport()
    folder = plans_folder() / f"{request.target.folder}-{draft.manifest()['plan']}"
    before = _counts(store, request.target, draft.record_keys)
    with exclusive(
        folder.with_name(f"{folder.name}.lock"), lambda: _say_waiting(request)
    ) as waited:
        if waited:
            after = _counts(store, request.target, draft.record_keys)
            done = frozenset(key for key in draft.record_keys if after[key] > before[key])
        else:
            done = frozenset()
        if not done:
            return _measure(draft, folder, store, run)
    _log.info("%d of %d were measured by the other process", len(done), len(before))
    rest = replace(
        request, wanted=lambda kind, h: (kind, h) not in done and request.wanted(kind, h)
    )
    theirs = [_newest(store, request.target, kind, hash_) for kind, hash_ in sorted(done)]
    own = measure_networks(rest, store, run)
    return PlanImport((*theirs, *own.records), own.new)


def _measure(draft: Draft, folder: Path, store: Store, run: RunPlan) -> PlanImport:
    draft.write(folder)
    try:
        run(folder)
    except HybridlatError:
        if any(folder.glob("results*.jsonl")):
            import_results(folder, store)
        raise
    imported = import_results(folder, store)
    shutil.rmtree(folder)
    return imported


def _counts(store: Store, target: Target, record_keys: Sequence[RecordKey]) -> dict[RecordKey, int]:
    """How many good records the store has of each."""
    counts: dict[RecordKey, int] = dict.fromkeys(record_keys, 0)
    for kind in {kind for kind, _ in record_keys}:
        known = store.latencies(target, [hash_ for k, hash_ in record_keys if k == kind], kind)
        counts.update({(kind, hash_): latency.records for hash_, latency in known.items()})
    return counts


def _newest(store: Store, target: Target, kind: Kind, hash_: str) -> Measurement:
    records: Iterable[Measurement] = store.measurements(target, kind, hash_)
    return max((r for r in records if r.failure is None), key=lambda r: r.measured_at)


def _say_waiting(request: PlanRequest) -> None:
    names = ", ".join(name for name, _ in request.networks)
    _log.warning("another process measures %s on %s: waiting for it", names, request.target)


def plans_folder() -> Path:
    """Where plans lie while they are measured."""
    import platformdirs

    folder = platformdirs.user_cache_path("hybridlat", appauthor=False) / "plans"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_here(
    run_plan: Callable[[Path, Callable[[int, int, str], None]], None],
    on_progress: OnProgress | None,
) -> RunPlan:
    """``run_plan`` of a backend as a RunPlan that reports progress with the time left."""

    def run(folder: Path) -> None:
        began = time.monotonic()

        def on_step(done: int, total: int, label: str) -> None:
            if on_progress is not None:
                left_s = (time.monotonic() - began) / done * (total - done)
                on_progress(Progress(done, total, label, left_s))

        run_plan(folder, on_step)
        if not any(folder.glob("results*.jsonl")):
            raise MeasurementError(f"nothing came of the plan in {folder}")

    return run


@contextlib.contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[bool]:
    """Hold the lock file ``path``; yields whether another held it first, and was waited for.

    ``on_wait`` is called once before waiting. The system gives the lock back when its holder dies,
    and the file is removed when it is free.
    """
    waited = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waited:
                    on_wait()
                waited = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_still(path, descriptor):
                continue  # its holder removed it in the meantime: this lock excludes no other
            try:
                yield waited
            finally:
                path.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
