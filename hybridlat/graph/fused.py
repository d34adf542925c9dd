"""Kernels that hold several operators, each a node of the domain ``fused``.

Such a kernel is called by its operators in file order (``Conv+Add+Relu``) and lists them as
``fused``. It has the attributes of its main operator under their own names, those of the others as
``<place>.<operator>.<name>``. Each operator reads what the one before it made; a second operand
comes from the kernel's inputs where one is left, else from inside (x·sigmoid(x)). A kernel whose
operators hang together otherwise carries ``wires``: one line of JSON for each operator,
``[operator, version, inputs, types of outputs, attributes]``, then one with the kernel's outputs.
There ``i2`` is the kernel's third input, ``1.0`` the first output of the second operator.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from hybridlat.graph.network import AttributeValue, Network, Node
from hybridlat.graph.operators import COMMUTES, KINDS, activation_class, contracts, kind_of, named

Nodes = Sequence[Node]
Names = Sequence[str]
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


def main_operator(members: Nodes) -> Node:
    """The operator that decides what a kernel costs; the first one where none stands out."""
    return members[_main_place([node.op for node in members])]


def _main_place(ops: Names) -> int:
    return next((i for group in _BY_WEIGHT for i, op in enumerate(ops) if op in group), 0)


def fuse(members: Nodes, whole: Nodes, inputs: Names, outputs: Names, network: Network) -> Node:
    """The kernel of these operators, in file order; ``whole`` are they and views inside."""
    main = main_operator(members)
    ops = tuple(node.op for node in members)
    attributes: dict[str, AttributeValue] = {"fused": ops, **dict(main.attributes)}
    for place, node in enumerate(members):
        if node is not main:
            attributes.update((f"{place}.{node.op}.{k}", v) for k, v in node.attributes)
    if len(whole) > len(members) or not _follows(members, inputs, outputs, network):
        attributes["wires"] = _wires(whole, inputs, outputs, network)
    ordered = tuple(sorted(attributes.items()))
    return Node(main.name, "+".join(ops), tuple(inputs), tuple(outputs), ordered, _DOMAIN, 1)


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


class Fusion(NamedTuple):
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
    members, pointwise, other = name.split("+"), KINDS["pointwise"], KINDS["other"]
    heavy = [op for op in members if kind_of(op) not in (pointwise, other)]
    light = [op for op in members if op not in heavy]
    cost = max((activation_class(op) for op in light if op not in _FREE), default=0)
    unknown = [op for op in light if kind_of(op) == other]
    contracting = [op for op in heavy if contracts(op)]
    if len(contracting) == 2 and "Conv" not in heavy and "Softmax" in heavy:
        return Fusion("Attention", False, 0)
    reorders = heavy == ["Transpose", *contracting] and len(contracting) == 1
    if reorders or set(heavy) == {"Conv"} or heavy == ["Conv", "MaxPool"]:
        heavy = contracting[:1]
    main = "+".join(heavy + unknown) or "Pointwise"
    return Fusion(main, "Add" in members or "Sum" in members, cost)


# ---- how the operators of a kernel hang together ----


def _wires(members: Nodes, inputs: Names, outputs: Names, network: Network) -> tuple[str, ...]:
    names = {name: f"i{index}" for index, name in enumerate(inputs) if name}
    lines: list[list[object]] = []
    for place, node in enumerate(members):
        read = _terms(node.op, [names[name] if name else "" for name in node.inputs], node.domain)
        names.update((out, f"{place}.{index}") for index, out in enumerate(node.outputs))
        made = [str(network.types[out]) if out else "" for out in node.outputs]
        lines.append([node.qualified_op, node.version, read, made, dict(node.attributes)])
    lines.append([names[out] for out in outputs])
    return tuple(json.dumps(line, separators=(",", ":")) for line in lines)


def _terms(op: str, read: list[str], domain: str = "") -> list[str]:
    """What an operator reads, the terms of a sum or product in one order."""
    return sorted(read) if op in COMMUTES and not domain else read


def _follows(members: Nodes, inputs: Names, outputs: Names, network: Network) -> bool:
    """Whether the operators alone tell how they hang together."""
    if tuple(outputs) != members[-1].outputs or any(node.domain for node in members):
        return False
    types, made = network.types, {out for node in members for out in node.outputs if out}
    if len(outputs) > 1 or {types[name] for name in made} != {types[outputs[0]]}:
        return False
    names, links = dict[str, str](), list[list[str]]()
    for place, node in enumerate(members):
        links.append(_terms(node.op, [names.get(name, name) for name in node.inputs]))
        names.update((out, f"{place}.{i}") for i, out in enumerate(node.outputs) if out)
    is_same = types.get("".join(inputs[:1])) == types[outputs[0]]
    return links == _implied([node.op for node in members], inputs, network, is_same)


def _implied(ops: Names, inputs: Names, network: Network, is_same: bool) -> list[list[str]]:
    """What each operator of a kernel without ``wires`` reads; nothing where there is no telling.

    ``is_same``: the result has the type of the first input, which may be added to it.
    """
    if _main_place(ops) or not _SAME_TYPE.issuperset(ops[1:]):
        return []
    left, links = list(inputs), list[list[str]]()
    for place, op in enumerate(ops):
        made = [f"{before}.0" for before in range(max(place - 2, 0), place)]  # the last two
        read = made[-1:] or [left.pop(0)]
        if op in _BINARY and (left or not made):
            read += [left.pop(0) for _ in left[:1]]
        elif op in _BINARY:
            read += [inputs[0]] if op != "Mul" and is_same else made[-2:-1]
        else:
            read += [left.pop(0) for _ in range(_parameters(ops[place:], left, made, network))]
        links.append(_terms(op, read))
    return links


def _parameters(ops: Names, left: list[str], made: list[str], network: Network) -> int:
    """How many of those ``left`` the first of ``ops`` reads beside what goes through all of them.

    A convolution has a bias where a vector is left that no later operator needs.
    """
    op, constants = ops[0], network.constants
    if not made and op in _BY_WEIGHT[0] and left:
        vectors = sum(name in constants for name in left[1:])
        needed = sum(_PARAMETERS.get(later, 0) for later in ops[1:] if later != "Clip")
        bias = constants.get("".join(left[1:2])) if op != "MatMul" else None
        has_bias = bias is not None and len(bias.type.shape) == 1 and vectors > needed
        return 2 if has_bias else 1
    most = _PARAMETERS.get(op, 0) if made else len(left)
    return len([*takewhile(constants.__contains__, left[:most])])
