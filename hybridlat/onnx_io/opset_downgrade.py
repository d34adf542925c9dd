"""A model in operator set 17, which is the newest that TensorRT 8.6 understands.

Its parser does not refuse a newer one. It reads ReduceMean of set 18 without the axes that have
become an input, and averages over everything: another network, without a word. (onnx's own
version converter leaves attributes that 17 does not know, and has no way down for Split, Pad,
Resize and Gelu.)
"""

from __future__ import annotations

import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

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
