"""Model files as TensorRT takes them: operator set 17, weights in noise files, half precision.

Set 17 is the newest that TensorRT 8.6 understands. Its parser does not refuse a newer one: it reads
ReduceMean of set 18 without the axes that have become an input, and averages over everything.
(onnx's own version converter leaves attributes that 17 does not know, and has no way down for
Split, Pad, Resize and Gelu.)

An architecture-only model says its weights as ``ConstantOfShape``. Engines fold those to constants,
and constant data runs faster on a GPU than real data does. ``prepare`` turns each into an
initializer with ONNX external data whose bytes lie in a noise file: one block of seeded numbers
repeated until it is large enough for the largest weight, so a plan carries the block (256 KB) and
the board makes the file, with ``cat`` if it has nothing else. The block's length is a prime, so
that rows of a weight do not line up. Classes of noise: ``w3`` uniform with standard deviation 2**-3
(weights, by He's rule from the fan-in), ``p`` in 0.5..1.5 (scales, variances), ``b`` small (biases,
means).
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, external_data_helper, helper, numpy_helper

NEWEST = 17
_REDUCE = (
    "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
# What set 17 does not have, and nothing here writes with simpler operators.
_NEWER = (
    "Mish", "GroupNormalization", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Col2Im",
    "CenterCropPad", "OptionalHasElement", "DeformConv", "AffineGrid", "ImageDecoder",
    "RegexFullMatch", "StringConcat", "StringSplit", "IsInf",
)  # fmt: skip
# Attributes that came later; what they say when they are not there is what set 17 does.
_DEFAULTS = {
    "Split": ("num_outputs",), "Cast": ("saturate",), "AveragePool": ("dilations",),
    "Resize": ("antialias", "keep_aspect_ratio_policy"),
}  # fmt: skip
BLOCK = 65521
# TensorRT tells weights apart by where they start: no two of one model may start at one place.
_APART_BYTES = 256
_NEWEST_IR = 8  # that TensorRT 8.6 reads
_SUFFIX: dict[int, str] = {TensorProto.FLOAT: "f32", TensorProto.FLOAT16: "f16"}
_ITEM = {"f32": ("f", 4), "f16": ("e", 2)}
_LARGEST_HALF = 65504.0
# Inputs that must stay float32 whatever the network's type is.
_ALWAYS_FLOAT = {"Resize": (1, 2), "Upsample": (1,)}
_POSITIVE_INPUTS = {"BatchNormalization": (1, 4), "InstanceNormalization": (1,),
                    "LayerNormalization": (1,), "GroupNormalization": (1,)}  # fmt: skip
_MATRIX_OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def prepare(data: bytes, half: bool = False) -> tuple[bytes, dict[str, int]]:
    """A model whose weights lie in noise files, and the bytes that each file must have.

    With ``half`` every float of the model is in half precision, which is how TensorRT 11 is told
    the precision.
    """
    model = onnx.load_model_from_string(data)
    lower(model)
    if half:
        _retype(model)
    shapes = {
        t.name: numpy_helper.to_array(t).tolist()
        for t in model.graph.initializer
        if t.data_type == TensorProto.INT64
    }
    sizes: dict[str, int] = {}
    uses: dict[str, int] = {}
    kept: list[NodeProto] = []
    weights: list[TensorProto] = []
    for node in model.graph.node:
        weight = _blank_weight(node, shapes)
        if weight is None:
            kept.append(node)
            continue
        kind = _SUFFIX[weight.data_type]
        name = f"{kind}_{_noise_class(model, weight)}.bin"
        size = _ITEM[kind][1] * math.prod(weight.dims)
        offset = uses.get(name, 0) * _APART_BYTES
        uses[name] = uses.get(name, 0) + 1
        weight.raw_data = b""  # the helper asks for it
        external_data_helper.set_external_data(weight, name, offset, size)
        weight.ClearField("raw_data")
        weights.append(weight)
        sizes[name] = max(sizes.get(name, 0), offset + size)
    replace_nodes(model, kept)
    model.graph.initializer.extend(weights)
    model.ir_version = min(model.ir_version, _NEWEST_IR)
    return bytes(model.SerializeToString()), sizes


def in_half_precision(data: bytes) -> bytes:
    """The same model with half-precision tensors, out of range being the largest number."""
    model = onnx.load_model_from_string(data)
    _retype(model)
    return bytes(model.SerializeToString())


def largest(sizes: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The noise files that several models need together: each as large as the largest use."""
    total: dict[str, int] = {}
    for one in sizes:
        for name, size in one.items():
            total[name] = max(total.get(name, 0), size)
    return total


