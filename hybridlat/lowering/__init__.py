"""Which kernels an engine makes of a network: one file per runtime, found by its name.

A file either asks the engine (ONNX Runtime, OpenVINO, TensorRT-RTX) or holds a table of rules
(TensorRT, PyTorch). Each defines ``lower(network) -> Lowered``; a file that also defines
``for_target(target)`` gives the lowering of one target: its version and precision.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hybridlat.core.network import Lowered, Network
from hybridlat.core.target import Target
from hybridlat.errors import TargetError

_PARTS = frozenset({
    "blackbox", "fused", "rules", "tensorrt_conditions", "torch_graph", "torch_precision",
    "torch_views", "unfuse",
})  # fmt: skip
_FILES = {"torch": "torch_eager"}
"""Files that are not called as their engine is."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """A runtime's name and its ``lower``."""

    name: str
    lower: Callable[[Network], Lowered]


def available() -> tuple[str, ...]:
    """Names of all runtimes that there is a file for, sorted."""
    engines = {file: engine for engine, file in _FILES.items()}
    names = (module.name for module in pkgutil.iter_modules(__path__))
    found = (engines.get(name, name.replace("_", "-")) for name in names if name not in _PARTS)
    return tuple(sorted(found))


def load(engine: str) -> Lowering:
    """The lowering of ``engine`` (``tensorrt``, ``tensorrt-rtx``); TargetError for an unknown one.

    Nothing of the engine itself is imported until a network is lowered.
    """
    return Lowering(engine, _module(engine).lower)


def for_target(target: Target) -> Callable[[Network], Lowered]:
    """The lowering for a target's engine, version and precision; TargetError as :func:`load`."""
    module = _module(target.engine)
    found: Callable[[Network], Lowered]
    found = module.for_target(target) if hasattr(module, "for_target") else module.lower
    return found


def _module(engine: str) -> Any:
    if engine not in available():
        raise TargetError(
            f"nobody has said how {engine!r} fuses operators: choose one of "
            + ", ".join(available())
        )
    file = _FILES.get(engine, engine.replace("-", "_"))
    return importlib.import_module(f"{__name__}.{file}")
