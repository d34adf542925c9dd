"""Activations and normalisations that files write in parts, each as one operator again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hybridlat.engines.fusion.patterns import Match, Parts, Pass, View
from hybridlat.graph.network import Constant, TensorType

_POINTWISE = frozenset({"Mul", "Div", "Add", "Sub", "Pow"})


def _steps(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Swish and Mish as older sets write them: their rules name the parts."""
    for position in places:
        node = v.nodes[position]
        (x,), shape, parts = node.inputs, v.types[node.outputs[0]].shape, Parts(v, position)
        if node.attribute("alpha") is None:
            gate = x
            for op in ("Sigmoid",) if node.op == "Swish" else ("Softplus", "Tanh"):
                gate = parts.add(op, (gate,), shape)
            parts.add("Mul", (x, gate), shape)
            yield parts.match((position,))


def attentions(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Attention as older sets write it: a product of scaled operands, a mask, a softmax, a product.

    One that shares keys among heads, caps or limits, or gives out more than its result stays.
    """
    for position in places:
        node, parts = v.nodes[position], Parts(v, position)
        (q, k, values, *masks), (y, *others) = node.inputs, node.outputs
        is_plain = {name for name, _ in node.attributes} <= {"scale"} and not any(others)
        if not is_plain or not v.types.keys() >= {q, k, values} or masks.count("") or masks[1:]:
            continue
        if any(v.network.type_of(mask).dtype == "bool" for mask in masks):
            continue
        (*rows, _), (*heads, length, size) = v.types[q].shape, v.types[k].shape
        if len(heads) != 2 or rows[:2] != heads:
            continue
        maker, scale = v.maker(k, "Reshape"), Constant(TensorType(v.types[y].dtype, (1,)))
        if maker is not None and v.nodes[maker].inputs[0] in v.types:
            k = v.nodes[maker].inputs[0]
        k = parts.view(k, (math.prod(heads), length, size))
        k = parts.add("Transpose", (k,), (math.prod(heads), size, length), perm=(0, 2, 1))
        k = parts.view(k, (*heads, size, length))
        q = parts.add("Mul", (q,), (*rows, size), scale)
        k = parts.add("Mul", (k,), (*heads, size, length), scale)
        scores = parts.add("MatMul", (q, k), (*rows, length))
        for mask in masks:
            scores = parts.add("Add", (scores, mask), (*rows, length))
        scores = parts.add("Softmax", (scores,), (*rows, length))
        parts.add("MatMul", (scores, values), v.types[y].shape)
        yield parts.match((position,))


def _hard_gates(v: View, places: Sequence[int]) -> Iterator[Match]:
    """HardSigmoid and HardSwish from min(max(x + 3, 0), 6) / 6, HardSwish from x·HardSigmoid(x)."""
    for position in places:
        node, members, lacking = v.nodes[position], [position], {"product"}
        x, slope = node.inputs[0], node.attribute("alpha")
        if node.op == "Clip":
            shift = v.maker(x, "Add")
            bounds = [v.network.constants.get(name) for name in node.inputs[1:]]
            values = [c.values[0] for c in bounds if c is not None and c.values]
            if shift is None or values != [0, 6] or v.reader(shift, "Clip") != position:
                continue
            if not _takes(v, shift, 3.0):
                continue
            x, members, lacking = v.data(shift)[0], [shift, position], {"product", "sixth"}
        elif [name for name, _ in node.attributes] != ["alpha"] or not _near(slope, 1 / 6):
            continue
        while lacking and (below := v.reader(members[-1], "Mul", "Div")) is not None:
            op = v.nodes[below].op
            part = "product" if op == "Mul" and x in v.data(below) else "sixth"
            is_sixth = part == "product" or _takes(v, below, 6.0 if op == "Div" else 1 / 6)
            if part not in lacking or not is_sixth:
                break
            lacking.remove(part)
            members.append(below)
        if not lacking or ("sixth" not in lacking and node.op == "Clip"):
            parts, shape = Parts(v, members[-1]), v.types[x].shape
            if lacking:
                parts.add("HardSigmoid", (x,), shape, alpha=_SIXTH)
            else:
                parts.add("HardSwish", (x,), shape)
            yield parts.match(members)


def _takes(v: View, position: int, number: float) -> bool:
    """Whether an operator's operands are a tensor and this number, which signatures lack."""
    known = v.number(position)
    return v.by_one_value(position) and (known is None or _near(known, number))


def _near(value: object, number: float) -> bool:
    """As close as files write a sixth."""
    return isinstance(value, float) and math.isclose(value, number, rel_tol=1e-3)


_SIXTH = 0.1666666716337204
"""A sixth as a file has it, in 32 bits."""


def _gelus(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Gelu from its parts in any order, exact (Erf) or approximate (Tanh of a cubic)."""
    for position in places:
        above = _only_of(v, position)
        if above is None or len(above[0]) < (1 if v.nodes[position].op == "Erf" else 3):
            continue
        members, x = [*above[0], position], above[1]
        last, multiplied = position, False
        while (below := v.reader(last, "Add", "Mul", "Div")) is not None:
            others = [name for name in v.data(below) if name != v.nodes[last].outputs[0]]
            half = v.maker(others[0], "Mul", "Div") if others else None
            if not others:
                if not v.by_one_value(below):
                    break
            elif others == [x] and v.nodes[below].op == "Mul" and not multiplied:
                multiplied = True
            elif half is not None and v.data(half) == [x] and v.reader(half, "Mul") == below:
                members.append(half)
                multiplied = True
            else:
                break
            members.append(below)
            last = below
            if multiplied and len([m for m in members if m > position]) >= _PARTS_BEHIND:
                break
        if multiplied:
            parts, shape = Parts(v, last), v.types[x].shape
            if v.nodes[position].op == "Erf":
                parts.add("Gelu", (x,), shape)
            else:
                parts.add("Gelu", (x,), shape, approximate="tanh")
            yield parts.match(sorted(members))


_PARTS_BEHIND = 3
"""Behind the Erf of a Gelu: plus one, times x, times a half."""


def _only_of(v: View, position: int) -> tuple[list[int], str] | None:
    """The operators in front of one that hang on one tensor by numbers alone, and that tensor."""
    members: set[int] = set()
    waiting, ends = [v.nodes[position].inputs[0]], set[str]()
    while waiting:
        name = waiting.pop()
        maker = v.maker(name, *_POINTWISE)
        readers = v.consumers.get(name, ())
        is_inner = maker is not None and {position, *members}.issuperset(readers)
        if is_inner and maker is not None and name not in v.outputs and len(members) < 8:
            members.add(maker)
            waiting += v.data(maker)
        else:
            ends.add(name)
    if len(ends) == 1:
        return sorted(members), ends.pop()
    return None


def _layer_norms(v: View, places: Sequence[int]) -> Iterator[Match]:
    """LayerNormalization over the last axis from its parts, with scale and shift behind it."""
    for position in places:
        node = v.nodes[position]
        x = node.inputs[0]
        rank = len(v.types[x].shape) if x in v.types else 0
        centred = v.reader(position, "Sub")
        if centred is None or node.attribute("axes") != (rank - 1,):
            continue
        chain = [position, centred]
        difference = v.nodes[centred].outputs[0]
        for op in (("Pow", "Mul"), ("ReduceMean",), ("Add",), ("Sqrt",), ("Div", "Reciprocal")):
            readers = v.consumers.get(v.nodes[chain[-1]].outputs[0], ())
            steps = [r for r in readers if r not in chain and v.nodes[r].op in op]
            if not steps:
                break
            chain.append(steps[0])
        if len(chain) < 7 or v.nodes[centred].inputs[0] != x:
            continue
        if v.nodes[chain[-1]].op == "Reciprocal":
            chain += [r for r in (v.reader(chain[-1], "Mul"),) if r is not None]
        if difference not in v.nodes[chain[-1]].inputs:
            continue
        parameters: list[Constant] = []
        for op_ in ("Mul", "Add"):
            below = v.reader(chain[-1], op_)
            if below is None or len(v.data(below)) != 1:
                break
            names = v.nodes[below].inputs
            parameters += [v.network.constants[n] for n in names if n in v.network.constants]
            chain.append(below)
        (dtype, shape), parts = v.types[x], Parts(v, chain[-1])
        ones = Constant(TensorType(dtype, shape[-1:]))
        parts.add("LayerNormalization", (x,), shape, *(parameters or [ones]))
        yield parts.match(sorted(chain))


COMPOSITES: tuple[Pass, ...] = (
    (frozenset({"Swish", "Mish"}), _steps),
    (frozenset({"Clip", "HardSigmoid"}), _hard_gates),
    (frozenset({"Erf", "Tanh"}), _gelus),
    (frozenset({"ReduceMean"}), _layer_norms),
)
"""In the order in which they are looked for."""