def block(name: str, seed: int = 0) -> bytes:
    """The numbers that the noise file ``<type>_<class>.bin`` repeats."""
    kind, _, noise = name.removesuffix(".bin").partition("_")
    # A string seeds Python's generator alike in every version; one stream for all scales.
    source = random.Random(f"hybridlat {seed} {noise[0]}")
    values = [source.random() for _ in range(BLOCK)]
    if noise == "p":
        values = [0.5 + v for v in values]
    else:
        width = 2.0 ** -int(noise[1:]) * math.sqrt(3.0) if noise[0] == "w" else 0.02
        values = [(2.0 * v - 1.0) * width for v in values]
    return struct.pack(f"<{BLOCK}{_ITEM[kind][0]}", *values)


def _blank_weight(node: NodeProto, shapes: Mapping[str, list[int]]) -> TensorProto | None:
    """The initializer that a ``ConstantOfShape`` of a known shape stands for."""
    if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
        return None
    value = attribute(node, "value")
    type_ = value.data_type if isinstance(value, TensorProto) else TensorProto.FLOAT
    if type_ not in _SUFFIX:
        return None
    return TensorProto(name=node.output[0], data_type=type_, dims=shapes[node.input[0]])


def _noise_class(model: ModelProto, weight: TensorProto) -> str:
    """Which noise suits a weight, by the operator that reads it first."""
    for node in model.graph.node:
        if weight.name not in node.input:
            continue
        index = list(node.input).index(weight.name)
        if node.op_type in _MATRIX_OPS and index < 2 and len(weight.dims) > 1:
            spread = math.sqrt(2.0 / max(1, _fan_in(node, weight.dims)))
            return f"w{min(9, max(0, round(-math.log2(spread))))}"
        if node.op_type in _POSITIVE_INPUTS:
            return "p" if index in _POSITIVE_INPUTS[node.op_type] else "b"
        return "p" if node.op_type in ("Mul", "Div", "Sqrt", "Pow", "Log") else "b"
    return "b"


def _fan_in(node: NodeProto, shape: Iterable[int]) -> int:
    first, second, *rest = shape
    if node.op_type == "Gemm":
        return second if attribute(node, "transB") else first
    if node.op_type == "MatMul":
        return (first, second, *rest)[-2]
    return math.prod((second, *rest))


def _retype(model: ModelProto) -> None:
    graph = model.graph
    stay_float = {
        node.input[index]
        for node in graph.node
        for index in _ALWAYS_FLOAT.get(node.op_type, ())
        if index < len(node.input)
    }
    for tensor in graph.initializer:
        if tensor.name not in stay_float:
            _halve(tensor)
    for node in graph.node:
        if stay_float.intersection(node.output):
            continue
        for given in node.attribute:
            if given.HasField("t"):
                _halve(given.t)
            if node.op_type == "Cast" and given.name == "to" and given.i == TensorProto.FLOAT:
                given.i = TensorProto.FLOAT16
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.FLOAT16


def _halve(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        values = np.clip(numpy_helper.to_array(tensor), -_LARGEST_HALF, _LARGEST_HALF)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), tensor.name))


# ---- operator set 17 ----------------------------------------------------------------------------


