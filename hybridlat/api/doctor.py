"""What this machine can measure and how steadily, what is on record, and what is in the way."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from hybridlat.engines import device_sheets, registry
from hybridlat.engines.host import LoadMeter, cpu_device, cpu_environment
from hybridlat.engines.resolution import resolve
from hybridlat.errors import BackendUnavailable, HybridlatError, StoreError
from hybridlat.estimate.compose.machine import LARGE_SHARE
from hybridlat.estimate.compose.target_composition import pace_drift
from hybridlat.estimate.lookup.models import model_folders, read_target, user_models_folder
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.evaluation.tracking import tracking_uri
from hybridlat.measuring.steadiness import Steadiness, steadiness
from hybridlat.schema.plugins import shipped
from hybridlat.store import Store, packs
from hybridlat.store.place import StorePlace, without_password

CHECKUP_FORMAT = 1
NOISY_SHARE = 0.02
"""Visits that differ by more than this need many repetitions."""
_TRAIN, _TRACK = (f'pip install "hybridlat[{extra}]"' for extra in ("train", "track"))
_PACKAGES = (
    ("scikit-learn", "sklearn", "training, baselines", _TRAIN),
    ("pandas", "pandas", "importing public data", _TRAIN),
    ("pyarrow", "pyarrow", "Parquet", _TRAIN),
    ("mlflow", "mlflow", "tracking of training and judging", _TRACK),
    ("matplotlib", "matplotlib", "figures that are tracked", _TRACK),
    ("torch", "torch", "predicting for a torch.nn.Module", "pip install torch"),
)
_SYSTEM_FILES = {
    "governor": Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    "cpu_quota": Path("/sys/fs/cgroup/cpu.max"),
}


@dataclass(frozen=True, slots=True)
class EngineCheck:
    """An engine: what this machine is called under it, or why it does not measure here.

    ``measures`` is False for engines of which only the fusion rules are known here.
    """

    name: str
    measures: bool
    target: str = ""
    version: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class PackageCheck:
    """An optional package: what it is for, its version (empty: not installed), how to get it."""

    name: str
    purpose: str
    version: str
    how: str


@dataclass(frozen=True, slots=True)
class TargetRecords:
    """What the store or a shipped pack holds of a target; how the machine's pace wandered."""

    target: str
    source: str
    cells: int
    networks: int
    failures: int
    last: str
    wander_share: float | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the way: an ``error`` keeps from measuring, a ``warning`` makes it worse."""

    severity: Literal["error", "warning"]
    what: str
    fix: str


@dataclass(frozen=True)
class Checkup:
    """All of it. ``machine`` and ``places`` are facts by name."""

    version: str
    machine: Mapping[str, str]
    engines: tuple[EngineCheck, ...]
    packages: tuple[PackageCheck, ...]
    steadiness: Steadiness | None
    held: tuple[TargetRecords, ...]
    places: Mapping[str, str]
    problems: tuple[Problem, ...] = field(default=())

    @property
    def can_measure(self) -> bool:
        """Whether nothing keeps this machine from measuring."""
        return not any(problem.severity == "error" for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``doctor --json`` (format 1)."""
        return {"format": CHECKUP_FORMAT, "can_measure": self.can_measure, **asdict(self)}


def check_up(
    version: str,
    store: str | None = None,
    seconds: float = 20.0,
    tell: Callable[[str], None] | None = None,
    left: Callable[[float], None] | None = None,
) -> Checkup:
    """All that `doctor` shows; ``seconds`` 0 leaves the timing out.

    ``version`` is this package's; ``tell`` gets what is looked at, ``left`` the seconds that the
    timing still takes. What is wrong becomes a problem of the answer, never an error.
    """
    say = tell or (lambda _: None)
    problems: list[Problem] = []
    say("looking for engines")
    engines = tuple(_engines(problems))
    machine = {"device": cpu_device(), **cpu_environment(), **_conditions(problems)}
    timed = _timed(seconds, say, left, problems)
    say("looking at the store")
    with Store(store) as opened:
        held = tuple(_held(opened, problems))
        places = _places(StorePlace(opened.url), problems)
    problems += _about_models()
    packages = tuple(
        PackageCheck(name, purpose, _version(name) if importlib.util.find_spec(module) else "", how)
        for name, module, purpose, how in _PACKAGES
    )
    return Checkup(version, machine, engines, packages, timed, held, places, tuple(problems))


def _engines(problems: list[Problem]) -> Iterator[EngineCheck]:
    for name in registry.ENGINES.names():
        try:
            entry = registry.entry(name)
        except Exception as error:  # noqa: BLE001  a plug-in may raise anything
            what = f"the engine {name} that another package offers cannot be loaded: {error}"
            problems.append(Problem("warning", what, "update or remove that package"))
            continue
        if entry is None:
            continue
        if entry.backend is None:
            yield EngineCheck(name, False, why_not="only its fusion rules are known here")
            continue
        try:
            options = registry.load_backend(name).options_for(None, None)
            backend = registry.open_backend(name, options)
            version = backend.environment().get("engine", "").rpartition(" ")[2]
            target = str(backend.target)
            backend.close()
        except (HybridlatError, ImportError, OSError) as error:
            yield EngineCheck(name, True, why_not=str(error))
        else:
            yield EngineCheck(name, True, target, version)


