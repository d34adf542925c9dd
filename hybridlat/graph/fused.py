"""Kernels that hold several operators, each a node of the domain ``fused``, and the way back.

Such a kernel is called by its operators in file order (``Conv+Add+Relu``) and lists them as
``fused``. It has the attributes of its main operator under their own names, those of the others as
``<place>.<operator>.<name>``. Each operator reads what the one before it made; a second operand
comes from the kernel's inputs where one is left, else from inside (x·sigmoid(x)). A kernel whose
operators hang together otherwise carries ``wires``: one line of JSON for each operator,
``[operator, version, inputs, types of outputs, attributes]``, then one with the kernel's outputs.
There ``i2`` is the kernel's third input, ``1.0`` the first output of the second operator.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

from hybridlat.errors import MeasurementError
from hybridlat.graph.network import AttributeValue, Network, Node, TensorType
from hybridlat.graph.operators import COMMUTES, KINDS, SET, activation_class, kind_of, named
from hybridlat.graph.operators import plain_version as version_of

_DOMAIN = "fused"
# Which operator of a kernel decides what it costs: the first of these that it holds.
_BY_WEIGHT = (
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
_BINARY = named("Add Sub Mul Div Sum Pow Min Max")
_PARAMETERS = {"BatchNormalization": 4, "PRelu": 1}
_PARAMETERS |= dict.fromkeys(("LayerNormalization", "InstanceNormalization", "Clip"), 2)
_FREE = named("BatchNormalization Add Sum Identity Dropout Cast")


def main_operator(members: Sequence[Node]) -> Node:
    """The operator that decides what a kernel costs; the first one where none stands out."""
    return members[_main_place([node.op for node in members])]


def _main_place(ops: Sequence[str]) -> int:
    return next((i for group in _BY_WEIGHT for i, op in enumerate(ops) if op in group), 0)


def fuse(
    members: Sequence[Node],
    whole: Sequence[Node],
    inputs: Sequence[str],
    outputs: Sequence[str],
    network: Network,
) -> Node:
    """The kernel of these operators, in file order; ``whole`` are they and views inside."""
    main = main_operator(members)
    ops = tuple(node.op for node in members)
    attributes: dict[str, AttributeValue] = {"fused": ops, **dict(main.attributes)}
    for place, node in enumerate(members):
        if node is not main:
            attributes.update((f"{place}.{node.op}.{k}", v) for k, v in node.attributes)

    def kernel() -> Node:
        ordered = tuple(sorted(attributes.items()))
        return Node(main.name, "+".join(ops), tuple(inputs), tuple(outputs), ordered, _DOMAIN, 1)

    if len(whole) > len(members) or not _follows(kernel(), members, network):
        attributes["wires"] = _wires(whole, kernel(), network)
    return kernel()


def unfuse(network: Network) -> Network:
    """The network with every fused kernel written as the operators it holds.

    Raises MeasurementError for a kernel whose wires do not follow from its operators.
    """
    nodes: list[Node] = []
    types = dict(network.types)
    for node in network.nodes:
        if node.domain != _DOMAIN:
            nodes.append(node)
        elif node.attribute("wires") is not None:
            nodes += _wired(node, types)
        elif implied := _implied(network, node, types):
            nodes += implied
        else:
            raise MeasurementError(
                f"the kernel {node.op} cannot be built by itself from its signature: "
                "measure it from its file with `hybridlat plan`"
            )
    return replace(network, nodes=tuple(nodes), types=types)


def joined_inputs(kernel: Node) -> list[list[str]]:
    """The inputs that a kernel reads as one, since an engine writes them into a longer tensor."""
    wires, fused = kernel.attribute("wires"), kernel.attribute("fused", ())
    if not isinstance(wires, tuple) or not isinstance(fused, tuple) or "Concat" in fused:
        return []
    tensors = {f"i{index}": [name] for index, name in enumerate(kernel.inputs)}
    for place, wire in enumerate(wires):
        if str(wire).startswith('["Concat"'):
            names = json.loads(str(wire))[2]
            tensors[f"{place}.0"] = [part for name in names for part in tensors.get(name, ())]
    return [parts for name, parts in tensors.items() if parts and not name.startswith("i")]


# ---- what a kernel costs ----


@dataclass(frozen=True, slots=True)
class Fusion:
    """A kernel that computes several operators of a file, as far as its cost goes.

    ``op`` is the operator that decides the cost, ``adds`` says whether a sum is among the others,
    ``activation`` the class of what is done to each element on the way out.
    """

    op: str
    adds: bool
    activation: int


@lru_cache(maxsize=4096)
def fusion(qualified_op: str) -> Fusion | None:
    """What a fused kernel is (``fused::Conv+Add+Relu``); None for any other.

    Normalisation folds into the weights. A chain of pointwise operators is one kind of kernel,
    whatever its links. A convolution or product that reads through a transpose or pools its result
    is that alone, and so are several that run as one. Two products with a softmax between them are
    attention. Other operators that both cost are a kind of their own.
    """
    domain, _, name = qualified_op.rpartition("::")
    if domain != _DOMAIN:
        return None
    members = name.split("+")
    heavy = [op for op in members if kind_of(op) not in (KINDS["pointwise"], KINDS["other"])]
    light = [op for op in members if kind_of(op) in (KINDS["pointwise"], KINDS["other"])]
    cost = max((activation_class(op) for op in light if op not in _FREE), default=0)
    unknown = [op for op in light if kind_of(op) == KINDS["other"]]
    contracting = [op for op in heavy if kind_of(op) <= KINDS["matmul"]]
    if len(contracting) == 2 and "Conv" not in heavy and "Softmax" in heavy:
        return Fusion("Attention", False, 0)
    reorders = heavy == ["Transpose", *contracting] and len(contracting) == 1
    if reorders or set(heavy) == {"Conv"} or heavy == ["Conv", "MaxPool"]:
        heavy = contracting[:1]
    main = "+".join(heavy + unknown) or "Pointwise"
    return Fusion(main, "Add" in members or "Sum" in members, cost)


# ---- kernels that say how their operators hang together ----


def _wires(members: Sequence[Node], kernel: Node, network: Network) -> tuple[str, ...]:
    names = {name: f"i{index}" for index, name in enumerate(kernel.inputs) if name}
    lines: list[list[object]] = []
    for place, node in enumerate(members):
        inputs = [names[name] if name else "" for name in node.inputs]
        if node.op in COMMUTES and not node.domain:
            inputs.sort()
        names.update((out, f"{place}.{index}") for index, out in enumerate(node.outputs))
        made = [str(network.types[out]) if out else "" for out in node.outputs]
        lines.append([node.qualified_op, node.version, inputs, made, dict(node.attributes)])
    lines.append([names[out] for out in kernel.outputs])
    return tuple(json.dumps(line, separators=(",", ":")) for line in lines)


def _wired(kernel: Node, types: dict[str, TensorType]) -> list[Node]:
    wires = kernel.attribute("wires")
    assert isinstance(wires, tuple)
    *lines, outputs = (json.loads(str(line)) for line in wires)
    names = {"": "", **{f"i{index}": name for index, name in enumerate(kernel.inputs)}}
    outputs_of = dict(zip(outputs, kernel.outputs, strict=True))
    nodes: list[Node] = []
    for place, (op, version, inputs, made, attributes) in enumerate(lines):
        read, results = tuple([names[i] for i in inputs]), []
        for index, type_ in enumerate(made):
            key = f"{place}.{index}"
            name = outputs_of.get(key) or (f"{kernel.name}__{key}" if type_ else "")
            names[key] = name
            results.append(name)
            if type_:
                dtype, _, sizes = type_.removesuffix("]").partition("[")
                types[name] = TensorType.of(dtype, sizes)
        plain = tuple((a, tuple(v) if isinstance(v, list) else v) for a, v in attributes.items())
        domain, _, op = op.rpartition("::")
        name = f"{kernel.name}__{place}"
        nodes.append(Node(name, op, read, tuple(results), plain, domain, version))
    return nodes


# ---- kernels whose operators tell it ----


def _follows(kernel: Node, members: Sequence[Node], network: Network) -> bool:
    if kernel.outputs != members[-1].outputs or any(node.domain for node in members):
        return False
    types = {network.types[out] for node in members for out in node.outputs if out}
    is_one_type = types == {network.types[kernel.outputs[0]]}
    return is_one_type and _links(_implied(network, kernel, {})) == _links(members)


def _links(nodes: Sequence[Node]) -> list[list[str]]:
    """What each operator reads, results by number; terms in any order."""
    names: dict[str, str] = {}
    links = []
    for place, node in enumerate(nodes):
        read = [names.get(name, name) for name in node.inputs]
        links.append(sorted(read) if node.op in COMMUTES else read)
        names.update((out, f"{place}.{i}") for i, out in enumerate(node.outputs) if out)
    return links


def _implied(network: Network, kernel: Node, types: dict[str, TensorType]) -> list[Node]:
    """The operators of a kernel without ``wires``; none where they say too little."""
    fused = kernel.attribute("fused", ())
    ops = list(map(str, fused)) if isinstance(fused, tuple) else []
    if len(kernel.outputs) != 1 or _main_place(ops) or not _SAME_TYPE.issuperset(ops[1:]):
        return []
    left, (result,) = list(kernel.inputs), kernel.outputs
    made: list[str] = []
    nodes = []
    for place, op in enumerate(ops):
        inputs = made[-1:] or [left.pop(0)]
        inputs += _operands(network, kernel, ops[place:], left, made)
        if made and op in _BINARY and len(inputs) < 2:
            return []
        made.append(result if place == len(ops) - 1 else f"{result}__{place}")
        types[made[-1]] = network.types[result]
        prefix = f"{place}.{op}." if place else ""
        own = [(k.removeprefix(prefix), v) for k, v in kernel.attributes if k.startswith(prefix)]
        attributes = tuple([(k, v) for k, v in own if k != "fused" and "." not in k])
        name, version = f"{kernel.name}__{place}", version_of(op, SET, {})
        nodes.append(Node(name, op, tuple(inputs), (made[-1],), attributes, version=version))
    return [] if left else nodes


def _operands(
    network: Network, kernel: Node, ops: list[str], left: list[str], made: list[str]
) -> list[str]:
    """What the first of ``ops`` reads besides what goes through all of them, out of ``left``.

    A convolution has a bias where a vector is left that no later operator needs. Where nothing is
    left the kernel's own input is added to its result, or what was made two operators before.
    """
    op, constants = ops[0], network.constants
    if op in _BINARY:
        if left or not made:
            return [left.pop(0) for _ in left[:1]]
        is_same = network.types.get(kernel.inputs[0]) == network.types[kernel.outputs[0]]
        return [kernel.inputs[0]] if op != "Mul" and is_same else made[-2:-1]
    most = _PARAMETERS.get(op, 0) if made else len(left)
    if not made and op in _BY_WEIGHT[0] and left:
        vectors = sum(name in constants for name in left[1:])
        needed = sum(_PARAMETERS.get(later, 0) for later in ops[1:] if later != "Clip")
        bias = constants.get("".join(left[1:2])) if op != "MatMul" else None
        has_bias = bias is not None and len(bias.type.shape) == 1 and vectors > needed
        return [left.pop(0) for _ in range(2 if has_bias else 1)]
    return [left.pop(0) for _ in takewhile(constants.__contains__, left[:most])]
