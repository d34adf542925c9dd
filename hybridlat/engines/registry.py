"""The engines there are: which kernels each makes of a network, and how to start it here.

An engine is an :class:`EngineEntry`. The package's own are listed below; another package offers
one under the entry point group ``hybridlat.engines``.
"""

import hashlib
import importlib
import logging
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from hybridlat.engines import device_sheets
from hybridlat.engines.base import Backend
from hybridlat.errors import BackendUnavailable, TargetError, UnavailableError
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.operators import KINDS, contracts, kind_of
from hybridlat.schema.names import engine_text
from hybridlat.schema.plugins import Plugins, shipped_table
from hybridlat.schema.shown import count_text
from hybridlat.schema.target import PRECISIONS, Target, version_key

_ROOM = "hybridlat.engines"
PLANNED = ("fp32", "fp32-strict", "tf32", "fp16", "bf16")
"""Precisions that a plan can ask another machine for."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """An engine: ``lowering`` is a module, ``backend`` ``module:Class``; None where it has none.

    The module has ``lower(network, target)``, which raises MissingExtra where the engine must be
    asked and is not installed, and MeasurementError where it refuses the network. It also has
    ``identity(target)``, which names all that the answer depends on, and may have
    ``lower_quickly``: ``lower`` by rules where they are known to hold. ``keeps_precision``: the
    engine computes in the file's precision, but for those that it computes ``in_fp32``.
    ``precisions``: those that its backend measures.
    """

    lowering: str | None = None
    backend: str | None = None
    keeps_precision: bool = False
    in_fp32: tuple[str, ...] = ()
    precisions: tuple[str, ...] = PRECISIONS


_TORCH = EngineEntry(f"{_ROOM}.pytorch")
_TENSORRT = EngineEntry(
    f"{_ROOM}.tensorrt.lowering", f"{_ROOM}.tensorrt.session:TensorRtBackend", precisions=PLANNED
)
OWN: Mapping[str, EngineEntry] = {
    "onnxruntime": EngineEntry(
        f"{_ROOM}.ort.lowering", f"{_ROOM}.ort.session:OnnxRuntimeBackend", keeps_precision=True
    ),
    "openvino": EngineEntry(
        f"{_ROOM}.openvino_cpu",
        f"{_ROOM}.openvino_cpu:OpenVinoBackend",
        keeps_precision=True,
        in_fp32=("fp16", "bf16"),
        precisions=("fp32", "int8"),
    ),
    "tensorrt": _TENSORRT,
    "tensorrt-rtx": EngineEntry(f"{_ROOM}.rtx_compiler"),
    "paddle-tensorrt": EngineEntry(_TENSORRT.lowering),
    "torch": _TORCH,
    "torch-compile": _TORCH,
}
ENGINES = Plugins(_ROOM, dict.fromkeys(OWN, __name__))


def entry(engine: str) -> EngineEntry:
    """The engine of that name; one without lowering or backend where there is none."""
    if engine in OWN or engine not in ENGINES:
        return OWN.get(engine) or EngineEntry()
    return ENGINES.load(engine, EngineEntry)


def at_precision(target: Target, precision: str) -> Target:
    """The target under which a file of ``precision`` is measured, where ``target`` was chosen."""
    engine = entry(target.engine)
    own = "fp32" if precision in engine.in_fp32 else precision
    return replace(target, precision=own) if engine.keeps_precision else target


def float_precision(target: Target) -> str:
    """The precision in which FP32 tensors are computed: FP32 where the file's is kept."""
    return at_precision(target, "fp32").precision


def board_target(target: Target) -> Target:
    """The target without a version that no board reports as its own: a table's name, ``8.6.1``."""
    is_reported = re.fullmatch("[0-9]+[.][0-9]+", target.version)
    return target if is_reported else replace(target, runtime=target.engine)


def same_cell_targets(target: Target) -> tuple[Target, ...]:
    """The same device and engine at the other precisions, where the cells are the same.

    Types are part of a cell's signature: an engine that computes in them runs it alike under each.
    """
    others = (at_precision(target, precision) for precision in PRECISIONS)
    return tuple(dict.fromkeys(other for other in others if other != target))


