"""Activations and normalisations that files write in parts, each as one operator again.

A pattern says how a tensor is made: ``X`` is the composite's input, ``NUMBER`` any constant of one
element, a float that number alone, ``PARAMETER`` any constant. A whole number stands for at least
so many element-wise operators on ``X`` and constants. All else is ``made(operators, …)`` of its
operands, those of a commutative operator in any order.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from hybridlat.engines.fusion.expanded import IN_PARTS
from hybridlat.engines.fusion.patterns import TURNS, Match, Pass, each, nothing, same
from hybridlat.graph.network import AttributeValue, Constant, Network, Node
from hybridlat.graph.operators import COMMUTES, WHOLE

_TESTS = ("IsNaN", "Greater", "Equal", "Not", "Cast", "ReduceMax")
X, NUMBER, PARAMETER = "x", "number", "parameter"
MOST_PARTS = 1000
"""Those of one Concat to which parts of parts are joined: they may double at each step."""
_SIXTH = 0.1666666716337204
"""A sixth as a file has it, in 32 bits."""


class Made(NamedTuple):
    """A tensor that one of several operators makes of these operands."""

    ops: tuple[str, ...]
    operands: "tuple[Pattern, ...]"


Pattern = str | float | Made


class Bound(NamedTuple):
    """What a pattern is found to be: its input and its operators."""

    x: str = ""
    members: tuple[Node, ...] = ()


def made(ops: str, *operands: Pattern) -> Made:
    """The pattern of what operators make, named in one text."""
    return Made(tuple(ops.split()), operands)


def bind(net: Network, tensor: str, pattern: Pattern, bound: Bound) -> Bound | None:
    """What a pattern is where a tensor is made as it says, beside what is bound already."""
    constant = net.constants.get(tensor)
    if isinstance(pattern, Made):
        node = net.maker(tensor, *pattern.ops)
        is_usual = node is not None and _is_usual(net, node)
        return _bind_operands(net, node, pattern.operands, bound) if node and is_usual else None
    if pattern == X:
        is_x = tensor in net.types and bound.x in ("", tensor)
        return Bound(tensor, bound.members) if is_x else None
    if isinstance(pattern, int):
        steps = _steps_from(net, tensor, bound.x)
        fits = steps is not None and len(steps) >= pattern
        return Bound(bound.x, (*bound.members, *(steps or ()))) if fits else None
    if constant is None or (pattern != PARAMETER and constant.type.elements > 1):
        return None
    if pattern in (NUMBER, PARAMETER) or not constant.values:
        return bound
    number = cast(float, pattern)
    return bound if math.isclose(constant.values[0], number, rel_tol=1e-3) else None


def _bind_operands(
    net: Network, node: Node, operands: Sequence[Pattern], bound: Bound
) -> Bound | None:
    orders = (node.inputs, node.inputs[::-1]) if node.op in COMMUTES else (node.inputs,)
    for inputs in orders if len(node.inputs) == len(operands) else ():
        whole: Bound | None = Bound(bound.x, (*bound.members, node))
        for tensor, operand in zip(inputs, operands, strict=True):
            whole = whole and bind(net, tensor, operand, whole)
        if whole is not None:
            return whole
    return None


def _steps_from(net: Network, tensor: str, x: str, most: int = 6) -> frozenset[Node] | None:
    """The element-wise operators between ``x`` and a tensor; None where it hangs on others too."""
    if tensor == x or tensor in net.constants:
        return frozenset()
    maker = net.maker(tensor, "Mul", "Div", "Add", "Sub", "Pow") if most else None
    if maker is None:
        return None
    steps = [_steps_from(net, name, x, most - 1) for name in maker.inputs]
    return None if None in steps else frozenset({maker}).union(*filter(None, steps))


def _is_usual(net: Network, node: Node) -> bool:
    """Whether a mean is over the last axes, and a HardSigmoid is that of a HardSwish."""
    if node.op == "ReduceMean":
        axes, rank = node.sizes("axes") or (), len(net.type_of(node.inputs[0]).shape)
        return axes == (*range(rank - len(axes), rank),) != ()
    alpha = cast(float, node.attribute("alpha", 0.0))
    is_gate = len(node.attributes) == 1 and math.isclose(alpha, _SIXTH, rel_tol=1e-3)
    return is_gate or node.op != "HardSigmoid"


def _sixth(pattern: Pattern) -> tuple[Made, ...]:
    return made("Div", pattern, 6.0), made("Mul", pattern, 1 / 6)


def _gelu(function: str, steps: int) -> tuple[Made, ...]:
    """Times x, plus one, times a half, in any order; the half may be elsewhere."""
    gate = made("Add", made(function, steps), NUMBER)
    halves = "Mul Div"
    return (
        made(halves, made("Mul", X, gate), NUMBER),
        made("Mul", made(halves, X, NUMBER), gate),
        made("Mul", X, made(halves, gate, NUMBER)),
        made("Mul", X, gate),
    )


def _layer_norms() -> Iterator[Made]:
    """Over the last axis, with scale and shift behind it or without.

    TensorFlow shifts by what the mean becomes: x * inverse + (shift - mean * inverse). Flax takes
    the mean's square from that of squares.
    """
    mean = made("ReduceMean", X)
    centred, squares = made("Sub", X, mean), made("ReduceMean", made("Mul", X, X))
    fast = made("Max", made("Sub", squares, made("Mul", mean, mean)), 0.0)
    variances = [made("ReduceMean", made("Pow", centred, NUMBER)), fast]
    for variance in (*variances, made("ReduceMean", made("Mul", centred, centred))):
        deviation = made("Sqrt", made("Add", variance, NUMBER))
        inverse = made("Reciprocal", deviation)
        for norm in (made("Div", centred, deviation), made("Mul", centred, inverse)):
            scaled = made("Mul", norm, PARAMETER)
            yield from (made("Add", scaled, PARAMETER), scaled, norm)
        for scale in (made("Mul", inverse, PARAMETER), inverse):
            less, moved = made("Mul", made("Neg", mean), scale), made("Mul", mean, scale)
            kept = made("Sub", PARAMETER, moved)
            for shift in (made("Add", less, PARAMETER), less, kept, made("Neg", moved)):
                yield made("Add", made("Mul", X, scale), shift)


_CLIPPED = made("Clip", made("Add", X, 3.0), 0.0, 6.0)
_HARD_SIGMOIDS = _sixth(_CLIPPED)
_GATES = (*_HARD_SIGMOIDS, made("HardSigmoid", X))
_HARD_SWISHES = (*(made("Mul", X, gate) for gate in _GATES), *_sixth(made("Mul", X, _CLIPPED)))


def _rms_norms() -> Iterator[Made]:
    """Over the last axis, with a scale behind it or without."""
    for square in (made("Pow", X, 2.0), made("Mul", X, X)):
        size = made("Sqrt", made("Add", made("ReduceMean", square), NUMBER))
        for norm in (made("Div", X, size), made("Mul", X, made("Reciprocal", size))):
            yield from (made("Mul", norm, PARAMETER), norm)


def _composite(op: str, patterns: Sequence[Made], **attributes: AttributeValue) -> Pass:
    """The pass that writes one operator for what is made as any of the patterns says."""

    def find(net: Network, nodes: Sequence[Node]) -> Iterator[Match]:
        for pattern in patterns:
            for node in [node for node in nodes if node.op in pattern.ops]:
                bound = _bind_operands(net, node, pattern.operands, Bound())
                if bound is None:
                    continue
                match, type_ = Match(net, *bound.members[::-1]), net.types[bound.x]
                means = [node.sizes("axes") for node in bound.members if node.op == "ReduceMean"]
                axes = (*means, None)[0] or (-1,)
                scale = Constant(type_._replace(shape=type_.shape[axes[0] :]))
                stated = {"axis": axes[0]} if axes[1:] else {}
                parameters = [scale] * op.endswith("Normalization")
                match.add(op, (bound.x,), type_.shape, *parameters, **attributes | stated)
                yield match

    return frozenset(op for pattern in patterns for op in pattern.ops), find


def own_pads(net: Network, node: Node, match: Match) -> None:
    """Zeros around what a convolution reads are its own padding."""
    pad = net.maker(node.inputs[0], "Pad")
    sizes = net.constant(pad, 1) if pad and not pad.attributes and len(pad.inputs) < 3 else None
    values = cast("tuple[int, ...]", sizes.values or ()) if sizes else ()
    axes = len(values) // 2
    around = (*values[2:axes], *values[axes + 2 :])
    if pad and around and min(values) >= 0 and sum(around) == sum(values):
        own = node.sizes("pads") or (0,) * len(around)
        padded = node.with_attributes(pads=tuple(map(int.__add__, own, around)))
        match.put(replace(padded, inputs=(pad.inputs[0], *node.inputs[1:])))


def concats(net: Network, node: Node, match: Match) -> None:
    """Parts of parts are parts where Concats alone read these: a simplifier joins all of them."""
    inputs, waiting, kind = list[str](), [*node.inputs], (node.op, node.attributes)
    while waiting:
        part = waiting.pop()
        maker = net.maker(part, node.op) if part not in net.outputs else None
        beside = (maker, *[net.nodes[i] for i in net.consumers[part]]) if maker else ()
        is_part = {(n.qualified_op, n.attributes) for n in beside if n} == {kind}
        if maker and is_part and len(waiting) < MOST_PARTS:
            waiting += maker.inputs
        else:
            inputs.insert(0, part)
    if inputs != [*node.inputs]:
        match.put(replace(node, inputs=tuple(inputs)))


def _neutral(net: Network, node: Node, match: Match) -> None:
    """A sum with the number 0 and a product by 1 are what they read: one of the exporters says so.

    Modules begin sums with 0; ``addcmul`` has a factor between its product and its sum. TensorRT
    erases both ("Scale" in NVIDIA's list of fusions). PyTorch's newer exporter takes 1e-8 for 0.
    """
    x, is_product, number = node.inputs[0], node.op in ("Mul", "Div"), net.constant(node, 1)
    if number is None or not np.allclose(number.values or 2, is_product, rtol=1e-5, atol=1e-8):
        return
    before, behind = net.maker(x, "Mul"), net.reader(node, "Add")
    read = before.inputs if is_product and before and behind else ()
    is_factor = any(c.type.elements > 1 for c in map(net.constants.get, read) if c)
    # Parameters that begin so have an axis.
    if is_factor or not number.type.shape or number.type.dtype in WHOLE:
        same(net, x, match)


def _factors(net: Network, node: Node, match: Match) -> None:
    """A product by constants of one by constants is one by theirs."""
    before, second = net.maker(node.inputs[0], "Mul"), net.constant(node, 1)
    first = net.constant(before, 1) if before is not None else None
    if before and first and second:
        shape = np.broadcast_shapes(first.type.shape, second.type.shape)
        match.members, made = (before, node), net.types[match.made].shape
        match.add("Mul", before.inputs[:1], made, Constant(first.type._replace(shape=shape)))


def _guards(net: Network, node: Node, match: Match) -> None:
    """A Where that puts zeros for no number behind a softmax, or a softplus's end, goes.

    What it asks hangs on what these read or make alone: attention's, in each of its spellings.
    """
    condition, other, kept = node.inputs
    while (test := net.maker(condition, *_TESTS)) is not None:
        condition = test.inputs[0]
    soft = net.maker(kept, "Softmax", "Softplus")
    read = soft.inputs[0] if soft is not None else ""
    is_end = other == read if soft and soft.op == "Softplus" else other in net.constants
    if soft is not None and is_end and condition in (kept, read):
        match.skip(kept)


def _numbers(net: Network, node: Node, match: Match) -> None:
    """Constants beside tensors have no sizes of 1 in front: one number has no axis."""
    rank, read = len(net.types[match.made].shape), dict[str, str]()
    ranks = {len(net.types[name].shape) for name in node.inputs if name in net.types}
    for place, name in enumerate(node.inputs):
        constant = net.constants.get(name)
        shape = constant.type.shape if constant and rank in ranks else ()
        if constant and shape[:1] == (1,):
            first = next((axis for axis, size in enumerate(shape) if size > 1), len(shape))
            read[name] = f"{match.made}/number{place}"
            type_ = constant.type._replace(shape=shape[first:])
            match.constants[read[name]] = replace(constant, type=type_)
    if read:
        match.put(replace(node, inputs=tuple([read.get(name, name) for name in node.inputs])))


def _choices(net: Network, node: Node, match: Match) -> None:
    """What a Not decides is the other way round by what that reads."""
    condition, *ways = node.inputs
    while (before := net.maker(condition, "Not")) is not None:
        condition, ways = before.inputs[0], ways[::-1]
    if condition != node.inputs[0]:
        match.put(replace(node, inputs=(condition, *ways)))


NEUTRAL = each("Add Sub Mul Div", _neutral)
GUARDS = each("Where", _guards)
NUMBERS = each("Add Sub Mul Div Where", _numbers)
COMPILED = (each("Pad", nothing), each("Mul", _factors), each("Where", _choices))
"""Calls of a module for which a compiler makes no kernel: simplifiers leave them out."""
COMPOSITES: tuple[Pass, ...] = (
    *IN_PARTS,
    TURNS,
    _composite("HardSwish", _HARD_SWISHES),
    _composite("HardSigmoid", _HARD_SIGMOIDS, alpha=_SIXTH),
    _composite("Gelu", _gelu("Erf", 1)),
    _composite("Gelu", _gelu("Tanh", 3), approximate="tanh"),
    _composite("Reciprocal", (made("Div", 1.0, X),)),
    _composite("LayerNormalization", (*_layer_norms(),)),
    _composite("RMSNormalization", (*_rms_norms(),)),
)
"""In the order in which they are looked for."""