def _conditions(problems: list[Problem]) -> dict[str, str]:
    """What decides how steadily a CPU runs, as far as the system shows it."""
    facts = {}
    load = LoadMeter().load()
    if load is not None:
        facts["load"] = f"{load.load:.1f}"
        if load.is_busy:
            what = f"the machine is busy: a load of {load.load:.1f} on {load.cores} cores"
            problems.append(Problem("warning", what, "measure when nothing else runs"))
    for name, path in _SYSTEM_FILES.items():
        try:
            facts[name] = path.read_text(encoding="utf-8").strip()
        except OSError:
            continue
    if facts.get("governor", "performance") != "performance":
        what = f"the CPU's frequency governor is {facts['governor']!r}: its clock comes and goes"
        problems.append(Problem("warning", what, "sudo cpupower frequency-set -g performance"))
    if not facts.get("cpu_quota", "max").startswith("max"):
        what = (
            f"the container may use {facts['cpu_quota']} µs of CPU time: it is halted when they "
            "are used up"
        )
        problems.append(Problem("warning", what, "give the container whole cores"))
    return facts


def _timed(
    seconds: float,
    say: Callable[[str], None],
    left: Callable[[float], None] | None,
    problems: list[Problem],
) -> Steadiness | None:
    """How steadily the default engine runs; None without one, or where it is not to be timed."""
    try:
        engine = resolve(None)
    except BackendUnavailable as error:
        what = f"the default engine does not start: {error}"
        problems.append(Problem("error", what, "install onnxruntime"))
        return None
    if engine.backend is None:
        return None
    try:
        if seconds <= 0:
            return None
        say(f"timing the reference network for {seconds:.0f} s")
        timed = steadiness(engine.backend, engine.options, seconds, left)
    except HybridlatError as error:
        problems.append(Problem("error", str(error), "see the reason, and run doctor again"))
        return None
    finally:
        engine.backend.close()
    if timed.noise_share > NOISY_SHARE:
        what = (
            f"visits differ by {100 * timed.noise_share:.1f} % from one to the next: measurements "
            "need many repetitions"
        )
        problems.append(Problem("warning", what, "close what else runs"))
    if timed.wander_share > LARGE_SHARE:
        what = (
            f"the machine's pace wandered by {100 * timed.wander_share:.1f} % within "
            f"{timed.seconds:.0f} s: no interval can be narrower than that"
        )
        problems.append(Problem("warning", what, "use a machine of its own, with a fixed clock"))
    return timed


def _held(store: Store, problems: list[Problem]) -> Iterator[TargetRecords]:
    try:
        for stats in store.stats():
            drift = pace_drift(TargetData(stats.target, store))
            yield TargetRecords(
                str(stats.target), "store", stats.cells, stats.networks, stats.failures,
                stats.last, drift.share if drift.processes else None,
            )  # fmt: skip
    except StoreError as error:
        what = f"the store cannot be read: {error}"
        problems.append(Problem("error", what, "run `hybridlat store check`, or give --store"))
    for pack in packs.shipped_packs():
        counts = pack.counts()
        yield TargetRecords(
            str(pack.target), "pack", counts["cell"], counts["network"],
            int(pack.info.get("failures", 0)), str(pack.info.get("last", "")),
        )  # fmt: skip


def _places(store: StorePlace, problems: list[Problem]) -> dict[str, str]:
    size = ""
    if store.file is not None:
        there = store.file.is_file()
        size = f" ({store.file.stat().st_size / 1e6:.1f} MB)" if there else " (not made yet)"
        folder = next(parent for parent in store.file.parents if parent.exists())
        if not os.access(folder, os.W_OK):
            what = f"the store's folder {folder} cannot be written to"
            problems.append(Problem("error", what, "give --store, or set HYBRIDLAT_STORE"))
    return {
        "store": store.address + size,
        "cache": "in the store",
        "models": str(user_models_folder()),
        "shipped models": str(shipped("models")),
        "shipped packs": str(shipped("data", "packs")),
        "own data sheets": str(device_sheets.user_folder()),
        "tracking": without_password(tracking_uri(store.url)),
    }


def _about_models() -> Iterator[Problem]:
    """Data sheets and models that predictions would pass over."""
    for name in device_sheets.names():
        try:
            device_sheets.load(name)
        except HybridlatError as error:
            fix = f"correct it, or remove it from {device_sheets.user_folder()}"
            yield Problem("warning", str(error), fix)
    for folder in model_folders(None):
        try:
            if (folder / "card.json").is_file():
                read_target(folder)
        except HybridlatError as error:
            yield Problem("warning", str(error), "train the target again")
    if all(_version(name) != "?" for name in ("xgboost", "xgboost-cpu")):
        what = "the packages xgboost and xgboost-cpu are both installed, under one module's name"
        fix = "pip uninstall xgboost xgboost-cpu, then install one of them"
        yield Problem("warning", what, fix)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "?"
