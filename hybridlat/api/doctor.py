"""What this machine can measure and how steadily, what is on record, and what is in the way."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hybridlat.engines import device_sheets, registry
from hybridlat.engines.host import LoadMeter, cpu_device, cpu_environment
from hybridlat.engines.registry import resolve
from hybridlat.errors import BackendUnavailable, HybridlatError, StoreError
from hybridlat.estimate.compose.machine import LARGE_SHARE
from hybridlat.estimate.compose.target_composition import pace_drift
from hybridlat.estimate.lookup.models import user_models_folder
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.evaluation.tracking import tracking_uri
from hybridlat.measuring.machine import Steadiness, steadiness
from hybridlat.schema.plugins import shipped
from hybridlat.schema.progress import OnMessage
from hybridlat.store import Store, packs
from hybridlat.store.place import StorePlace, without_password

CHECKUP_FORMAT = 1
NOISY_SHARE = 0.02
"""Visits that differ by more than this need many repetitions."""
_TRAIN, _TRACK = (f'pip install "hybridlat[{extra}]"' for extra in ("train", "track"))
_PACKAGES = (
    ("scikit-learn", "training, baselines", _TRAIN),
    ("pandas", "importing public data", _TRAIN),
    ("pyarrow", "Parquet", _TRAIN),
    ("mlflow", "tracking of training and judging", _TRACK),
    ("torch", "predicting for a torch.nn.Module", "pip install torch"),
)
_SYSTEM_FILES = {
    "governor": Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    "cpu_quota": Path("/sys/fs/cgroup/cpu.max"),
}


Facts = dict[str, Any]
"""A JSON object of the checkup: docs/reference/output.md names its fields."""


class _Problems(list[Facts]):
    """What is in the way: an ``error`` keeps from measuring, a ``warning`` makes it worse."""

    def warn(self, what: str, fix: str, severity: str = "warning") -> None:
        self.append({"severity": severity, "what": what, "fix": fix})

    def fail(self, what: str, fix: str) -> None:
        self.warn(what, fix, "error")


def check_up(
    version: str, store: str | None, seconds: float, say: OnMessage, left: Callable[[float], None]
) -> Facts:
    """The JSON object of ``doctor --json`` (format 1); ``seconds`` 0 leaves the timing out.

    ``version`` is this package's; ``say`` gets what is looked at, ``left`` the seconds that the
    timing still takes. What is wrong becomes a problem of the answer, never an error.
    """
    problems = _Problems()
    say("looking for engines")
    engines = list(_engines(problems))
    machine = {"device": cpu_device(), **cpu_environment(), **_conditions(problems)}
    timed = _timed(seconds, say, left, problems)
    say("looking at the store")
    with Store(store) as opened:
        held = list(_held(opened, problems))
        places = _places(opened.place, problems)
    if _version("xgboost") and _version("xgboost-cpu"):
        what = "the packages xgboost and xgboost-cpu are both installed, under one module's name"
        problems.warn(what, "pip uninstall xgboost xgboost-cpu, then install one of them")
    return {
        "format": CHECKUP_FORMAT,
        "can_measure": all(problem["severity"] != "error" for problem in problems),
        "version": version,
        "machine": machine,
        "engines": engines,
        "packages": [
            {"name": name, "purpose": why, "version": _version(name), "how": how}
            for name, why, how in _PACKAGES
        ],
        "steadiness": None if timed is None else asdict(timed),
        "held": held,
        "places": places,
        "problems": problems,
    }


def _engines(problems: _Problems) -> Iterator[Facts]:
    """What this machine is called under each engine, or why it does not measure here.

    ``measures`` is False for engines of which only the fusion rules are known here.
    """
    for name in registry.ENGINES.names():
        found = {"name": name, "measures": True, "target": "", "version": "", "why_not": ""}
        try:
            entry = registry.entry(name)
        except Exception as error:  # noqa: BLE001  a plug-in may raise anything
            what = f"the engine {name} that another package offers cannot be loaded: {error}"
            problems.warn(what, "update or remove that package")
            continue
        if entry.backend is None:
            yield {**found, "measures": False, "why_not": "only its fusion rules are known here"}
            continue
        try:
            options = registry.load_backend(name).options_for(None, None)
            backend = registry.open_backend(name, options)
            found["version"] = backend.environment().get("engine", "").rpartition(" ")[2]
            found["target"] = str(backend.target)
            backend.close()
        except (HybridlatError, ImportError, OSError) as error:
            found["why_not"] = str(error)
        yield found


def _conditions(problems: _Problems) -> dict[str, str]:
    """What decides how steadily a CPU runs, as far as the system shows it."""
    facts = {}
    load = LoadMeter().load()
    if load is not None:
        facts["load"] = f"{load.load:.1f}"
        if load.is_busy:
            what = f"the machine is busy: a load of {load.load:.1f} on {load.cores} cores"
            problems.warn(what, "measure when nothing else runs")
    for name, path in _SYSTEM_FILES.items():
        if path.is_file():
            facts[name] = path.read_text(encoding="utf-8").strip()
    if facts.get("governor", "performance") != "performance":
        what = f"the CPU's frequency governor is {facts['governor']!r}: its clock comes and goes"
        problems.warn(what, "sudo cpupower frequency-set -g performance")
    if not facts.get("cpu_quota", "max").startswith("max"):
        what = f"the container is halted when {facts['cpu_quota']} µs of CPU time are used up"
        problems.warn(what, "give the container whole cores")
    return facts


def _timed(
    seconds: float, say: OnMessage, left: Callable[[float], None], problems: _Problems
) -> Steadiness | None:
    """How steadily the default engine runs; None without one, or where it is not to be timed."""
    try:
        engine = resolve(None)
    except BackendUnavailable as error:
        problems.fail(f"the default engine does not start: {error}", "install onnxruntime")
        return None
    if engine.backend is None:
        return None
    with closing(engine.backend):
        if seconds <= 0:
            return None
        say(f"timing the reference network for {seconds:.0f} s")
        try:
            timed = steadiness(engine.backend, engine.options, seconds, left)
        except HybridlatError as error:
            problems.fail(str(error), "see the reason, and run doctor again")
            return None
    if timed.noise_share > NOISY_SHARE:
        what = f"visits differ by {100 * timed.noise_share:.1f} % from one to the next"
        problems.warn(what, "close what else runs: it makes measurements take longer")
    if timed.wander_share > LARGE_SHARE:
        what = (
            f"the machine's pace wandered by {100 * timed.wander_share:.1f} % within "
            f"{timed.seconds:.0f} s: no interval can be narrower than that"
        )
        problems.warn(what, "use a machine of its own, with a fixed clock")
    return timed


def _held(store: Store, problems: _Problems) -> Iterator[Facts]:
    """What the store and shipped packs hold of each target; how the machine's pace wandered."""
    try:
        for stats in store.stats():
            drift = pace_drift(TargetData(stats.target, store))
            yield {
                "target": str(stats.target), "source": "store", "cells": stats.cells,
                "networks": stats.networks, "failures": stats.failures, "last": stats.last,
                "wander_share": drift.share if drift.processes else None,
            }  # fmt: skip
    except StoreError as error:
        what = f"the store cannot be read: {error}"
        problems.fail(what, "run `hybridlat store check`, or give --store")
    for pack in packs.shipped_packs():
        counts, info = pack.counts(), pack.info
        yield {
            "target": str(pack.target), "source": "pack", "cells": counts["cell"],
            "networks": counts["network"], "failures": info.get("failures", 0),
            "last": info.get("last", ""), "wander_share": None,
        }  # fmt: skip


def _places(store: StorePlace, problems: _Problems) -> dict[str, str]:
    size = ""
    if store.file is not None:
        there = store.file.is_file()
        size = f" ({store.file.stat().st_size / 1e6:.1f} MB)" if there else " (not made yet)"
        folder = next(parent for parent in store.file.parents if parent.exists())
        if not os.access(folder, os.W_OK):
            what = f"the store's folder {folder} cannot be written to"
            problems.fail(what, "give --store, or set HYBRIDLAT_STORE")
    return {
        "store": store.address + size,
        "cache": "in the store",
        "models": str(user_models_folder()),
        "shipped models": str(shipped("models")),
        "shipped packs": str(shipped("data", "packs")),
        "own data sheets": str(device_sheets.user_folder()),
        "tracking": without_password(tracking_uri(store.url)),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
