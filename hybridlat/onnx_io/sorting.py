"""A model's operators in the order in which they can run."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from hybridlat.errors import NetworkError


def sort(model: ModelProto, label: str) -> None:
    """Put the nodes in topological order; NetworkError for cycles, unknown and repeated tensors."""
    made: dict[str, int] = {}
    for position, node in enumerate(model.graph.node):
        for out in node.output:
            if out and out in made:
                raise NetworkError(f"{label}: the tensor {out!r} is made by two operators")
            if out:
                made[out] = position
    given = {i.name for i in model.graph.input} | {i.name for i in model.graph.initializer}
    state = [0] * len(model.graph.node)
    order: list[int] = []
    for start in range(len(model.graph.node)):
        stack = [start]
        while stack:
            position = stack[-1]
            if state[position] == 2:
                stack.pop()
                continue
            state[position] = 1
            pending = []
            for name in model.graph.node[position].input:
                if not name or (name in given and name not in made):
                    continue
                if name not in made:
                    node = model.graph.node[position]
                    raise NetworkError(
                        f"{label}: {node.op_type} {node.name!r} reads the tensor {name!r}, which "
                        "nothing makes"
                    )
                source = made[name]
                if state[source] == 1:
                    raise NetworkError(f"{label}: the graph has a cycle through {name!r}")
                if state[source] == 0:
                    pending.append(source)
            if pending:
                stack.append(pending[0])
            else:
                state[position] = 2
                order.append(position)
                stack.pop()
    for info in model.graph.output:
        if info.name not in made and info.name not in given:
            raise NetworkError(f"{label}: the output {info.name!r} is made by no operator")
    if order != sorted(order):
        nodes = [model.graph.node[i] for i in order]
        copies = [NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del model.graph.node[:]
        model.graph.node.extend(copies)
