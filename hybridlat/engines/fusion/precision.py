"""A network in the precision that an engine computes in: some engines fuse otherwise there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hybridlat.graph.network import Constant, Network, Node, TensorType

# Inputs that ONNX types as float32 whatever the precision of the data: (operator, positions).
_ALWAYS_FLOAT32: Mapping[str, tuple[int, ...]] = {"Resize": (1, 2), "Upsample": (1,)}


def in_half_precision(network: Network) -> Network:
    """The network with float16 in place of float32, as strongly typed engines need it."""
    keep = {
        name
        for node in network.nodes
        for index in _ALWAYS_FLOAT32.get(node.op, ())
        for name in node.inputs[index : index + 1]
    }

    def half(type_: TensorType) -> TensorType:
        return replace(type_, dtype="float16") if type_.dtype == "float32" else type_

    def half_constant(name: str, constant: Constant) -> Constant:
        return constant if name in keep else replace(constant, type=half(constant.type))

    def half_node(node: Node) -> Node:
        if node.op == "Cast" and node.attribute("to") == 1:
            attributes = tuple((k, 10 if k == "to" else v) for k, v in node.attributes)
            return replace(node, attributes=attributes)
        return node

    return replace(
        network,
        nodes=tuple(half_node(node) for node in network.nodes),
        types={name: half(type_) for name, type_ in network.types.items()},
        constants={name: half_constant(name, c) for name, c in network.constants.items()},
    )
