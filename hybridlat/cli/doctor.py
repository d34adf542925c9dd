"""``hybridlat doctor``: what this machine can measure, how steadily, and what is in the way."""

import importlib.metadata
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hybridlat import __version__
from hybridlat.cli.options import command, time_limit
from hybridlat.cli.output import UNTRUSTED, Run
from hybridlat.cli.param_types import SECONDS
from hybridlat.engines import registry
from hybridlat.engines.host import LoadMeter, cpu, cpu_environment
from hybridlat.errors import BackendUnavailable, HybridlatError, StoreError
from hybridlat.estimate.compose.target_composition import LARGE_SHARE, pace_drift
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.measuring.machine import Steadiness, steadiness
from hybridlat.report.table import Cell, Column, Table, titled
from hybridlat.report.units import NOTHING, latency_text, percent_text, plus_minus_text
from hybridlat.schema.files import is_writable
from hybridlat.schema.workers import OnMessage
from hybridlat.store import Store
from hybridlat.store.place import StorePlace

CHECKUP_FORMAT = 1
_NOISY_SHARE = 0.02  # visits that differ by more than this need many repetitions
_SYSTEM_FILES = {
    "governor": Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    "cpu_quota": Path("/sys/fs/cgroup/cpu.max"),
}

Facts = dict[str, Any]
"""A JSON object of the checkup: docs/reference/output.md names its fields."""


class _Problems(list[Facts]):
    """What is in the way: an ``error`` keeps from measuring, a ``warning`` makes it worse."""

    def add(self, what: str, fix: str, severity: str = "warning") -> None:
        self.append({"severity": severity, "what": what, "fix": fix})


_STATS = ("cells", "networks", "failures", "last")  # of a target, as the store counts them
_TIMING = "How long to time the machine; 0 leaves that out."


@command(time_limit(_TIMING, type=SECONDS, default="20s", show_default=True), "store json")
def doctor(run: Run) -> int:
    """Say what this machine can measure, how steadily, what is held where, and what is wrong.

    \b
    hybridlat doctor
    hybridlat doctor --time-limit 0 --json

    Exit codes: 0 it can measure, 3 something keeps it from measuring.
    """
    say, problems = run.on_message, _Problems()
    checkup: Facts = {"format": CHECKUP_FORMAT, "can_measure": False, "version": __version__}
    say("looking for engines")
    engines = list(_engines(problems))
    checkup["machine"] = {"device": cpu().name, **cpu_environment(), **_conditions(problems)}
    timed = _timed(run.time_limit, say, problems)
    checkup |= {"engines": engines, "steadiness": None if timed is None else asdict(timed)}
    say("looking at the store")
    with Store(run.store) as opened:
        held = list(_held(opened, problems))
        checkup |= {"store": _place(opened.place, problems), "held": held, "problems": problems}
    if {"xgboost", "xgboost-cpu"} <= {d.name for d in importlib.metadata.distributions()}:
        what = "the packages xgboost and xgboost-cpu are both installed, under one module's name"
        problems.add(what, "pip uninstall xgboost xgboost-cpu, then install one of them")
    checkup["can_measure"] = all(problem["severity"] != "error" for problem in problems)
    run.show(checkup, _shown(checkup))
    return 0 if checkup["can_measure"] else UNTRUSTED


def _engines(problems: _Problems) -> Iterator[Facts]:
    """What this machine is called under each engine, or why it does not measure here."""
    for name in registry.ENGINES.names():
        facts = {"name": name, "measures": True, "target": "", "version": "", "why_not": ""}
        try:
            entry = registry.entry(name)
        except HybridlatError as error:
            problems.add(f"the engine {error}", "all others work without it")
            continue
        if entry.backend is None:
            yield {**facts, "measures": False, "why_not": "only its fusion rules are known here"}
            continue
        try:
            usual = registry.load_backend(name).options_for(None, None)
            with closing(registry.open_backend(name, usual)) as backend:
                facts["version"] = backend.environment().get("engine", "").rpartition(" ")[2]
                facts["target"] = str(backend.target)
        except (HybridlatError, ImportError, OSError) as error:
            facts["why_not"] = str(error)
        yield facts


def _conditions(problems: _Problems) -> dict[str, str]:
    """The machine's load, governor and quota, as far as they can be read."""
    load = LoadMeter().load()
    facts = {} if load is None else {"load": f"{load.load:.1f}"}
    if load is not None and load.is_busy:
        what = f"the machine is busy: a load of {load.load:.1f} on {load.cores} cores"
        problems.add(what, "measure when nothing else runs")
    for name, path in _SYSTEM_FILES.items():
        if path.is_file():
            facts[name] = path.read_text(encoding="utf-8").strip()
    if facts.get("governor", "performance") != "performance":
        what = f"the CPU's frequency governor is {facts['governor']!r}: its clock comes and goes"
        problems.add(what, "sudo cpupower frequency-set -g performance")
    if not facts.get("cpu_quota", "max").startswith("max"):
        what = f"the container is halted when {facts['cpu_quota']} µs of CPU time are used up"
        problems.add(what, "give the container whole cores")
    return facts