def readable(data: bytes) -> bytes:
    """A model file in set 17 or an older one where it can be written so, else as it is."""
    model = onnx.load_model_from_string(data)
    if opset_of(model) <= NEWEST or not lower(model):
        return data
    return bytes(model.SerializeToString())


def opset_of(model: ModelProto) -> int:
    """The version of ONNX's own operators."""
    return max((o.version for o in model.opset_import if not o.domain), default=1)


def lower(model: ModelProto) -> bool:
    """Rewrite ``model`` in place; whether it is in operator set 17 or an older one now."""
    if opset_of(model) <= NEWEST:
        return True
    graph = model.graph
    axes = {t.name: numpy_helper.to_array(t).tolist() for t in graph.initializer
            if t.data_type == onnx.TensorProto.INT64}  # fmt: skip
    if any(node.op_type in _NEWER or not _can(node, axes) for node in graph.node):
        return False
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "Gelu":
            nodes.extend(_gelu(model, node))
            continue
        if node.op_type in _REDUCE:
            _reduce(node, axes)
        _drop(node, _DEFAULTS.get(node.op_type, ()))
        nodes.append(node)
    replace_nodes(model, nodes)
    for opset in model.opset_import:
        if not opset.domain:
            opset.version = NEWEST
    return True


def replace_nodes(model: ModelProto, nodes: list[NodeProto]) -> None:
    """Give the model these nodes, and drop the initializers that none of them reads."""
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    read = {name for node in kept for name in node.input} | {o.name for o in model.graph.output}
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for index in reversed(range(len(model.graph.initializer))):
        if model.graph.initializer[index].name not in read:
            del model.graph.initializer[index]


def attribute(node: NodeProto, name: str) -> object:
    """The value of an attribute, None where it is not given."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def _can(node: NodeProto, axes: dict[str, list[int]]) -> bool:
    if node.op_type in _REDUCE:  # axes must be known here
        return len(node.input) < 2 or not node.input[1] or node.input[1] in axes
    if node.op_type == "Pad":
        return len(node.input) < 4 or not node.input[3]
    if node.op_type == "Resize":
        return attribute(node, "axes") is None and not attribute(node, "antialias")
    if node.op_type == "AveragePool":
        dilations = attribute(node, "dilations")
        return not isinstance(dilations, list) or set(dilations) <= {1}
    if node.op_type == "Gelu":
        return attribute(node, "approximate") in (None, b"none")
    return True


def _drop(node: NodeProto, names: tuple[str, ...]) -> None:
    kept = [a for a in node.attribute if a.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def _reduce(node: NodeProto, axes: dict[str, list[int]]) -> None:
    given = axes[node.input[1]] if len(node.input) > 1 and node.input[1] else None
    if given is None and attribute(node, "noop_with_empty_axes"):
        node.op_type = "Identity"
        del node.attribute[:]
    _drop(node, ("noop_with_empty_axes",))
    del node.input[1:]
    if given is not None:
        node.attribute.append(helper.make_attribute("axes", given))


def _gelu(model: ModelProto, node: NodeProto) -> list[NodeProto]:
    """x / 2 · (1 + erf(x / √2)), as exporters write it for older sets."""
    x, y = node.input[0], node.output[0]
    for name, value in (("root", 2.0**0.5), ("one", 1.0), ("half", 0.5)):
        tensor = helper.make_tensor(f"{y}/{name}", onnx.TensorProto.FLOAT, (), [value])
        model.graph.initializer.append(tensor)
    steps = (
        ("Div", [x, f"{y}/root"], f"{y}/1"), ("Erf", [f"{y}/1"], f"{y}/2"),
        ("Add", [f"{y}/2", f"{y}/one"], f"{y}/3"), ("Mul", [x, f"{y}/3"], f"{y}/4"),
        ("Mul", [f"{y}/4", f"{y}/half"], y),
    )  # fmt: skip
    return [
        helper.make_node(op, inputs, [out], f"{node.name or y}/{index}")
        for index, (op, inputs, out) in enumerate(steps)
    ]
