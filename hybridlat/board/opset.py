"""Write a model in operator set 17, which is the newest that TensorRT 8.6 understands.

Its parser does not refuse a newer one. It reads ReduceMean of set 18 without the axes that have
become an input, and averages over everything: another network, without a word.
"""

import struct
from typing import List

from . import wire
from .onnx_graph import Model, Node, integers_of

NEWEST = 17
_REDUCE = (
    "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
# What set 17 does not have, and nobody would write out of simpler operators.
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
_N_INPUT, _N_OUTPUT, _N_NAME, _N_OP, _N_ATTRIBUTE = 1, 2, 3, 4, 5
_INTS, _INTEGER = 7, 2  # AttributeProto's types


def lower(model: Model) -> bool:
    """Rewrite ``model`` in place; whether it is in operator set 17 or an older one now."""
    if model.opset <= NEWEST:
        return True
    if any(node.op in _NEWER or not _can(model, node) for node in model.nodes):
        return False
    nodes: List[Node] = []
    for node in model.nodes:
        if node.op == "Gelu":
            nodes.extend(_gelu(model, node))
        elif node.op in _REDUCE:
            nodes.append(_reduce(model, node))
        elif any(name in node.attributes for name in _DEFAULTS.get(node.op, ())):
            nodes.append(_without(node, _DEFAULTS[node.op]))
        else:
            nodes.append(node)
    model.nodes = nodes
    model.opset = NEWEST
    return True


def _can(model: Model, node: Node) -> bool:
    if node.op in _REDUCE:  # axes must be known here
        return len(node.inputs) < 2 or not node.inputs[1] or node.inputs[1] in model.initializers
    if node.op == "Pad":
        return len(node.inputs) < 4 or not node.inputs[3]
    if node.op == "Resize":
        return "axes" not in node.attributes and not node.integer("antialias")
    if node.op == "AveragePool":
        found = node.attributes.get("dilations")
        return not found or set(wire.integers(found, 8)) <= {1}
    if node.op == "Gelu":
        return "approximate" not in node.attributes or node.text("approximate") == "none"
    return True


def _reduce(model: Model, node: Node) -> Node:
    axes = (
        integers_of(model.initializers[node.inputs[1]])
        if len(node.inputs) > 1 and node.inputs[1]
        else None
    )
    if axes is None and node.integer("noop_with_empty_axes"):
        return _node("Identity", node.inputs[:1], node.outputs, node.name)
    kept = _without(node, ("noop_with_empty_axes",))
    fields = [f for f in kept.fields if f[0] != _N_INPUT]
    fields.insert(0, (_N_INPUT, wire.BYTES, node.inputs[0].encode("utf-8")))
    if axes is not None:
        body: List[wire.Field] = [(1, wire.BYTES, b"axes")]
        body += [(8, wire.VARINT, axis & (1 << 64) - 1) for axis in axes]
        body.append((20, wire.VARINT, _INTS))
        fields.append((_N_ATTRIBUTE, wire.BYTES, wire.write(body)))
    return Node(fields)


def _without(node: Node, names: "tuple[str, ...]") -> Node:
    fields = []
    for field in node.fields:
        number, _, value = field
        named = number == _N_ATTRIBUTE and isinstance(value, bytes) and _name(value) in names
        if not named:
            fields.append(field)
    return Node(fields)


def _name(attribute: bytes) -> str:
    return wire.text(wire.read(attribute), 1)


def _gelu(model: Model, node: Node) -> List[Node]:
    """x / 2 · (1 + erf(x / √2)), as exporters write it for older sets."""
    x, y = node.inputs[0], node.outputs[0]
    root = model.add_scalar(y + "/root", struct.pack("<f", 2.0**0.5))
    one = model.add_scalar(y + "/one", struct.pack("<f", 1.0))
    half = model.add_scalar(y + "/half", struct.pack("<f", 0.5))
    steps = (
        ("Div", [x, root], y + "/1"), ("Erf", [y + "/1"], y + "/2"),
        ("Add", [y + "/2", one], y + "/3"), ("Mul", [x, y + "/3"], y + "/4"),
        ("Mul", [y + "/4", half], y),
    )  # fmt: skip
    return [
        _node(op, inputs, [out], "%s/%d" % (node.name or y, place))
        for place, (op, inputs, out) in enumerate(steps)
    ]


def _node(op: str, inputs: List[str], outputs: List[str], name: str) -> Node:
    fields: List[wire.Field] = [(_N_INPUT, wire.BYTES, i.encode("utf-8")) for i in inputs]
    fields += [(_N_OUTPUT, wire.BYTES, o.encode("utf-8")) for o in outputs]
    fields.append((_N_NAME, wire.BYTES, name.encode("utf-8")))
    fields.append((_N_OP, wire.BYTES, op.encode("utf-8")))
    return Node(fields)
