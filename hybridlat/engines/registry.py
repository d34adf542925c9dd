"""The engines there are: which kernels each makes of a network, and how to start it here.

An engine is an :class:`EngineEntry`. The package's own are listed below; another package offers
one under the entry point group ``hybridlat.engines``.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, cast

from hybridlat.engines.base import Backend
from hybridlat.errors import BackendUnavailable, TargetError
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.plugins import Plugins
from hybridlat.schema.target import PRECISIONS, Target

_ROOM = "hybridlat.engines"
PLANNED = ("fp32", "tf32", "fp16", "bf16")
"""Precisions that a plan can ask another machine for."""


class LoweringModule(Protocol):
    """What the module that an entry names as its lowering offers."""

    def lower(self, network: Network, target: Target) -> Lowered:
        """The kernels that the target's engine makes of the network.

        Raises MissingExtra where the engine has to be asked and is not here, MeasurementError when
        it refuses the network.
        """

    def identity(self, target: Target) -> str:
        """Names all that the answer depends on: the engine's version, or the table of rules."""


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """An engine: ``lowering`` is a module, ``backend`` ``module:Class``; None where it has none.

    ``keeps_precision``: it computes in the precision that a file is written in, whatever is asked.
    ``precisions``: those that its backend measures.
    """

    lowering: str | None = None
    backend: str | None = None
    keeps_precision: bool = False
    precisions: tuple[str, ...] = PRECISIONS


ONNXRUNTIME = EngineEntry(
    f"{_ROOM}.onnxruntime.lowering",
    f"{_ROOM}.onnxruntime.session:OnnxRuntimeBackend",
    keeps_precision=True,
)
OPENVINO = EngineEntry(
    f"{_ROOM}.openvino",
    f"{_ROOM}.openvino:OpenVinoBackend",
    keeps_precision=True,
)
TENSORRT = EngineEntry(
    f"{_ROOM}.tensorrt.lowering",
    f"{_ROOM}.tensorrt.session:TensorRtBackend",
    precisions=PLANNED,
)
TENSORRT_RTX = EngineEntry(f"{_ROOM}.tensorrt_rtx")
TORCH = EngineEntry(f"{_ROOM}.torch.eager")
TORCH_COMPILE = EngineEntry(f"{_ROOM}.torch.compiled")
PADDLE_TENSORRT = EngineEntry(f"{_ROOM}.tensorrt.lowering")

ENGINES = Plugins(
    _ROOM,
    {
        "onnxruntime": f"{__name__}:ONNXRUNTIME",
        "openvino": f"{__name__}:OPENVINO",
        "tensorrt": f"{__name__}:TENSORRT",
        "tensorrt-rtx": f"{__name__}:TENSORRT_RTX",
        "torch": f"{__name__}:TORCH",
        "torch-compile": f"{__name__}:TORCH_COMPILE",
        "paddle-tensorrt": f"{__name__}:PADDLE_TENSORRT",
    },
)


def entry(engine: str) -> EngineEntry | None:
    """The engine of that name; None where there is none."""
    return cast(EngineEntry, ENGINES.load(engine)) if engine in ENGINES else None


def at_precision(target: Target, precision: str) -> Target:
    """The target that a file of ``precision`` is measured under when ``target`` is asked for.

    Another one only where the engine computes in the precision of the file.
    """
    found = entry(target.engine)
    keeps = found is not None and found.keeps_precision
    return replace(target, precision=precision) if keeps else target


def same_cell_targets(target: Target) -> tuple[Target, ...]:
    """The same device and engine at the other precisions, where those share its cells.

    The types of a cell's tensors are part of its signature: an engine that computes in them runs
    the cell alike under each of its targets.
    """
    others = (at_precision(target, precision) for precision in PRECISIONS)
    return tuple(dict.fromkeys(other for other in others if other != target))


def lowerings() -> tuple[str, ...]:
    """Engines with fusion rules, or that can be asked, sorted."""
    return tuple(name for name in ENGINES.names() if (e := entry(name)) and e.lowering)


def backends() -> tuple[str, ...]:
    """Engines that can be started where they are installed, sorted."""
    return tuple(name for name in ENGINES.names() if (e := entry(name)) and e.backend)


