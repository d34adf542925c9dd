"""One form for each computation that files write in several, for engines that see through them.

A file may say LayerNormalization or the nine operators of one, GlobalAveragePool or a mean over
pixels, Gelu or its parts, a product with its weight turned or not. PyTorch computes the same for
both, and TensorRT's compiler sees the same. ONNX Runtime's own optimiser decides for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from hybridlat.engines.fusion.composites import COMPOSITES, attentions
from hybridlat.engines.fusion.patterns import Match, Parts, Pass, View, concats, nothing, views
from hybridlat.graph.network import Constant, TensorType
from hybridlat.graph.normal import sizes_of

_POOLS = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}
_LAYERS = ("Conv", "ConvTranspose", "Relu", "Clip", "LeakyRelu", "Elu", "MaxPool", "Add", "Concat")
"""What a batch normalisation stands behind: neither an image nor another norm."""
_POOLED = {op: pool for pool, op in _POOLS.items()}
_BY_ROWS = (
    *("Gemm", "MatMul", "Add", "Mul", "Div", "Relu", "Gelu", "Sigmoid", "Tanh", "HardSwish"),
    *("HardSigmoid", "LeakyRelu", "LayerNormalization"),
)
"""What treats each row of a matrix alone, where constants have one axis at most."""


def _cuts(v: View, position: int) -> dict[int, tuple[int, int]]:
    """From where to where a Slice without steps cuts each axis; none where that is not known."""
    known = [v.network.constants.get(name) for name in v.nodes[position].inputs[1:]]
    columns = [cast("tuple[int, ...]", c.values) for c in known if c is not None and c.values]
    is_whole = len(columns) == len(known) == 3 and len({*map(len, columns)}) == 1
    return {a: (s, e) for s, e, a in zip(*columns, strict=True)} if is_whole else {}


def _slices(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A slice of a slice, which nothing else reads, is one of what that reads."""
    for position in reversed(places):
        cuts, members = _cuts(v, position), [position]
        while cuts and (before := v.maker(v.nodes[members[0]].inputs[0], "Slice")) is not None:
            outer = _cuts(v, before) if v.reader(before, "Slice") is not None else {}
            if not outer or not outer.keys().isdisjoint(cuts):
                break
            cuts, members = outer | cuts, [before, *members]
        if len(members) > 1:
            parts, kind = Parts(v, position), TensorType("int64", (len(cuts),))
            columns = zip(*[(*cuts[axis], axis) for axis in sorted(cuts)], strict=True)
            shape = v.types[v.nodes[position].outputs[0]].shape
            read = v.nodes[members[0]].inputs[:1]
            parts.add("Slice", read, shape, *[Constant(kind, column) for column in columns])
            yield parts.match(members)


