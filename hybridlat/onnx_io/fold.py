"""Operators that only compute constants, replaced by their results."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, ValueInfoProto
from onnx.reference import ReferenceEvaluator

from hybridlat.errors import NetworkError
from hybridlat.graph.network import TensorType
from hybridlat.graph.operators import KINDS, kind_of
from hybridlat.onnx_io.values import INTEGERS, Value, dtype_name

MAX_FOLDED_ELEMENTS = 65_536
# Only operators of shape arithmetic are computed: all others may take any memory or time on the
# way (the padding of a convolution, the indices of an Einsum), however small their results are.
_COMPUTED_KINDS = frozenset({KINDS["pointwise"], KINDS["reduce"], KINDS["move"]})
_COMPUTED = frozenset({
    "MatMul", "Gemm", "Mod", "Sign", "Sin", "Cos", "Xor", "OneHot", "EyeLike", "CastLike", "Trilu",
    "IsNaN", "IsInf", "BitShift", "ScatterElements", "GreaterOrEqual", "LessOrEqual", "ReduceL1",
    "ReduceLogSum", "ReduceLogSumExp",
})  # fmt: skip
_NOT_COMPUTED = frozenset({"Resize", "Upsample", "Dropout"})
# The sizes of their results are not known beforehand, but never larger than those of the inputs.
_SHRINK = frozenset({"NonZero", "Compress", "Unique"})
# What onnx's reference evaluation raises where it has a gap, or a node no sense: its own errors
# are RuntimeErrors; numpy's and Python's come from the operators' bodies.
REFERENCE_ERRORS = (
    RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError,
    AssertionError, ImportError, MemoryError,
)  # fmt: skip

_log = logging.getLogger(__name__)


def fold_node(
    node: NodeProto,
    values: Mapping[str, Value],
    types: Mapping[str, TensorType],
    opsets: Mapping[str, int],
) -> dict[str, Value] | None:
    """The results of a constant ``node`` (values, or weights of known type), else None."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if any(attribute.HasField("g") for attribute in node.attribute):
        return None  # its branches may read what it does not name
    if node.op_type == "DequantizeLinear":
        return None  # engines keep weights in whole numbers, and fuse this with what reads them
    if node.op_type == "Constant":
        return {node.output[0]: constant_node(node)}
    if node.op_type in ("Shape", "Size") and node.input:
        source = values.get(node.input[0])
        type_ = source.type if source else types.get(node.input[0])
        return _shape_of(node, type_) if type_ else None
    sources = [values.get(name) for name in node.input if name]
    if not sources or any(source is None for source in sources):
        return None
    outputs = [name for name in node.output if name]
    arrays = [values[n].array if n else None for n in node.input]
    known = all(a is not None for n, a in zip(node.input, arrays, strict=True) if n)
    if known and _is_cheap(node, sources, [types.get(name) for name in outputs]):
        result = _evaluate(node, arrays, opsets)
        if result is not None:
            return result
        if any(types[o].dtype in INTEGERS for o in outputs if o in types):
            return None  # sizes and indices are nothing without their values: the engine folds it
    if all(name in types for name in outputs):
        return {name: Value(types[name], None) for name in outputs}
    if node.op_type == "ConstantOfShape" and known:
        return _constant_of_shape(node, arrays[0])
    return None


def _is_cheap(
    node: NodeProto, sources: Sequence[Value | None], results: Sequence[TensorType | None]
) -> bool:
    """Whether an operator is computed in little memory and time, as far as its types tell."""
    op = node.op_type
    if op in _SHRINK:
        return all(s is not None and s.type.elements <= MAX_FOLDED_ELEMENTS for s in sources)
    if op not in _COMPUTED and (op in _NOT_COMPUTED or kind_of(op) not in _COMPUTED_KINDS):
        return False
    return all(type_ and 0 <= type_.elements <= MAX_FOLDED_ELEMENTS for type_ in results)


def _constant_of_shape(node: NodeProto, shape: NDArray[Any] | None) -> dict[str, Value]:
    """A weight: exporters that leave weights out write it so."""
    assert shape is not None
    dtype = "float32"
    for attribute in node.attribute:
        if attribute.name == "value":
            dtype = dtype_name(attribute.t.data_type)
    sizes = tuple(int(d) for d in shape.reshape(-1))
    return {node.output[0]: Value(TensorType(dtype, sizes), None)}


def constant_node(node: NodeProto) -> Value:
    """The value of a Constant; NetworkError where it has none that can be read."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            return Value.of_tensor(attribute.t)
        if attribute.name == "value_int":
            return Value.of_array(np.array(attribute.i, dtype=np.int64))
        if attribute.name == "value_ints":
            return Value.of_array(np.array(attribute.ints, dtype=np.int64))
        if attribute.name == "value_float":
            return Value.of_array(np.array(attribute.f, dtype=np.float32))
        if attribute.name == "value_floats":
            return Value.of_array(np.array(attribute.floats, dtype=np.float32))
    raise NetworkError(
        f"the Constant {node.name!r} has no value that can be read (a sparse tensor or text): "
        "export it as a tensor"
    )


def _shape_of(node: NodeProto, type_: TensorType) -> dict[str, Value]:
    if node.op_type == "Size":
        return {node.output[0]: Value.of_array(np.array(type_.elements, dtype=np.int64))}
    limits = {a.name: a.i for a in node.attribute}
    dims = type_.shape[limits.get("start", 0) : limits.get("end", len(type_.shape))]
    return {node.output[0]: Value.of_array(np.array(dims, dtype=np.int64))}


def _evaluate(
    node: NodeProto, inputs: list[NDArray[Any] | None], opsets: Mapping[str, int]
) -> dict[str, Value] | None:
    """Run one operator with onnx's reference implementation; None where it cannot.

    The node stands in a graph of its own: a bare node would be read as one of the newest opset.
    """
    graph = GraphProto(name="folded", node=[node])
    feeds: dict[str, NDArray[Any]] = {}
    for name, array in zip(node.input, inputs, strict=True):
        if name and array is not None and name not in feeds:
            feeds[name] = array
            graph.input.append(ValueInfoProto(name=name))
    outputs = [name for name in node.output if name]
    graph.output.extend(ValueInfoProto(name=name) for name in outputs)
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(graph, dict(opsets)).run(None, feeds)
    except REFERENCE_ERRORS as error:
        kind = type(error).__name__
        _log.debug("%s %r is not folded: %s: %s", node.op_type, node.name, kind, error)
        return None
    arrays = [np.asarray(array) for array in results if not isinstance(array, list)]
    if len(arrays) < len(outputs) or any(array.dtype.kind in "OUS" for array in arrays):
        return None  # a sequence, or text
    return {name: Value.of_array(array) for name, array in zip(outputs, arrays, strict=True)}
