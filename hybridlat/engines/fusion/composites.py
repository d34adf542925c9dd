"""Activations and normalisations that files write in parts, each as one operator again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hybridlat.engines.fusion.rewriting import Match, Pass, View
from hybridlat.graph.network import Constant, TensorType

_POINTWISE = frozenset({"Mul", "Div", "Add", "Sub", "Pow"})


def _steps(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Swish and Mish as older sets write them: their rules name the parts."""
    for position in places:
        node = v.nodes[position]
        (x,), (y,) = node.inputs, node.outputs
        parts = ("Sigmoid",) if node.op == "Swish" else ("Softplus", "Tanh")
        if node.attribute("alpha") is not None:
            continue
        names = [x, *[f"{y}/{op}" for op in parts]]
        made = [
            replace(node, op=op, inputs=(names[i],), outputs=(names[i + 1],), version=13)
            for i, op in enumerate(parts)
        ]
        product = replace(node, op="Mul", inputs=(x, names[-1]), version=14)
        yield Match((position,), (*made, product), dict.fromkeys(names[1:], v.types[y]))


def _hard_gates(v: View, places: Sequence[int]) -> Iterator[Match]:
    """HardSigmoid and HardSwish from min(max(x + 3, 0), 6) / 6, HardSwish from x·HardSigmoid(x)."""
    for position in places:
        node = v.nodes[position]
        x, members = node.inputs[0], [position]
        if node.op == "Clip":
            shift = v.maker(x, "Add")
            bounds = [v.network.constants.get(name) for name in node.inputs[1:]]
            values = [c.values[0] for c in bounds if c is not None and c.values]
            if shift is None or values != [0, 6] or v.reader(shift, "Clip") != position:
                continue
            if v.number(shift) != 3:
                continue
            x, members = v.data(shift)[0], [shift, position]
            scale = v.reader(position, "Div", "Mul")
            if scale is not None and _is_sixth(v, scale):
                members.append(scale)
                if v.reader(scale, "Mul") is not None and x in v.data(v.reader(scale, "Mul") or 0):
                    members.append(v.reader(scale, "Mul") or 0)
                    yield _gate(v, members, x, "HardSwish")
                else:
                    yield _gate(v, members, x, "HardSigmoid")
            elif scale is not None and x in v.data(scale):
                sixth = v.reader(scale, "Div", "Mul")
                if sixth is not None and _is_sixth(v, sixth):
                    yield _gate(v, [*members, scale, sixth], x, "HardSwish")
            continue
        slope = node.attribute("alpha")
        if [name for name, _ in node.attributes] != ["alpha"] or not _near(slope, 1 / 6):
            continue
        product = v.reader(position, "Mul")
        if product is not None and x in v.data(product):
            yield _gate(v, [position, product], x, "HardSwish")


def _is_sixth(v: View, position: int) -> bool:
    """Whether an operator takes a sixth of the one tensor that it reads."""
    sixth = 6.0 if v.nodes[position].op == "Div" else 1 / 6
    return v.by_one_value(position) and _near(v.number(position), sixth)


def _near(value: object, number: float) -> bool:
    """As close as files write a sixth."""
    return isinstance(value, float) and math.isclose(value, number, rel_tol=1e-3)


def _gate(v: View, members: list[int], x: str, op: str) -> Match:
    last = v.nodes[members[-1]]
    attributes = () if op == "HardSwish" else (("alpha", _SIXTH),)
    version = 14 if op == "HardSwish" else 6
    node = replace(last, op=op, inputs=(x,), attributes=attributes, version=version)
    return Match(tuple(members), (node,))


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
            exact = v.nodes[position].op == "Erf"
            attributes = () if exact else (("approximate", "tanh"),)
            node = v.nodes[last]
            gelu = replace(node, op="Gelu", inputs=(x,), attributes=attributes, version=20)
            yield Match(tuple(sorted(members)), (gelu,))


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
        chain, last = [position, centred], centred
        difference = v.nodes[centred].outputs[0]
        for op in (("Pow", "Mul"), ("ReduceMean",), ("Add",), ("Sqrt",), ("Div", "Reciprocal")):
            readers = [r for r in v.consumers.get(v.nodes[last].outputs[0], ()) if r not in chain]
            step = next((r for r in readers if v.nodes[r].op in op), None)
            if step is None:
                break
            chain.append(step)
            last = step
        if len(chain) < 7 or v.nodes[centred].inputs[0] != x:
            continue
        if v.nodes[last].op == "Reciprocal":
            product = v.reader(last, "Mul")
            if product is None:
                continue
            chain.append(product)
            last = product
        if difference not in v.nodes[last].inputs:
            continue
        parameters: list[str] = []
        for op_ in ("Mul", "Add"):
            below = v.reader(last, op_)
            if below is None or len(v.data(below)) != 1:
                break
            parameters += [n for n in v.nodes[below].inputs if n in v.network.constants]
            chain.append(below)
            last = below
        made = v.nodes[last]
        scale, constants = f"{made.outputs[0]}/scale", dict[str, Constant]()
        if not parameters:
            type_ = TensorType(v.types[x].dtype, v.types[x].shape[-1:])
            parameters, constants = [scale], {scale: Constant(type_)}
        norm = replace(
            made, op="LayerNormalization", inputs=(x, *parameters), attributes=(), version=17
        )
        yield Match(tuple(sorted(chain)), (norm,), constants=constants)


COMPOSITES: tuple[Pass, ...] = (
    (frozenset({"Swish", "Mish"}), _steps),
    (frozenset({"Clip", "HardSigmoid"}), _hard_gates),
    (frozenset({"Erf", "Tanh"}), _gelus),
    (frozenset({"ReduceMean"}), _layer_norms),
)
"""In the order in which they are looked for."""
