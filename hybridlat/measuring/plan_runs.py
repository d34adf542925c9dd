"""Measure networks by a plan: write it, run it here or on a board, import its results.

A plan lies in the user's cache folder until the store has all of it, so that a call that was cut
off goes on where it stopped. Of two processes with the same plan at the same time the second waits,
and takes what the first measured.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from hybridlat.board import BoardError
from hybridlat.board.plan import Plan
from hybridlat.errors import HybridlatError
from hybridlat.measuring.plan_results import MISSING, read_results
from hybridlat.measuring.plans import Draft, Selection
from hybridlat.measuring.process import alone
from hybridlat.measuring.report import What
from hybridlat.measuring.ssh import OLD_DAYS
from hybridlat.schema.measurement import Kind, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store

RunPlan = Callable[[Path], None]
"""Measures the plan in a folder: ``results*.jsonl`` lie in it afterwards."""


def import_results(folder: Path, store: Store) -> tuple[list[Measurement], int]:
    """Add the results in a plan's folder to ``store``: the records, and how many are new."""
    results = read_results(folder)
    return results.measurements, store.add_all(results).measurements


def measure_draft(draft: Draft, target: Target, store: Store, run: RunPlan) -> list[Measurement]:
    """Measure a plan on ``target`` by ``run``: the records, none where nothing is missing.

    What was measured before ``run`` raised is imported too, and the next call goes on with that
    plan. Raises what ``run`` raises, and StoreError for results that make no sense.
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