def lowerings() -> tuple[str, ...]:
    """Engines with fusion rules, or that say themselves what they fuse, sorted."""
    return tuple(name for name, one in _loaded() if one.lowering)


def backends() -> tuple[str, ...]:
    """Engines that can be started where they are installed, sorted."""
    return tuple(name for name, one in _loaded() if one.backend)


def _loaded() -> Iterator[tuple[str, EngineEntry]]:
    for name in ENGINES.names():
        with suppress(UnavailableError):  # another package's that is broken costs its own name
            yield name, entry(name)


def can_measure(target: Target) -> bool:
    """Whether the target's engine can be started somewhere, and measures its precision."""
    engine = entry(target.engine)
    return engine.backend is not None and target.precision in engine.precisions


def refuses(target: Target) -> bool:
    """Whether the target's engine is measured, though never in the target's precision."""
    return entry(target.engine).backend is not None and not can_measure(target)


def lower(network: Network, target: Target, *, quickly: bool = False) -> Lowered:
    """The kernels that the target's engine runs for the network of a file.

    ``quickly``: by rules where they are known to hold for the engine. Raises TargetError for an
    engine without fusion rules, MissingExtra and MeasurementError as the engine's own does.
    """
    module = _lowering(target)
    way = "lower_quickly" if quickly and not network.left_out else "lower"
    lowered: Lowered = getattr(module, way, module.lower)(network, target)
    return replace(lowered, warnings=(*lowered.warnings, *about(network)))


def about(network: Network) -> tuple[str, ...]:
    """Warnings about a network whatever the engine; none for most."""
    warnings = []
    if network.rebound:
        sizes = f"constant sizes of {count_text(len(network.rebound), 'operator')} were changed"
        warnings.append(f"the file was made for another batch: {sizes} for this one")
    if network.left_out:
        (name, op), *others = network.left_out
        operators = count_text(len(others), "operator")
        behind = f" and the {operators} behind it are" if others else " is"
        counted = Counter(op for _, op in others).most_common()
        # What computes most, and what is of no family, such as NonMaxSuppression.
        counted.sort(key=lambda each: (not contracts(each[0]), kind_of(each[0]) != KINDS["other"]))
        counts = [f"{n} {op}" for op, n in counted[:3]]
        listed = f" ({', '.join(counts)} …)" if counts else ""
        warnings.append(
            f"the size of what {op} {name!r} gives depends on data: it{behind} not part of the "
            f"latency{listed}"
        )
    convolutions = [n for n in network.nodes if n.op in ("Conv", "ConvTranspose")]
    fed = {name for node in convolutions for name in node.inputs[1:2]}.intersection(network.inputs)
    if fed:
        names = ", ".join(sorted(fed)[:3]) + (", …" if len(fed) > 3 else "")
        warnings.append(
            f"the weights of convolutions are inputs of the network ({names}), which is slower "
            "than constants: write them as initializers (name, dims and data_type will do)"
        )
    return tuple(warnings)


def lowering_identity(target: Target) -> str:
    """What the answers of :func:`lower` depend on besides the network: a key for caches."""
    return f"{code_hash()}/{_lowering(target).identity(target)}"


@cache
def code_hash() -> str:
    """Hash of the source of all that reads and lowers networks: another release may differ."""
    package = Path(__file__).parents[1]
    files = [f for room in ("graph", "onnx_io", "engines") for f in (package / room).rglob("*.py")]
    return hashlib.sha256(b"".join(map(Path.read_bytes, sorted(files)))).hexdigest()[:16]


def _lowering(target: Target) -> Any:
    module = entry(target.engine).lowering
    if module is None:
        raise TargetError(
            f"unknown engine {target.engine!r} in {target}; engines: {', '.join(lowerings())}"
        )
    return importlib.import_module(module)


def load_backend(name: str) -> type[Backend]:
    """The class of the backend ``name``; BackendUnavailable for an unknown name."""
    path = entry(name).backend
    if path is None:
        raise BackendUnavailable(
            f"there is no backend {name!r}: choose one of {', '.join(backends())}"
        )
    return cast(type[Backend], pkgutil.resolve_name(path))


