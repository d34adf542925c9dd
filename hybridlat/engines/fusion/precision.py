"""A network in the precision that an engine computes in: some engines fuse otherwise there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hybridlat.graph.network import Constant, Network, Node, TensorType

# Inputs that ONNX types as float32 whatever the precision of the data: (operator, positions).
_LARGEST = 65504.0  # number of 16 bits
_ALWAYS_FLOAT32: Mapping[str, tuple[int, ...]] = {"Resize": (1, 2), "Upsample": (1,)}


def in_half_precision(network: Network) -> Network:
    """The network with float16 in place of float32, as strongly typed engines need it.

    A constant that is out of range becomes the largest number.
    """
    keep = {
        name
        for node in network.nodes
        for index in _ALWAYS_FLOAT32.get(node.op, ())
        for name in node.inputs[index : index + 1]
    }

    def half(type_: TensorType) -> TensorType:
        return type_._replace(dtype="float16") if type_.dtype == "float32" else type_

    def half_constant(name: str, constant: Constant) -> Constant:
        if name in keep or constant.type.dtype != "float32":
            return constant
        values = constant.values and tuple(
            [min(max(v, -_LARGEST), _LARGEST) for v in constant.values]
        )
        return Constant(half(constant.type), values)

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


def without_quantisation(network: Network) -> tuple[Network, tuple[int, ...]]:
    """The network as it was before it was quantised, and its nodes' positions in what is given.

    Engines take QuantizeLinear and DequantizeLinear for a note of where to compute in whole numbers
    and run neither between two kernels that do.
    """
    stands_for: dict[str, str] = {}
    kept: list[int] = []
    constants = dict(network.constants)
    for position, node in enumerate(network.nodes):
        if node.op not in ("QuantizeLinear", "DequantizeLinear") or node.domain:
            kept.append(position)
            continue
        source, made = node.inputs[0], node.outputs[0]
        if source in constants:  # a weight that is stored in whole numbers
            constants[made] = Constant(network.types[made])
        elif network.type_of(stands_for.get(source, source)).dtype in _INTEGERS:
            kept.append(position)  # whole numbers from outside: they have to become floats
        else:
            stands_for[made] = stands_for.get(source, source)
    gone = {name for name in stands_for if name in network.outputs}
    if len(kept) == len(network.nodes):
        return network, tuple(kept)

    def real(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(stands_for.get(name, name) for name in names)

    nodes = tuple(replace(network.nodes[i], inputs=real(network.nodes[i].inputs)) for i in kept)
    outputs = tuple(dict.fromkeys(real(network.outputs) if gone else network.outputs))
    read = {name for node in nodes for name in node.inputs}
    made_now = {*network.inputs, *(out for node in nodes for out in node.outputs)}
    plain = replace(
        network,
        nodes=nodes,
        outputs=outputs,
        types={name: type_ for name, type_ in network.types.items() if name in made_now},
        constants={name: c for name, c in constants.items() if name in read},
    )
    return plain, tuple(kept)


_INTEGERS = ("int8", "uint8", "int16", "uint16")
