"""Operators out of fused kernels again: no engine takes a kernel of the domain ``fused``.

Most fused kernels are a main operator and what is done to its result, and their operators, in file
order, say how they are wired: each reads what the one before it made, a second operand comes from
the kernel's inputs where one is left, else from inside (x·sigmoid(x)). All others carry ``wires``:
one line of JSON for each operator, ``[operator, version, inputs, types of outputs, attributes]``,
then one with the kernel's outputs. There ``i2`` is the kernel's third input, ``1.0`` the first
output of the second operator.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hybridlat.errors import MeasurementError
from hybridlat.graph.network import AttributeValue, Network, Node, TensorType
from hybridlat.graph.operators import COMMUTES, SET, named, plain_version

DOMAIN = "fused"
# Which operator of a kernel decides what it costs: the first of these that it holds.
BY_WEIGHT = (
    ("Conv", "ConvTranspose", "Gemm", "MatMul"),
    ("MaxPool", "AveragePool", "LRN", "LayerNormalization", "InstanceNormalization", "Resize"),
    ("GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceSum", "ReduceMax", "Softmax"),
    ("Transpose", "Concat", "Split", "Slice", "Pad", "Gather"),
)
# Operators whose result has the type of what they read first (broadcasts aside).
_SAME_TYPE = named(
    "Relu LeakyRelu Clip Sigmoid Tanh PRelu Elu HardSwish HardSigmoid Erf Add Sub Mul Div Sum Sqrt "
    "BatchNormalization Identity Softmax LayerNormalization InstanceNormalization Pow Exp Neg Abs "
    "Min Max Softplus Gelu Mish"
)
_BINARY = frozenset({"Add", "Sub", "Mul", "Div", "Sum", "Pow", "Min", "Max"})
_PARAMETERS = {"BatchNormalization": 4, "PRelu": 1, "LayerNormalization": 2,
               "InstanceNormalization": 2, "Clip": 2}  # fmt: skip


def unfuse(network: Network) -> Network:
    """The network with every fused kernel written as the operators it holds.

    Raises MeasurementError for a kernel whose wires do not follow from its operators.
    """
    nodes: list[Node] = []
    types = dict(network.types)
    for node in network.nodes:
        if node.domain != DOMAIN:
            nodes.append(node)
        elif node.attribute("wires") is not None:
            nodes.extend(_wired(node, types))
        else:
            nodes.extend(implied(network, node, types))
    return replace(network, nodes=tuple(nodes), types=types)


def main_place(ops: Sequence[str]) -> int:
    """The operator that decides what a kernel costs; the first one where none stands out."""
    return next((i for group in BY_WEIGHT for i, op in enumerate(ops) if op in group), 0)


def wiring_of(members: Sequence[Node], kernel: Node, network: Network) -> tuple[str, ...]:
    """The ``wires`` of a kernel: how its operators hang together."""
    names = {name: f"i{index}" for index, name in enumerate(kernel.inputs) if name}
    lines = []
    for k, node in enumerate(members):
        inputs = [names[name] if name else "" for name in node.inputs]
        if node.op in COMMUTES and not node.domain:
            inputs.sort()
        for index, out in enumerate(node.outputs):
            names[out] = f"{k}.{index}"
        made = [str(network.types[o]) if o else "" for o in node.outputs]
        lines.append([node.qualified_op, node.version, inputs, made, dict(node.attributes)])
    outputs = [[names[out] for out in kernel.outputs]]
    return tuple(json.dumps(line, separators=(",", ":")) for line in (*lines, *outputs))


def _wired(kernel: Node, types: dict[str, TensorType]) -> list[Node]:
    wiring = kernel.attribute("wires")
    assert isinstance(wiring, tuple)
    *lines, outputs = (json.loads(str(line)) for line in wiring)
    names = {"": "", **{f"i{index}": name for index, name in enumerate(kernel.inputs)}}
    outputs_of = dict(zip(outputs, kernel.outputs, strict=True))
    nodes: list[Node] = []
    for k, (op, version, inputs, made, attributes) in enumerate(lines):
        results = []
        for index, type_ in enumerate(made):
            key = f"{k}.{index}"
            name = outputs_of.get(key) or (f"{kernel.name}__{key}" if type_ else "")
            names[key] = name
            results.append(name)
            if type_:
                types[name] = _type(type_)
        read = tuple([names[i] for i in inputs])
        plain = tuple((a, tuple(v) if isinstance(v, list) else v) for a, v in attributes.items())
        domain, _, op = op.rpartition("::")
        node = Node(f"{kernel.name}__{k}", op, read, tuple(results), plain, domain, version)
        nodes.append(node)
    return nodes


def _type(text: str) -> TensorType:
    dtype, _, shape = text.removesuffix("]").partition("[")
    return TensorType(dtype, tuple(int(d) for d in shape.split("x")) if shape else ())


def implied(network: Network, kernel: Node, types: dict[str, TensorType]) -> list[Node]:
    """The operators of a kernel without ``wires``; MeasurementError where they say too little."""
    ops = kernel.attribute("fused", ())
    names = [str(op) for op in ops] if isinstance(ops, tuple) else []
    is_chain = main_place(names) == 0 and _SAME_TYPE.issuperset(names[1:])
    if len(kernel.outputs) != 1 or not is_chain:
        raise _cannot(kernel)
    left = list(kernel.inputs)
    out_type = network.types[kernel.outputs[0]]
    made: list[str] = []
    nodes = []
    for index, op in enumerate(names):
        inputs = _main_inputs(network, names, left) if index == 0 else [made[-1]]
        if index:
            inputs += _further_inputs(network, kernel, op, left, made)
        last = index == len(names) - 1
        out = kernel.outputs[0] if last else f"{kernel.outputs[0]}__{index}"
        types[out] = out_type
        made.append(out)
        name, attributes = f"{kernel.name}__{index}", _attributes(kernel, op, index)
        version = plain_version(op, SET, {})
        nodes.append(Node(name, op, tuple(inputs), (out,), attributes, version=version))
    if left:
        raise _cannot(kernel)
    return nodes


def _main_inputs(network: Network, names: list[str], left: list[str]) -> list[str]:
    """The data, the weight, and a bias where a vector is left that no later operator needs."""
    op = names[0]
    inputs = [left.pop(0)]
    if op in ("Conv", "ConvTranspose", "Gemm", "MatMul") and left:
        inputs.append(left.pop(0))
        vectors = sum(1 for name in left if name in network.constants)
        needed = sum(_PARAMETERS.get(later, 0) for later in names[1:] if later != "Clip")
        bias = network.constants.get(left[0]) if left and op != "MatMul" else None
        if bias is not None and len(bias.type.shape) == 1 and vectors > needed:
            inputs.append(left.pop(0))
    elif op in _BINARY and left:
        inputs.append(left.pop(0))
    else:
        while left and left[0] in network.constants:
            inputs.append(left.pop(0))
    return inputs


def _further_inputs(
    network: Network, kernel: Node, op: str, left: list[str], made: list[str]
) -> list[str]:
    if op in _BINARY:
        if left:
            return [left.pop(0)]
        data = network.types.get(kernel.inputs[0])
        if op != "Mul" and data == network.types[kernel.outputs[0]]:
            return [kernel.inputs[0]]  # the kernel's own input is added to its result
        if len(made) > 1:
            return [made[-2]]
        raise _cannot(kernel)
    inputs: list[str] = []
    for _ in range(_PARAMETERS.get(op, 0)):
        if not left or left[0] not in network.constants:
            break
        inputs.append(left.pop(0))
    return inputs


def _attributes(kernel: Node, op: str, index: int) -> tuple[tuple[str, AttributeValue], ...]:
    prefix = f"{index}.{op}."
    if index == 0:
        return tuple((k, v) for k, v in kernel.attributes if k != "fused" and "." not in k)
    return tuple((k.removeprefix(prefix), v) for k, v in kernel.attributes if k.startswith(prefix))


def _cannot(kernel: Node) -> MeasurementError:
    return MeasurementError(
        f"the kernel {kernel.op} cannot be built by itself from its signature: "
        "measure it from its file with `hybridlat plan`"
    )