def _splits(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Slices that together are all of a tensor are one Split, unless a sum computes one itself."""
    parts: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for position in places:
        if len(cut := _cuts(v, position)) == 1:
            ((axis, (start, end)),) = cut.items()
            parts.setdefault((v.nodes[position].inputs[0], axis), {})[start] = end, position
    for (source, axis), cuts in parts.items():
        starts = sorted(cuts)
        ends = [cuts[start][0] for start in starts]
        if starts[0] or starts[1:] != ends[:-1] or ends[-1] != v.types[source].shape[axis]:
            continue
        members = tuple([cuts[start][1] for start in starts])
        if any(v.reader(member, "Add", "Sum") is not None for member in members):
            continue
        first = v.nodes[members[0]]
        sizes, name = tuple(map(int.__sub__, ends, starts)), f"{first.outputs[0]}/split"
        outputs = tuple([v.nodes[member].outputs[0] for member in members])
        attributes = (("axis", axis),) if axis else ()
        split = replace(
            first, op="Split", inputs=(source, name), outputs=outputs, attributes=attributes
        )
        put = Constant(TensorType("int64", (len(sizes),)), sizes)
        yield Match(members, (split,), constants={name: put})


def norms(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A scale for each channel of what a layer makes, and then a shift, is a batch normalisation.

    So is a scale alone behind a depthwise convolution or before a ReLU: TensorFlow leaves zeros
    out. Any other is a layer's.
    """
    for position in places:
        is_whole = v.nodes[position].op == "Add"
        scale = v.maker(v.nodes[position].inputs[0], "Mul") if is_whole else position
        if scale is None or (layer := v.maker(x := v.nodes[scale].inputs[0], *_LAYERS)) is None:
            continue
        behind = ("Add",) if is_whole else ("Relu", "Clip")
        is_deep = not is_whole and v.nodes[layer].attribute("group", 1) != 1
        members, (dtype, shape) = sorted({scale, position}), v.network.type_of(x)
        known = [v.network.constants.get(v.nodes[i].inputs[1]) for i in members]
        channels = (*shape[1:2], *[1] * (len(shape) - 2))
        is_of_channels = all(c is not None and c.type.shape == channels for c in known)
        if is_of_channels and shape[2:] and (is_deep or v.reader(scale, *behind) is not None):
            parts, vector = Parts(v, position), Constant(TensorType(dtype, shape[1:2]))
            parts.add("BatchNormalization", (x,), shape, *[vector] * 4)
            yield parts.match(members)


def _plain_norms(v: View, places: Sequence[int]) -> Iterator[Match]:
    """What is added to a variance is no part of a norm's cost, nor whether its shift is zero."""
    for position in places:
        node = v.nodes[position]
        kept = tuple([a for a in node.attributes if a[0] not in ("epsilon", "stash_type")])
        inputs = node.inputs
        if node.op == "LayerNormalization" and not any(name in v.types for name in inputs[2:]):
            inputs = inputs[:2]
        if (kept, inputs) != (node.attributes, node.inputs):
            yield Match((position,), (replace(node, attributes=kept, inputs=inputs),))


def _means(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A mean or maximum over all pixels is a pooling; one that drops its axes, one and a view.

    That of a tensor with its axes turned is one over other axes, where the rest keep their order.
    """
    for position in places:
        node, parts, members = v.nodes[position], Parts(v, position), [position]
        x, made, op = node.inputs[0], v.types[node.outputs[0]].shape, _POOLS.get(node.op, node.op)
        axes = tuple(range(2, len(made))) if op != node.op else sizes_of(node, "axes")
        if x not in v.types or axes is None:
            continue
        turn = v.maker(x, "Transpose")
        order = sizes_of(v.nodes[turn], "perm") if turn is not None else None
        if turn is not None and order and v.reader(turn, node.op) is not None:
            rest = [axis for place, axis in enumerate(order) if place not in axes]
            if rest == sorted(rest):
                x, members = v.nodes[turn].inputs[0], [turn, position]
                axes = tuple(sorted(set(order).difference(rest)))
        shape, stated = v.types[x].shape, {"axes": axes}
        kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
        if len(shape) > 3 and axes == tuple(range(2, len(shape))) and op in _POOLED:
            op, stated = _POOLED[op], {}
        if op != node.op or len(members) > 1 or not node.attribute("keepdims", 1):
            parts.view(parts.add(op, (x,), kept, **stated), made)
            yield parts.match(members)


def _sums(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A sum whose axes a view puts back, or takes away, keeps or drops them itself."""
    for position in places:
        node, behind = v.nodes[position], v.reader(position, "Reshape")
        axes = v.network.constants.get("".join(node.inputs[1:]))
        if behind is None or axes is None or axes.values is None or node.inputs[0] not in v.types:
            continue
        shape, is_kept = v.types[node.inputs[0]].shape, node.attribute("keepdims", 1) == 1
        sizes = [1 if axis in axes.values else size for axis, size in enumerate(shape)]
        left = [size for axis, size in enumerate(shape) if axis not in axes.values]
        if list(v.types[v.nodes[behind].outputs[0]].shape) == (left if is_kept else sizes):
            parts, stated = Parts(v, behind), {"keepdims": 0} if is_kept else {}
            parts.add("ReduceSum", node.inputs[:1], left if is_kept else sizes, axes, **stated)
            yield parts.match((position, behind))


def _weight_of(v: View, position: int) -> tuple[Constant, bool] | None:
    """The matrix that a matrix is multiplied with, as it is then, and whether it is turned."""
    node = v.nodes[position]
    weight, attributes = v.network.constants.get("".join(node.inputs[1:2])), dict(node.attributes)
    is_turned = attributes == {"transB": 1}
    if weight is None or len(weight.type.shape) != 2 or (attributes and not is_turned):
        return None
    if any(name in v.types for name in node.inputs[2:]):
        return None
    shape = weight.type.shape[::-1] if is_turned else weight.type.shape
    return Constant(weight.type._replace(shape=shape)), is_turned


def _leading(shape: tuple[int, ...], rows: int, size: int) -> tuple[int, ...] | None:
    """Several axes in front that are all of the rows of a tensor of this shape."""
    ends = [i for i in range(2, len(shape) + 1) if math.prod(shape[:i]) == rows]
    is_whole = bool(ends) and shape[ends[-1] :] == (size,)
    return shape[: ends[-1] if is_whole else ends[0]] if ends else None


def _is_by_rows(v: View, position: int) -> bool:
    """Whether an operator of one tensor treats each row of a matrix alone."""
    node, constants = v.nodes[position], v.network.constants
    if node.op in ("Gemm", "MatMul"):
        return _weight_of(v, position) is not None
    are_last = all(
        name in constants and len(constants[name].type.shape) < 2 for name in node.inputs[1:]
    )
    return are_last and node.inputs[0] in v.types and node.attribute("axis") is None


def _flat_products(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A product between views, with what treats rows behind it, has the axes of these views.

    The side of fewer axes says which. A Gemm with a turned weight is a module's, which adds a
    bias: exporters leave out one of zeros.
    """
    for position in places:
        before, chain = v.maker(v.nodes[position].inputs[0], "Reshape"), [position]
        if before is None or (x := v.nodes[before].inputs[0]) not in v.types:
            continue
        while (below := v.reader(chain[-1], *_BY_ROWS)) is not None and _is_by_rows(v, below):
            chain.append(below)
        after = v.reader(chain[-1], "Reshape")
        if after is None or _weight_of(v, position) is None:
            continue
        made, last = v.nodes[after].outputs[0], v.nodes[after].inputs[0]
        (*rows, k), (*_, n) = v.types[v.nodes[position].inputs[0]].shape, v.types[last].shape
        ends = [(v.types[x].shape, k), (v.types[made].shape, n)]
        leads = [lead for shape, size in ends if (lead := _leading(shape, math.prod(rows), size))]
        lead, parts = min(leads, key=len, default=(*rows,)), Parts(v, after)
        if lead == (*rows,):
            continue
        made = parts.view(x, (*lead, k))
        for node, weight in [(v.nodes[i], _weight_of(v, i)) for i in chain]:
            dtype, (*_, size) = v.types[node.outputs[0]]
            known = [v.network.constants[name] for name in node.inputs[1:]]
            if weight is None:
                made = parts.add(node.op, (made,), (*lead, size), *known, **dict(node.attributes))
                continue
            made = parts.add("MatMul", (made,), (*lead, size), weight[0])
            for bias in known[1:] or [Constant(TensorType(dtype, (size,)))] * weight[1]:
                made = parts.add("Add", (made,), (*lead, size), bias)
        parts.view(made, v.types[v.nodes[after].outputs[0]].shape)
        yield parts.match((*chain, after))


def _products(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A product of a matrix with a weight is a Gemm with a weight that is not turned.

    Its epilogue adds a bias, be it zero or not. A Gemm that adds a computed tensor stays.
    """
    for position in places:
        node, weight, members = v.nodes[position], _weight_of(v, position), [position]
        x, made = node.inputs[0], v.types[node.outputs[0]].shape
        if weight is None or x not in v.types or len(v.types[x].shape) != 2:
            continue
        if node.op == "Gemm" and not weight[1] and len(node.inputs) < 3:
            continue
        shift = v.reader(position, "Add") if node.op == "MatMul" else None
        if shift is not None and len(v.data(shift)) == 1:
            added = [v.network.type_of(name).shape for name in v.nodes[shift].inputs]
            members += [shift] * (made[1:] in added)
        parts = Parts(v, members[-1])
        parts.add("Gemm", (x,), made, weight[0])
        yield parts.match(members)


def _resizes(v: View, places: Sequence[int]) -> Iterator[Match]:
    """The sizes of the result say how much is resized."""
    for position in places:
        node, sizes = v.nodes[position], f"{v.nodes[position].outputs[0]}/sizes"
        shape = v.types[node.outputs[0]].shape
        known = Constant(TensorType("int64", (len(shape),)), shape)
        if any(node.inputs[1:]):
            inputs = (node.inputs[0], "", "", sizes)
            yield Match((position,), (replace(node, inputs=inputs),), constants={sizes: known})


FORMS: tuple[Pass, ...] = (
    (frozenset({"Attention"}), attentions),
    (frozenset({*_POOLS, *_POOLED, "ReduceL2"}), _means),
    (frozenset({"ReduceSum"}), _sums),
    (frozenset({"Slice", "Concat", "Expand", "Tile", "AveragePool"}), nothing),
    (frozenset({"Reshape"}), views),
    (frozenset({"Slice"}), _slices),
    (frozenset({"Slice"}), _splits),
    *COMPOSITES,
    (frozenset({"Add"}), norms),
    (frozenset({"LayerNormalization", "InstanceNormalization"}), _plain_norms),
    *[(frozenset({"Gemm", "MatMul"}), _flat_products)]
    * 2,  # what follows one may have its axes now
    (frozenset({"Gemm", "MatMul"}), _products),
    (frozenset({"Resize"}), _resizes),
    (frozenset({"Concat"}), concats),
)
"""In this order: the operators that a form begins with, and what finds it."""


def biases(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A kernel adds its bias, be it zero or not."""
    for position in places:
        node = v.nodes[position]
        if len(node.inputs) == 3 and node.inputs[2] in v.network.constants:
            yield Match((position,), (replace(node, inputs=node.inputs[:2]),))


def _normed_biases(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A norm behind a convolution adds its bias; folded files do not tell that there was one."""
    normed = (i for i in places if v.reader(i, "BatchNormalization") is not None)
    yield from biases(v, [*normed])


CONTRACTING = frozenset({"Conv", "ConvTranspose"})
PADS: Pass = (frozenset({"Pad"}), nothing)
GENERATED: tuple[Pass, ...] = (PADS, (CONTRACTING, _normed_biases))
"""What costs nothing where PyTorch runs code of its own for it, or one kernel takes it along."""
