"""The numbers of one kernel: from its operator, tensors and attributes to a row of geometry."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from hybridlat.graph.network import ITEM_BYTES
from hybridlat.graph.operators import (
    KINDS,
    activation_class,
    fusion,
    is_quantised,
    kind_of,
    weight_place,
)

CHANNELS_LAST = 4
"""What a ``variant`` holds beside its mode where channels are innermost."""
_MODES = {"linear": 1, "reflect": 1, "CRD": 1, "cubic": 2, "edge": 2, "wrap": 3, "bilinear": 1}
Tensor = tuple[tuple[int, ...], int, float, bool]  # shape, elements, item bytes, is a weight


@lru_cache(maxsize=65536)
def tensor_of(text: str, separator: str, weight: bool) -> Tensor:
    """A tensor as a signature writes it (``float32:1x64x56x56``); ValueError for what is none."""
    dtype, _, dims = text.partition(separator)
    shape = tuple(int(d) for d in dims.split("x")) if dims else ()
    if shape and min(shape) < 0:
        raise ValueError(f"a size of {text!r} is negative")
    return shape, math.prod(shape), ITEM_BYTES[dtype], weight


@dataclass(frozen=True, slots=True)
class KernelAttributes:
    """What a geometry needs of a node's attributes; ``variant`` numbers its mode and layout."""

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


def _pair(values: Sequence[int] | None) -> tuple[int, int] | None:
    if not values:
        return None
    return (values[0], values[1]) if len(values) > 1 else (1, values[0])


@lru_cache(maxsize=65536)
def attributes_of(text: str) -> KernelAttributes:
    """Of a node's attributes as JSON; ValueError or TypeError for what is none.

    Operators of other domains may call something else by the same name: it counts as left out.
    """
    loaded = {name: value for name, value in json.loads(text).items() if _is_usual(name, value)}
    # Channels are innermost in the shapes (ONNX Runtime), or in the strides alone (PyTorch).
    in_shapes = bool(loaded.get("channels_last", 0))
    innermost = in_shapes or loaded.get("memory_format") == "channels_last"
    return KernelAttributes(
        kernel=_pair(loaded.get("kernel_shape")),
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
    )


def _is_usual(name: str, value: object) -> bool:
    """Whether an attribute is of the type that ONNX's operators give it."""
    if name in ("kernel_shape", "strides", "dilations", "pads", "perm"):
        return isinstance(value, list) and all(type(item) is int for item in value)
    if name in ("group", "axis", "size", "transB", "channels_last"):
        return type(value) is int
    return name not in ("activation", "mode") or isinstance(value, str)


_QUANTISED_BIAS = 8  # the place of a QLinearConv's


def _image(shape: tuple[int, ...], channels_last: bool = False) -> tuple[int, int, int, int]:
    """Batch, channels, height, width of an activation; missing dimensions are 1."""
    if len(shape) >= 4:
        if channels_last:
            return shape[0], shape[-1], math.prod(shape[1:-2]), shape[-2]
        return shape[0], shape[1], math.prod(shape[2:-1]), shape[-1]
    return (*shape, 1, 1, 1, 1)[:4]  # type: ignore[return-value]


