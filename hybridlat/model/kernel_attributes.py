"""What the geometry of a kernel needs of its attributes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hybridlat.graph.work import Attributes

CHANNELS_LAST = 4
"""What a ``variant`` holds beside its mode where channels are innermost."""
_MODES = {"linear": 1, "reflect": 1, "CRD": 1, "cubic": 2, "edge": 2, "wrap": 3, "bilinear": 1}


@dataclass(frozen=True, slots=True)
class KernelAttributes:
    """What a geometry needs of a node's attributes; ``written`` are all of them.

    ``stride`` and ``dilation`` are the largest of all axes, ``pad`` is the sum over all sides,
    ``order`` a Transpose's, ``size`` an LRN's. ``variant`` numbers mode and layout.
    """

    kernel: tuple[int, int] | None
    stride: int
    dilation: int
    group: int
    pad: int
    activation: str
    transposed: bool
    axis: int | None
    order: tuple[int, ...]
    size: int
    variant: int
    channels_last: bool
    written: Attributes


def pair(values: Sequence[int] | None) -> tuple[int, int] | None:
    """Height and width of a window, its first two sizes; one alone is a width."""
    if not values:
        return None
    return (values[0], values[1]) if len(values) > 1 else (1, values[0])


@lru_cache(maxsize=65536)
def attributes_of(text: str) -> KernelAttributes:
    """Of a node's attributes as JSON; ValueError or TypeError for what is none."""
    return attributes_from(json.loads(text))


def attributes_from(written: Attributes) -> KernelAttributes:
    """Of a node's attributes.

    Operators of other domains may call something else by the same name: it counts as left out.
    """
    loaded: dict[str, Any] = {n: value for n, value in written.items() if _is_usual(n, value)}
    # Channels are innermost in the shapes (ONNX Runtime), or in the strides alone (PyTorch).
    in_shapes = bool(loaded.get("channels_last", 0))
    innermost = in_shapes or loaded.get("memory_format") == "channels_last"
    return KernelAttributes(
        kernel=pair(loaded.get("kernel_shape")),
        stride=max(loaded.get("strides") or (1,)),
        dilation=max(loaded.get("dilations") or (1,)),
        group=loaded.get("group", 1),
        pad=sum(loaded.get("pads") or (0,)),
        activation=loaded.get("activation", ""),
        transposed=bool(loaded.get("transB", 0)),
        axis=loaded.get("axis"),
        order=tuple(loaded.get("perm") or ()),
        size=loaded.get("size", 0),
        variant=_MODES.get(loaded.get("mode", ""), 0) + CHANNELS_LAST * innermost,
        channels_last=in_shapes,
        written=written,
    )


def _is_usual(name: str, value: object) -> bool:
    """Whether an attribute is of the type that ONNX's operators give it."""
    if name in ("kernel_shape", "strides", "dilations", "pads", "perm"):
        return isinstance(value, list) and all(type(item) is int for item in value)
    if name in ("group", "axis", "size", "transB", "channels_last"):
        return type(value) is int
    return name not in ("activation", "mode") or isinstance(value, str)