def open_backend(name: str, options: Mapping[str, int | str] | None = None) -> Backend:
    """The backend ``name``, started with its own options (``threads``); UnavailableError."""
    backend = load_backend(name)(**(options or {}))
    backend.options = options or {}
    return backend


@dataclass(frozen=True)
class ResolvedEngine:
    """A target, and the backend that measures it here; ``why_not`` says why there is none."""

    target: Target
    backend: Backend | None = None
    why_not: str = ""


def resolve(target: str | Target | None, threads: int | None = None) -> ResolvedEngine:
    """The engine of a target (None: this machine's CPU under ONNX Runtime).

    This machine's own version and threads stand for those that the target leaves open. Raises
    TargetError for a target that makes no sense, UnavailableError where the default engine does
    not start.
    """
    requested = Target.parse(target) if isinstance(target, str) else target
    if requested is not None and threads is not None and requested.threads not in (None, threads):
        raise TargetError(f"--threads {threads} contradicts {requested}: give one of them")
    name = requested.engine if requested else "onnxruntime"
    why_not = f"there is no backend {name!r}"
    if requested is None or entry(name).backend is not None:
        try:
            backend = open_backend(name, load_backend(name).options_for(requested, threads))
        except UnavailableError as error:
            if requested is None:
                raise
            why_not = str(error)
        else:
            here, meant = backend.target, requested or backend.target
            runtime = meant.runtime if meant.version else here.runtime
            if replace(meant, runtime=runtime, threads=meant.threads or here.threads) == here:
                return ResolvedEngine(here, backend)
            backend.close()
            why_not = f"this machine is {here}"
    assert requested is not None
    why_not = f"{requested} cannot be measured here: {why_not}"
    _log.info("%s", why_not)
    return ResolvedEngine(requested, why_not=why_not)


def refuse_device(target: Target, is_cpu: bool) -> None:
    """TargetError where the engine, or its version, is not known to run on the target's device.

    ``is_cpu``: a device without a data sheet is known to be a CPU.
    """
    engine, version = engine_text(target.runtime), version_key(target.version)
    choose = f"choose from `hybridlat targets {target.device}`"
    kind = "cpu" if is_cpu else ""
    if target.device in device_sheets.names():
        kind = device_sheets.load(target.device).kind
    known: Mapping[str, Any] = shipped_table("names")["known"].get(target.engine, {})
    if kind and (own := known.get("kind", kind)) != kind:
        alone = f"{engine} is known on {own.upper()}s alone, and {target.device} is none"
        raise TargetError(f"{target}: {alone}: {choose}")
    if target.precision == known.get("lacks"):
        raise TargetError(f"{target}: {engine} has no {target.precision}: {choose}")
    for word, bound in device_sheets.versions_there(target).items():
        key, never = version_key(bound), bound == "0"
        if never or not (version >= key[: len(version)] if word == "first" else version <= key):
            fix = choose if never else f"{bound} is the {word} that does: write that, or no version"
            raise TargetError(f"{target}: {engine} does not run on {target.device}: {fix}")


def precision_notes(requested: Target, precision: str, stated: str) -> list[str]:
    """Notes on a file's precision beside the target's; ``stated`` is all of it in words."""
    notes = [f"the network computes in {stated}"] if stated != precision else []
    answered = at_precision(requested, precision)
    if narrow := re.search(r"\bfp[48]\b", stated):
        notes[0] += f"; no target has {narrow[0]}: this is its latency in {answered.precision}"
    elif notes and not entry(requested.engine).keeps_precision:
        notes[0] += f"; this is its latency with all of it in {requested.precision}"
    if answered != requested:
        why = f"computes in the precision of the file, which is {precision}"
        if answered.precision != precision:
            why = f"computes a file in {precision} in {answered.precision}"
        notes.append(f"{engine_text(requested.engine)} {why}: this is {answered}, not {requested}")
    elif precision != "fp32" and requested.precision not in (precision, "int8"):
        form = "quantised" if precision == "int8" else f"in {precision}"
        fix = f": for {precision} the target is {replace(requested, precision=precision)}"
        fix *= shipped_table("names")["known"].get(requested.engine, {}).get("lacks") != precision
        notes.append(f"the file is {form}, and this is its latency in {requested.precision}{fix}")
    return notes