def kernel_row(
    op: str, read: Sequence[Tensor | None], made: Sequence[Tensor], a: KernelAttributes
) -> tuple[str, tuple[float, ...]]:
    """The operator of a kernel, and its row of ``COLUMNS`` from ``kind`` to ``variant``."""
    present = [t for t in read if t is not None]
    blank: Tensor = ((), 1, 4, False)
    first = present[0] if present else blank
    main = made[0] if made else blank
    activation = activation_class(a.activation)
    added = not is_quantised(op.rpartition("::")[2]) and len(read) > 3 and read[3] is not None
    run_as_one = op.rpartition("::")[2].split("+").count("Conv") > 1
    fused = fusion(op)
    if fused is not None:
        op, activation = fused.op, fused.activation
        added = fused.adds and sum(not t[3] for t in present) > 1
    kind = kind_of(op)
    name = op.rpartition("::")[2]  # a reorder has one layout before it and another behind it
    reordered = kind == KINDS["conv"] and fused is not None and fused.reorders
    if reordered and present[0][3]:
        # The operand that a transpose reads stands behind those that the operator itself names.
        image = max((t for t in present if not t[3]), key=lambda t: t[1], default=present[0])
        present = [image, *(t for t in present if t is not image)]
        first = image
    if kind == KINDS["pool"] and a.kernel is None:
        # A fused kernel may give out the map beside its mean: the pool's own sizes count.
        first = max(present, key=lambda t: t[1], default=blank)
        main = min(made, key=lambda t: t[1], default=blank)
    last = name.startswith("Nhwc") or (a.channels_last and not name.startswith("Reorder"))
    place = weight_place(op)
    _, c_out, h_out, w_out = _image(main[0], last)
    batch, c_in, h_in, w_in = _image(first[0], last or reordered or _is_permuted(op, present, a))
    if place > 1 and len(read) > place and read[place] is not None:
        present = [first, *(t for t in read[place:] if t is not None), *present[1:place]]
    taps = a.kernel or (1, 1)
    groups, has_add, has_bias = 1, 0, 0
    m, n, k = main[1], 1, 1
    per_output = 1.0
    if kind == KINDS["conv"] and len(present) > 1:
        weight = present[1][0]
        taps = a.kernel or (_pair(weight[2:]) or (1, 1))
        groups = max(a.group, 1)
        n, k = max(c_out // groups, 1), math.prod(weight[1:])
        if len(weight) < 3:  # made by other operators, and read through a view that costs nothing
            k = max(c_in // groups, 1) * taps[0] * taps[1]
        if op.endswith("Transpose"):
            n, k = max(c_out // groups, 1), weight[0] // groups * taps[0] * taps[1]
        m = batch * h_out * w_out
        # Convolutions that run as one: all their channels. A scale may look like a weight.
        others = present[2:] if run_as_one else ()
        wider = sum(t[0][0] for t in others if t[3] and t[0][1:] == weight[1:] != ())
        n, c_out = n + wider, c_out + wider
        # Among the inputs of a quantised one are scales, as long as a bias.
        biases = present[2:] if place == 1 else read[_QUANTISED_BIAS:]
        has_bias = int(any(t is not None and t[3] and len(t[0]) == 1 for t in biases))
        has_add = int(added)
        per_output = 2.0 * k * c_out / (c_out - wider)
        if op.endswith("Transpose"):  # each input reaches every tap, each output only some
            per_output /= a.stride**2
    elif kind == KINDS["matmul"] and len(present) > 1:
        shape = present[1][0]  # of a vector the operand tells, which may be seen through a Flatten
        k = shape[-1 if a.transposed else -2] if len(shape) > 1 else (1, *first[0])[-1]
        n = main[0][-1] if main[0] else 1
        m = main[1] // max(n, 1)
        has_bias = int(len(present) > 2)
        per_output = 2.0 * k
        c_in, c_out = k, n
    elif kind == KINDS["pool"]:
        if a.kernel is None:
            taps = (h_in, w_in)
        k = taps[0] * taps[1]
        per_output = float(k)
    elif kind == KINDS["reduce"]:
        per_output = max(first[1] / max(main[1], 1), 1.0) * 4
    elif kind == KINDS["move"]:
        per_output = 0.0
    return op, (
        kind, batch, c_in, h_in, w_in, c_out, h_out,
        w_out, taps[0], taps[1], a.stride, a.dilation, groups, a.pad, m, n, k, main[1] * per_output,
        sum(t[1] * t[2] for t in present if not t[3]),
        sum(t[1] * t[2] for t in present if t[3]),
        sum(t[1] * t[2] for t in made),
        main[2], activation, has_add, has_bias,
        len(present), len(main[0]), *_stretches(op, kind, present, main, a), a.variant,
    )  # fmt: skip


def _is_permuted(op: str, present: Sequence[Tensor], a: KernelAttributes) -> bool:
    """Whether a convolution reads its image through a view that put the channels second."""
    shapes = [t[0] for t in present[:2] if kind_of(op) == KINDS["conv"] and weight_place(op) == 1]
    if [len(shape) for shape in shapes] != [4, 4] or op.endswith("Transpose"):
        return False
    return shapes[0][1] != shapes[1][1] * a.group == shapes[0][3]


def _stretches(
    op: str, kind: int, present: Sequence[Tensor], main: Tensor, a: KernelAttributes
) -> tuple[int, int]:
    """(run, length): elements that are read one after the other, and that one output sums over."""
    shape = present[0][0] if present else main[0]
    name = op.rpartition("::")[2]
    if kind == KINDS["pointwise"]:
        return _broadcast_run(present, main), 1
    if kind == KINDS["reduce"]:
        axis = _DEFAULT_AXES.get(name) if a.axis is None else a.axis
        if name == "LRN":
            return math.prod(shape[2:]), a.size
        if axis is None or not shape or not -len(shape) <= axis < len(shape):
            last_kept = bool(main[0]) and main[0][-1:] == shape[-1:]
            return math.prod(shape[2:]) if last_kept else 1, max(math.prod(shape) // main[1], 1)
        axis %= len(shape)
        return math.prod(shape[axis + 1 :]), shape[axis]
    if kind == KINDS["move"]:
        if a.order and len(a.order) == len(shape):
            kept = len(shape)
            while kept and a.order[kept - 1] == kept - 1:
                kept -= 1
            return math.prod(shape[kept:]), 1
        if a.axis is not None and shape and -len(shape) <= a.axis < len(shape):
            return math.prod(shape[a.axis % len(shape) :]), 1
        return shape[-1] if shape else 1, 1
    return shape[-1] if shape else 1, 1


_DEFAULT_AXES = {"Softmax": -1, "LogSoftmax": -1, "LayerNormalization": -1}


def _broadcast_run(present: Sequence[Tensor], main: Tensor) -> int:
    """Elements from the end over which the inputs either all advance or some stand still."""
    rank = len(main[0])
    others = [(1,) * (rank - len(t[0])) + t[0] for t in present if len(t[0]) <= rank]
    run = 1
    alike: bool | None = None
    for axis in range(rank - 1, -1, -1):
        whole = all(shape[axis] == main[0][axis] for shape in others)
        if alike is None:
            alike = whole
        elif whole != alike and main[0][axis] > 1:
            break
        run *= main[0][axis]
    return run
