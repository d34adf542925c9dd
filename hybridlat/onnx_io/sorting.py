"""A model's operators in the order in which they can run."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto, NodeProto

from hybridlat.errors import NetworkError
from hybridlat.graph.order import topological_order


def sort(model: ModelProto, label: str) -> None:
    """Put the nodes in topological order; NetworkError for cycles, unknown and repeated tensors."""
    nodes = list(model.graph.node)
    made: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for out in node.output:
            if out and out in made:
                raise NetworkError(f"{label}: the tensor {out!r} is made by two operators")
            if out:
                made[out] = position
    given = {i.name for i in model.graph.input} | {i.name for i in model.graph.initializer}
    for node in nodes:
        for name in node.input:
            if name and name not in made and name not in given:
                raise NetworkError(
                    f"{label}: {node.op_type} {node.name!r} reads the tensor {name!r}, which "
                    "nothing makes"
                )
    needs = [{made[name] for name in node.input if name in made} for node in nodes]
    order = topological_order(needs)
    if len(order) < len(nodes):
        raise NetworkError(
            f"{label}: the graph has a cycle through {_on_a_cycle(nodes, made, set(order))!r}"
        )
    for info in model.graph.output:
        if info.name not in made and info.name not in given:
            raise NetworkError(f"{label}: the output {info.name!r} is made by no operator")
    if order != sorted(order):
        copies = [NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
        del model.graph.node[:]
        model.graph.node.extend(copies)


def _on_a_cycle(nodes: Sequence[NodeProto], made: dict[str, int], free: set[int]) -> str:
    """A tensor on a cycle: the way back through nodes that are not ``free`` ends on one."""
    position = next(i for i in range(len(nodes)) if i not in free)
    name = ""
    for _ in nodes:
        name = next(n for n in nodes[position].input if n in made and made[n] not in free)
        position = made[name]
    return name
