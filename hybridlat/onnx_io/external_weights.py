"""Weights that no file carries: every initializer points into a few shared files of noise.

An architecture-only model says its weights as ``ConstantOfShape``. Engines fold those to constants,
and constant data runs faster on a GPU than real data does. ``prepare`` turns each into an
initializer with ONNX external data whose bytes lie in a noise file. A noise file is one block of
seeded numbers repeated until it is large enough for the largest weight, so a plan carries the block
(256 KB) and the board makes the file, with ``cat`` if it has nothing else. The block's length is a
prime, so that rows of a weight do not line up. The engine copies what it reads, so weights that
overlap in a file are apart on the device.

Classes of noise: ``w3`` uniform with standard deviation 2**-3 (weights, by He's rule from the
fan-in), ``p`` in 0.5..1.5 (scales, variances), ``b`` small (biases, means).
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, external_data_helper, numpy_helper

from hybridlat.onnx_io.opset_downgrade import attribute, lower, replace_nodes

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