def _timed(seconds: float, say: OnMessage, problems: _Problems) -> Steadiness | None:
    """How steadily the default engine runs; None without one, or where it is not to be timed."""
    try:
        backend = registry.resolve(None).backend
    except BackendUnavailable as error:
        problems.add(f"the default engine does not start: {error}", "install onnxruntime", "error")
        return None
    if backend is None:
        return None
    with closing(backend):
        if seconds <= 0:
            return None
        say(f"timing the reference network for {seconds:.0f} s")
        try:
            timed = steadiness(backend, seconds)
        except HybridlatError as error:
            problems.add(str(error), "see the reason, and run doctor again", "error")
            return None
    if timed.noise_share > _NOISY_SHARE:
        what = f"visits differ by {100 * timed.noise_share:.1f} % from one to the next"
        problems.add(what, "close what else runs: it makes measurements take longer")
    if timed.wander_share > LARGE_SHARE:
        what = f"the machine's pace wandered by {100 * timed.wander_share:.1f} % within "
        what += f"{timed.seconds:.0f} s: no interval can be narrower than that"
        problems.add(what, "use a machine of its own, with a fixed clock")
    return timed


def _held(store: Store, problems: _Problems) -> Iterator[Facts]:
    """What the store holds of each target, and how far the pace of its machine wanders."""
    try:
        for stats in store.stats():
            drift = pace_drift(TargetData(stats.target, store))
            wander = drift.share if drift.processes else None
            facts = {name: getattr(stats, name) for name in _STATS}
            yield {"target": str(stats.target), **facts, "wander_share": wander}
    except StoreError as error:
        fix = "run `hybridlat store check`, or give --store"
        problems.add(f"the store cannot be read: {error}", fix, "error")


def _place(store: StorePlace, problems: _Problems) -> str:
    """Where the store is, and how large its file."""
    if store.file is None:
        return store.address
    if not is_writable(store.file.parent):
        what = f"the store's folder {store.file.parent} cannot be written to"
        problems.add(what, "give --store, or set HYBRIDLAT_STORE", "error")
    if not store.file.is_file():
        return f"{store.address} (not made yet)"
    return f"{store.address} ({store.file.stat().st_size / 1e6:.1f} MB)"


def _shown(checkup: Facts) -> Iterator[object]:
    """The tables and lines that people read in place of the JSON."""
    from rich.text import Text

    machine = {**checkup["machine"], "store": checkup["store"]}
    facts = [[f"  {name.replace('_', ' ')}", value] for name, value in machine.items()]
    engines, held = [], []
    for one in checkup["engines"]:
        here = Cell(one["target"], "measured") if one["target"] else Cell(one["why_not"], "hint")
        engines.append([one["name"], one["version"] or NOTHING, here])
    for one in checkup["held"]:
        wander, day = plus_minus_text(one["wander_share"]), one["last"][:10]
        counts = [f"{one['cells']:,}", f"{one['networks']:,}"]
        held.append([one["target"], *counts, wander, day or NOTHING])
    for table in (
        Table([Column(style="dim"), Column(wraps=True)], facts, f"hybridlat {__version__} on"),
        Table(titled("engine", "version", "measures here as", wraps=True), engines),
        Table(titled("held of", "cells", "networks", "wanders", "last", wraps=True), held),
    ):
        if table.rows:
            yield table
            yield ""
    if (timed := checkup["steadiness"]) is not None:
        noise, pace = plus_minus_text(timed["noise_share"]), plus_minus_text(timed["wander_share"])
        took, slower = latency_text(timed["latency_us"]), percent_text(timed["slowest_share"])
        yield Text(
            f"The reference network took {took} in {timed['visits']} visits over "
            f"{timed['seconds']:.0f} s: noise {noise} from one to the next, pace {pace}, at worst "
            f"{slower} slower.\n"
        )
    for problem in checkup["problems"]:
        style = "bold red" if problem["severity"] == "error" else "yellow"
        yield Text(f"{problem['severity']}: {problem['what']} – {problem['fix']}", style)
    words, style = "This machine can measure.", "green"
    if not checkup["can_measure"]:
        words, style = "This machine cannot measure as it is.", "bold red"
    elif checkup["problems"]:
        words, style = f"{words[:-1]}, but less surely while the warnings last.", "yellow"
    yield Text(words, style)
