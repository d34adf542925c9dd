"""The branches of an If as operators of the network around it, for a constant condition."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, NodeProto

from hybridlat.onnx_io.nodes import FileNode, read_node, read_tensor
from hybridlat.onnx_io.values import Known, Value

BRANCHES = ("else_branch", "then_branch")
Branch = tuple[list[FileNode], dict[str, Value]]
"""Operators and constants."""


def is_if(node: FileNode) -> bool:
    """Whether an operator runs one of two branches."""
    return node.op == "If" and not node.domain


def taken(node: FileNode, known: Mapping[str, Known]) -> Branch | None:
    """The branch that an If takes whatever the data; None where they decide, or for no If."""
    condition = known.get(node.inputs[0]) if is_if(node) and node.inputs else None
    array = condition.array if isinstance(condition, Value) else None
    is_known = array is not None and array.size == 1
    return branch(node, BRANCHES[bool(array.any())]) if array is not None and is_known else None


def branch(node: FileNode, name: str) -> Branch:
    """The branch of that name; what it makes goes by names of its own, its results by the If's."""
    graph = next((a.g for a in node.proto().attribute if a.name == name), GraphProto())
    prefix = f"{node.name}/{name.partition('_')[0]}/"
    names = {own: prefix + own for own in _own_names(graph)}
    copies = []
    for info, out in zip(graph.output, node.outputs, strict=False):
        if names.get(info.name) == prefix + info.name:
            names[info.name] = out or prefix + info.name
        elif out:
            copies.append(NodeProto(op_type="Identity", input=[info.name]))
            copies[-1].output.append(out)
    tensors = dict(map(read_tensor, graph.initializer))
    constants = {names[own]: value for own, value in tensors.items()}
    nodes = []
    for place, inner in enumerate((*graph.node, *copies)):
        _rename(inner, names)
        inner.name = f"{prefix}{inner.name or inner.op_type}_{place}"
        nodes.append(read_node(inner))
    return [node for node in nodes if any(node.outputs)], constants


def _own_names(graph: GraphProto) -> set[str]:
    made = {out for node in graph.node for out in node.output if out}
    return made.union(tensor.name for tensor in graph.initializer)


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    for field in (node.input, node.output):
        field[:] = [names.get(name, name) for name in field]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = _own_names(graph).union(info.name for info in graph.input)
            outside = {name: new for name, new in names.items() if name not in own}
            for inner in graph.node:
                _rename(inner, outside)
            for info in graph.output:
                info.name = outside.get(info.name, info.name)
