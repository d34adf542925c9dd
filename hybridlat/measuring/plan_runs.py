"""Measure networks by a plan: write it, run it here or on a board, import its results.

A plan lies in the user's cache folder while it runs, named by what it asks for, so that a call
that was cut off goes on where it stopped; it is gone once the store has all of it. Of two processes
with the same plan at the same time the second waits, and takes what the first measured.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import platformdirs

from hybridlat.engines import registry
from hybridlat.errors import HybridlatError, InputError, MeasurementError
from hybridlat.graph.cells import cut
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.plan_results import read_breakdowns, read_results
from hybridlat.measuring.plans import PlanRequest, Wanted, draft_for
from hybridlat.measuring.report import MeasureReport, What, report_of, sum_of_cells_us
from hybridlat.measuring.ssh import LIMIT_S, check_target, run_on
from hybridlat.schema.measurement import Kind, Measurement
from hybridlat.schema.progress import OnMessage, OnProgress, Progress, silent
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
    manifest = draft.manifest()
    plans = platformdirs.user_cache_path("hybridlat", appauthor=False) / "plans"
    folder = plans / f"{request.target.folder}-{manifest['plan']}"
    folder.mkdir(parents=True, exist_ok=True)
    names = ", ".join(name for name, _ in request.networks)
    waiting = f"another process measures {names} on {request.target}: waiting for it"
    lock = folder.with_name(f"{folder.name}.lock")
    with exclusive(lock, lambda: _log.warning(waiting)) as waited:
        if waited and not folder.exists():  # the other process measured and imported all of it
            theirs = [_newest(store, request.target, record) for record in manifest["records"]]
            if all(theirs):  # it may have imported into another store
                return PlanImport(tuple(filter(None, theirs)))
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


def _newest(store: Store, target: Target, record: Mapping[str, str]) -> Measurement | None:
    known = store.measurements(target, cast("Kind", record["kind"]), record["signature"])
    return max(known, key=lambda measured: measured.measured_at, default=None)


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
    """Hold the lock file ``path``; yields whether another holder was waited for.

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


@dataclass(frozen=True)
class Host:
    """A board: ``name`` as ssh takes it, what runs there, and the time it may take."""

    name: str
    runner: str = "auto"
    timeout_s: float = LIMIT_S


def measure_on_host(
    networks: Sequence[tuple[str, Network]],
    target: Target | None,
    store: Store,
    host: Host,
    *,
    what: What = "both",
    remeasure: bool = False,
    on_message: OnMessage = silent,
) -> list[MeasureReport]:
    """Measure (name, network) pairs on a board, all in one plan; a report on each, in order.

    Cells that the store knows are not measured again unless ``remeasure``. ``target`` may leave the
    engine's version to the board. Raises InputError for a host or target that cannot be, and what
    ``ssh.Board.measure`` does; what was measured until then stays in the store.
    """
    if target is None:
        raise InputError(
            f"--host {host.name} needs --target: device/runtime/precision, such as "
            "orin/tensorrt/fp16"
        )
    check_target(target)
    began = time.perf_counter()
    run = run_on(host.name, host.runner, host.timeout_s, on_message)
    request = PlanRequest(networks, target, unknown_to(store, target, what, remeasure))
    imported = measure_networks(request, store, run)
    there = imported.targets[0] if imported.targets else target
    measured = {record.signature for record in imported.records}
    reports = []
    for name, network in networks:
        cuts = cut(registry.lower(network, target), network)
        cells = Counter(sign(cell.network).hash for cell in cuts)
        reports.append(report_of(
            name, there, [r for r in imported.records if r.labels.get("network") == name],
            known=len(cells.keys() - measured) if what != "network" else 0,
            sum_of_cells_us=sum_of_cells_us(store, there, list(cells.items())),
            elapsed_s=time.perf_counter() - began, warnings=registry.about(network),
        ))  # fmt: skip
    return reports


def unknown_to(store: Store, target: Target, what: What, remeasure: bool = False) -> Wanted:
    """Chooses the records of a plan: networks unless only cells are wanted, and unknown cells."""

    def wanted(kind: Kind, hash_: str) -> bool:
        if kind == "network":
            return what != "cells"
        return what != "network" and (remeasure or not store.latencies(target, [hash_]))

    return wanted
