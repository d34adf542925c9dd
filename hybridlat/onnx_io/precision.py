"""The precision that a file's network computes in, as far as the file decides it.

What counts are the operators that contract (convolutions and products): everything else is small
beside them. Nothing here needs shapes or weights, so that it costs next to nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from onnx import ModelProto, NodeProto

from hybridlat.errors import NetworkError
from hybridlat.graph.operators import KINDS, is_quantised, kind_of
from hybridlat.onnx_io.facts import FilePrecision
from hybridlat.onnx_io.values import dtype_name

_OF_TYPE = {"float32": "fp32", "float64": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_KEEP_TYPE = ("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Dropout")
_LONGEST_CHAIN = 8  # of such operators; in a damaged file they may bite their own tail
_CONTRACT = (KINDS["conv"], KINDS["matmul"])


def precision_of(model: ModelProto) -> FilePrecision:
    """The precision of every convolution and product of a model, counted."""
    makers = {out: node for node in model.graph.node for out in node.output if out}
    types = {t.name: _dtype(t.data_type) for t in model.graph.initializer}
    for info in model.graph.input:
        if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type:
            types.setdefault(info.name, _dtype(info.type.tensor_type.elem_type))
    for node in model.graph.node:  # in topological order in all but odd files
        made = _made_type(node, types)
        if made:
            types.update(dict.fromkeys((out for out in node.output if out), made))
    counts = Counter(
        _precision(node, makers, types)
        for node in model.graph.node
        if kind_of(node.op_type) in _CONTRACT
    )
    return FilePrecision(dict(counts))


def _precision(node: NodeProto, makers: Mapping[str, NodeProto], types: Mapping[str, str]) -> str:
    if is_quantised(node.op_type):
        return "int8"
    operands = [name for name in node.input[:2] if name]
    if operands and all(_is_dequantised(name, makers, types) for name in operands):
        return "int8"
    for name in reversed(operands):  # the weight tells best
        if types.get(name) in _OF_TYPE:
            return _OF_TYPE[types[name]]
    return "fp32"


def _is_dequantised(name: str, makers: Mapping[str, NodeProto], types: Mapping[str, str]) -> bool:
    """Whether a tensor was whole numbers of 8 bits just before; those of 16 save nothing."""
    for _ in range(_LONGEST_CHAIN):
        node = makers.get(name)
        if node is None or not node.input:
            return False
        name = node.input[0]
        if node.op_type == "DequantizeLinear":
            return types.get(name, "int8") in ("int8", "uint8", "int4", "uint4")
        if node.op_type not in _KEEP_TYPE:
            return False
    return False


def _made_type(node: NodeProto, types: Mapping[str, str]) -> str:
    """Element type of what an operator makes; empty where it is unknown."""
    if node.op_type in ("Cast", "Constant", "ConstantOfShape"):
        for attribute in node.attribute:
            if attribute.name == "to":
                return _dtype(attribute.i)
            if attribute.HasField("t"):
                return _dtype(attribute.t.data_type)
        return "float32"
    if node.op_type == "QuantizeLinear":
        for attribute in node.attribute:
            if attribute.name == "output_dtype" and attribute.i:
                return _dtype(attribute.i)
        return types.get(node.input[2], "uint8") if len(node.input) > 2 else "uint8"
    if node.op_type == "DynamicQuantizeLinear":
        return "uint8"
    if node.op_type == "DequantizeLinear":
        return types.get(node.input[1], "float32") if len(node.input) > 1 else "float32"
    known = (types.get(name) for name in node.input if name)
    return next((dtype for dtype in known if dtype in _OF_TYPE), "")


def _dtype(data_type: int) -> str:
    """Name of an element type; empty where ONNX has no such type."""
    try:
        return dtype_name(data_type)
    except NetworkError:
        return ""
