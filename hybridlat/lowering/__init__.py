"""Which kernels an engine makes of a network: one file per runtime, found by its name.

A file either asks the engine (ONNX Runtime, OpenVINO, TensorRT-RTX) or holds a table of rules
(TensorRT). Each defines ``lower(network) -> Lowered``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from hybridlat.core.network import Lowered, Network
from hybridlat.errors import TargetError

_PARTS = frozenset({
    "blackbox", "fused", "rules", "tensorrt_conditions", "tensorrt_convolutions", "unfuse",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lowering:
    """A runtime's name and its ``lower``."""

    name: str
    lower: Callable[[Network], Lowered]


def available() -> tuple[str, ...]:
    """Names of all runtimes that there is a file for, sorted."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.replace("_", "-") for name in names if name not in _PARTS))


def load(engine: str) -> Lowering:
    """The lowering of ``engine`` (``tensorrt``, ``tensorrt-rtx``); TargetError for an unknown one.

    Nothing of the engine itself is imported until a network is lowered.
    """
    if engine not in available():
        raise TargetError(
            f"nobody has said how {engine!r} fuses operators: choose one of "
            + ", ".join(available())
        )
    module = importlib.import_module(f"{__name__}.{engine.replace('-', '_')}")
    lower: Callable[[Network], Lowered] = module.lower
    return Lowering(engine, lower)
