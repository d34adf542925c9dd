"""What this machine can measure and how steadily, what is held, and what is in the way."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hybridlat.engines import device_sheets, registry
from hybridlat.engines.host import cpu_device, cpu_environment
from hybridlat.engines.resolution import resolve
from hybridlat.errors import BackendUnavailable, HybridlatError, StoreError
from hybridlat.estimate.compose.own_records import newest_wandering
from hybridlat.estimate.compose.pace_drift import LARGE_SHARE
from hybridlat.estimate.lookup.models import model_folders, read_target, user_models_folder
from hybridlat.evaluation.tracking import tracking_uri
from hybridlat.measuring.steadiness import steadiness
from hybridlat.schema.checkup import (
    Checkup,
    EngineCheck,
    HeldTarget,
    PackageCheck,
    Problem,
    Steadiness,
)
from hybridlat.schema.resources import shipped
from hybridlat.store import Store, packs
from hybridlat.store.place import without_password

if TYPE_CHECKING:
    from hybridlat.engines.base import Backend

NOISY_SHARE = 0.02
"""Visits that differ by more than this need many repetitions."""
_PACKAGES = (
    ("scikit-learn", "sklearn", "training, baselines", 'pip install "hybridlat[train]"'),
    ("pandas", "pandas", "importing public data", 'pip install "hybridlat[train]"'),
    ("pyarrow", "pyarrow", "Parquet", 'pip install "hybridlat[train]"'),
    ("mlflow", "mlflow", "tracking of training and judging", 'pip install "hybridlat[track]"'),
    ("matplotlib", "matplotlib", "figures that are tracked", 'pip install "hybridlat[track]"'),
    ("torch", "torch", "predicting for a torch.nn.Module", "pip install torch"),
)
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def check_up(
    version: str,
    store: str | None = None,
    seconds: float = 20.0,
    tell: Callable[[str], None] | None = None,
    left: Callable[[float], None] | None = None,
) -> Checkup:
    """All that `doctor` says; ``seconds`` 0 leaves the timing out.

    ``version`` is this package's; ``tell`` hears what is looked at, ``left`` the seconds that the
    timing still takes. What is wrong becomes a problem of the answer, never an error.
    """
    say = tell or (lambda _: None)
    problems: list[Problem] = []
    say("looking for engines")
    engines = tuple(_engines(problems))
    machine = {"device": cpu_device(), **cpu_environment(), **_conditions()}
    problems += _about_conditions(machine)
    found: Steadiness | None = None
    default = _default(problems)
    if default is not None and seconds > 0:
        say(f"timing the reference network for {seconds:.0f} s")
        found = _timed(*default, seconds, left, problems)
    if default is not None:
        default[0].close()
    say("looking at the store")
    with Store(store) as opened:
        held = tuple(_held(opened, problems))
        places = _places(opened, problems)
    problems += _about_models()
    packages = tuple(_packages())
    return Checkup(
        version, machine, engines, packages, found, held, places, tuple(problems)
    )  # fmt: skip


def _default(problems: list[Problem]) -> tuple[Backend, Mapping[str, int | str]] | None:
    try:
        engine = resolve(None)
    except BackendUnavailable as error:
        problems.append(
            Problem("error", f"the default engine does not start: {error}", "install onnxruntime")
        )
        return None
    return None if engine.backend is None else (engine.backend, engine.options)


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


def _conditions() -> dict[str, str]:
    """What decides how steadily a CPU runs, as far as the system tells."""
    found = {}
    if hasattr(os, "getloadavg"):
        found["load"] = f"{os.getloadavg()[0]:.1f}"
    for name, path in (("governor", _GOVERNOR), ("cpu_quota", _QUOTA)):
        try:
            found[name] = path.read_text(encoding="utf-8").strip()
        except OSError:
            continue
    return found


def _about_conditions(machine: Mapping[str, str]) -> Iterator[Problem]:
    cores = int(machine.get("cores", "1"))
    load = float(machine.get("load", "0"))
    if load > 0.5 * cores:
        yield Problem(
            "warning", f"the machine is busy: a load of {load:.1f} on {cores} cores",
            "measure when nothing else runs",
        )  # fmt: skip
    governor = machine.get("governor", "performance")
    if governor != "performance":
        yield Problem(
            "warning", f"the CPU's frequency governor is {governor!r}: its clock comes and goes",
            "sudo cpupower frequency-set -g performance",
        )  # fmt: skip
    quota = machine.get("cpu_quota", "max").split()[0]
    if quota not in ("max", ""):
        yield Problem(
            "warning", f"the container may use {machine['cpu_quota']} µs of CPU time: it is halted "
            "when they are used up", "give the container whole cores",
        )  # fmt: skip


def _timed(
    backend: Backend,
    options: Mapping[str, int | str],
    seconds: float,
    left: Callable[[float], None] | None,
    problems: list[Problem],
) -> Steadiness | None:
    try:
        found = steadiness(backend, options, seconds, left)
    except HybridlatError as error:
        problems.append(Problem("error", str(error), "see the reason, and run doctor again"))
        return None
    if found.noise_share > NOISY_SHARE:
        problems.append(
            Problem("warning", f"visits differ by {100 * found.noise_share:.1f} % from one to the "
                    "next: measurements need many repetitions", "close what else runs")
        )  # fmt: skip
    if found.wander_share > LARGE_SHARE:
        problems.append(
            Problem("warning", f"the machine's pace wandered by {100 * found.wander_share:.1f} % "
                    f"within {found.seconds:.0f} s: no interval can be narrower than that",
                    "use a machine of its own, with a fixed clock")
        )  # fmt: skip
    return found


def _held(store: Store, problems: list[Problem]) -> Iterator[HeldTarget]:
    try:
        for stats in store.stats():
            wandering = newest_wandering(store, stats.target)
            yield HeldTarget(
                str(stats.target), "store", stats.cells, stats.networks, stats.failures,
                stats.last, wandering.share if wandering.processes else None,
            )  # fmt: skip
    except StoreError as error:
        what = f"the store cannot be read: {error}"
        problems.append(Problem("error", what, "run `hybridlat store check`, or give --store"))
    for pack in packs.shipped_packs():
        counts = pack.counts()
        yield HeldTarget(
            str(pack.target), "pack", counts["cell"], counts["network"],
            int(pack.info.get("failures", 0)), str(pack.info.get("last", "")),
        )  # fmt: skip


def _places(store: Store, problems: list[Problem]) -> dict[str, str]:
    path = Path(store.url.partition(":///")[2]) if store.url.startswith("sqlite:///") else None
    size = ""
    if path is not None:
        size = f" ({path.stat().st_size / 1e6:.1f} MB)" if path.is_file() else " (not made yet)"
        folder = next(p for p in path.absolute().parents if p.exists())
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
        if not (folder / "card.json").is_file():
            continue
        try:
            read_target(folder)
        except HybridlatError as error:
            yield Problem("warning", str(error), "train the target again")
    both = [name for name in ("xgboost", "xgboost-cpu") if _version(name)]
    if len(both) > 1:
        yield Problem(
            "warning", "the packages xgboost and xgboost-cpu are both installed, under one "
            "module's name", "pip uninstall xgboost xgboost-cpu, then install one of them",
        )  # fmt: skip


def _packages() -> Iterator[PackageCheck]:
    for name, module, purpose, how in _PACKAGES:
        here = importlib.util.find_spec(module) is not None
        yield PackageCheck(name, purpose, (_version(name) or "?") if here else "", how)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