def has_backend(engine: str) -> bool:
    """Whether an engine of that name can be started where it is installed."""
    found = entry(engine)
    return found is not None and found.backend is not None


def can_measure(target: Target) -> bool:
    """Whether the target's engine can be started somewhere, and measures its precision."""
    found = entry(target.engine)
    return found is not None and found.backend is not None and not refuses(target)


def refuses(target: Target) -> bool:
    """Whether the target's engine is measured, though never in the target's precision."""
    found = entry(target.engine)
    if found is None or found.backend is None:
        return False
    return target.precision not in found.precisions


def lower(network: Network, target: Target) -> Lowered:
    """The kernels that the target's engine runs for the network of a file.

    The one way from a network to kernels: the target's engine, version, precision and threads
    decide. Raises TargetError for an engine without fusion rules, MissingExtra and MeasurementError
    as the engine's own lowering does.
    """
    lowered = _lowering(target).lower(network, target)
    return replace(lowered, warnings=(*lowered.warnings, *about(network)))


def lower_quickly(network: Network, target: Target) -> Lowered:
    """The answer of :func:`lower`, by rules where they are known to hold for the engine."""
    lowering = _lowering(target)
    quick = getattr(lowering, "lower_quickly", None)
    if quick is None or network.left_out:
        return lower(network, target)
    lowered: Lowered = quick(network, target)
    warnings = about(network)
    return replace(lowered, warnings=(*lowered.warnings, *warnings)) if warnings else lowered


def about(network: Network) -> tuple[str, ...]:
    """Warnings about a network whatever the engine; none for most."""
    return (*_about_left_out(network), *_about_fed_weights(network))


def _about_fed_weights(network: Network) -> tuple[str, ...]:
    """Of weights that come with each inference, which is hardly ever what was meant."""
    if len(network.inputs) < 2:
        return ()
    fed = {
        node.inputs[1]
        for node in network.nodes
        if node.op in ("Conv", "ConvTranspose") and node.inputs[1] in network.inputs
    }
    if not fed:
        return ()
    names = ", ".join(sorted(fed)[:3]) + (", …" if len(fed) > 3 else "")
    return (
        f"the weights of convolutions are inputs of the network ({names}) and no constants: it is "
        "answered for as it is, and would be quicker with constants; give weights as initializers "
        "(a TensorProto with name, dims and data_type will do)",
    )


def _about_left_out(network: Network) -> tuple[str, ...]:
    """Of operators behind a size that only data tell."""
    if not network.left_out:
        return ()
    (name, op), *others = network.left_out
    behind = f" and the {len(others)} operators behind it are" if others else " is"
    counts = Counter(op for _, op in others).most_common(3)
    listed = f" ({', '.join(f'{count} {op}' for op, count in counts)} …)" if counts else ""
    return (
        f"the size of what {op} {name!r} gives depends on data: it{behind} not part of the latency"
        f"{listed}",
    )


def lowering_identity(target: Target) -> str:
    """What the answers of :func:`lower` depend on besides the network: a key for caches."""
    return _lowering(target).identity(target)


def _lowering(target: Target) -> LoweringModule:
    engine = entry(target.engine)
    if engine is None or engine.lowering is None:
        raise TargetError(
            f"unknown engine {target.engine!r} in {target}; engines: {', '.join(lowerings())}"
        )
    return cast(LoweringModule, importlib.import_module(engine.lowering))


def load_backend(name: str) -> type[Backend]:
    """The class of the backend ``name``; BackendUnavailable for an unknown name."""
    engine = entry(name)
    if engine is None or engine.backend is None:
        raise BackendUnavailable(
            f"there is no backend {name!r}: choose one of {', '.join(backends())}"
        )
    return backend_at(engine.backend)


def backend_at(path: str) -> type[Backend]:
    """The backend class at ``module:Class``, as :func:`place_of` names it."""
    module, _, attribute = path.partition(":")
    return cast(type[Backend], getattr(importlib.import_module(module), attribute))


def place_of(backend: Backend) -> str:
    """Where another process finds this backend's class: ``module:Class``."""
    return f"{type(backend).__module__}:{type(backend).__qualname__}"


def open_backend(name: str, options: Mapping[str, int | str] | None = None) -> Backend:
    """The backend ``name``, started with its own options (``threads``); BackendUnavailable."""
    return load_backend(name)(**(options or {}))
