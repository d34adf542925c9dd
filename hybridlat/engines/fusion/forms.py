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
from hybridlat.engines.fusion.patterns import Match, Parts, Pass, View
from hybridlat.graph.network import Constant, TensorType
from hybridlat.graph.normal import sizes_of

_POOLS = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}
_LAYERS = ("Conv", "ConvTranspose", "Relu", "Clip", "LeakyRelu", "Elu", "MaxPool", "Add", "Concat")
"""What a batch normalisation stands behind: neither an image nor another norm."""
_POOLED = {op: pool for pool, op in _POOLS.items()}


def nothing(v: View, places: Sequence[int]) -> Iterator[Match]:
    """What gives out just what it reads."""
    for position in places:
        node = v.nodes[position]
        is_copy = len(node.inputs) == 1 if node.op == "Concat" else True
        if node.op == "Pad":
            sizes = v.network.constants.get(node.inputs[1])
            is_copy = sizes is not None and sizes.values is not None and not any(sizes.values)
        elif node.op == "AveragePool":
            is_copy = set(cast("tuple[int, ...]", node.attribute("kernel_shape"))) == {1}
        source, made = node.inputs[0], node.outputs[0]
        while node.op == "Reshape" and (before := v.maker(source, "Reshape")) is not None:
            source = v.nodes[before].inputs[0]
        is_between = source in v.types and not (made in v.outputs and source in v.network.inputs)
        if is_copy and is_between and v.types[source] == v.types[made]:
            yield Match((position,), stands_for={made: source})


def _splits(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Slices that together are all of a tensor are one Split, unless a sum computes one itself."""
    parts: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for position in places:
        node = v.nodes[position]
        known = [v.network.constants.get(name) for name in node.inputs[1:]]
        if len(known) == 3 and all(c and len(c.values or ()) == 1 for c in known):
            start, end, axis = (int(c.values[0]) for c in known if c and c.values)
            parts.setdefault((node.inputs[0], axis), {})[start] = end, position
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


def _norms(v: View, places: Sequence[int]) -> Iterator[Match]:
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


def _weight_of(v: View, position: int) -> tuple[Constant, bool] | None:
    """The matrix that a matrix is multiplied with, as it is then, and whether it is turned."""
    node = v.nodes[position]
    weight, attributes = v.network.constants.get("".join(node.inputs[1:2])), dict(node.attributes)
    is_turned = attributes == {"transB": 1}
    if weight is None or len(weight.type.shape) != 2 or (attributes and not is_turned):
        return None
    is_matrix = len(v.network.type_of(node.inputs[0]).shape) == 2
    if not is_matrix or any(name in v.types for name in node.inputs[2:]):
        return None
    shape = weight.type.shape[::-1] if is_turned else weight.type.shape
    return Constant(weight.type._replace(shape=shape)), is_turned


def _leading(shape: tuple[int, ...], rows: int, size: int) -> tuple[int, ...] | None:
    """Several axes in front that are all of the rows of a tensor of this shape."""
    ends = [i for i in range(2, len(shape) + 1) if math.prod(shape[:i]) == rows]
    is_whole = bool(ends) and shape[ends[-1] :] == (size,)
    return shape[: ends[-1] if is_whole else ends[0]] if ends else None


def _flat_products(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A matrix's product between two views is one over the tensor of more axes, and a sum.

    The side without a view, or of fewer axes, says which axes these were. A Gemm with a turned
    weight is a module's, which adds a bias: exporters leave out one of zeros.
    """
    constants = v.network.constants
    for position in places:
        node, weight = v.nodes[position], _weight_of(v, position)
        before, after = v.maker(node.inputs[0], "Reshape"), v.reader(position, "Reshape")
        if before is None or after is None or weight is None:
            continue
        x, made, (k, n) = v.nodes[before].inputs[0], v.nodes[after].outputs[0], weight[0].type.shape
        rows = v.types[node.inputs[0]].shape[0]
        ends = [(v.network.type_of(x).shape, k), (v.types[made].shape, n)]
        leads = [lead for shape, size in ends if (lead := _leading(shape, rows, size))]
        if not leads or x not in v.types:
            continue
        lead = min(leads, key=len)
        parts, zeros = Parts(v, after), (Constant(TensorType(v.types[made].dtype, (n,))),)
        product = parts.add("MatMul", (parts.view(x, (*lead, k)),), (*lead, n), weight[0])
        for bias in [constants[name] for name in node.inputs[2:]] or zeros * weight[1]:
            product = parts.add("Add", (product,), (*lead, n), bias)
        parts.view(product, v.types[made].shape)
        yield parts.match((position, after))


def _products(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A product of a matrix with a weight is a Gemm with a weight that is not turned.

    Its epilogue adds a bias, be it zero or not. A Gemm that adds a computed tensor stays.
    """
    for position in places:
        node, weight, members = v.nodes[position], _weight_of(v, position), [position]
        x, made = node.inputs[0], v.types[node.outputs[0]].shape
        if weight is None or x not in v.types:
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


def _concats(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Parts of parts are parts."""
    for position in reversed(places):
        node, members, inputs = v.nodes[position], {position}, list[str]()
        waiting = [*node.inputs]
        while waiting:
            maker = v.maker(waiting[-1], "Concat")
            is_part = maker is not None and v.reader(maker, "Concat") in members
            if maker is not None and is_part and v.nodes[maker].attributes == node.attributes:
                members.add(maker)
                waiting[-1:] = v.nodes[maker].inputs
            else:
                inputs.insert(0, waiting.pop())
        if len(members) > 1:
            yield Match(tuple(sorted(members)), (replace(node, inputs=tuple(inputs)),))


FORMS: tuple[Pass, ...] = (
    (frozenset({"Attention"}), attentions),
    (frozenset({*_POOLS, *_POOLED, "ReduceL2"}), _means),
    (frozenset({"Slice", "Reshape", "Concat", "Expand", "Tile", "AveragePool"}), nothing),
    (frozenset({"Slice"}), _splits),
    *COMPOSITES,
    (frozenset({"Add"}), _norms),
    (frozenset({"LayerNormalization", "InstanceNormalization"}), _plain_norms),
    (frozenset({"Gemm", "MatMul"}), _flat_products),
    (frozenset({"Gemm", "MatMul"}), _products),
    (frozenset({"Resize"}), _resizes),
    (frozenset({"Concat"}), _concats),
)
"""In this order: the operators that a form begins with, and what finds it."""


def _folded_norms(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A batch normalisation behind a convolution is in its weights, with a scale and a shift of it.

    A scale alone is a layer's, which stays behind a folded norm too.
    """
    for position in places:
        below = v.reader(position, "BatchNormalization")
        members = [position]
        while below is not None and len(v.data(below)) == 1:
            members.append(below)
            below = v.reader(below, "Mul", "Add")
        while v.nodes[members[-1]].op == "Mul":
            members.pop()
        if len(members) > 1:
            made = replace(v.nodes[position], outputs=v.nodes[members[-1]].outputs)
            yield Match(tuple(members), (made,))


def _biases(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A kernel adds its bias, be it zero or not."""
    for position in places:
        node = v.nodes[position]
        if len(node.inputs) == 3 and node.inputs[2] in v.network.constants:
            yield Match((position,), (replace(node, inputs=node.inputs[:2]),))


def _normed_biases(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A norm behind a convolution adds its bias; folded files do not tell that there was one."""
    normed = (i for i in places if v.reader(i, "BatchNormalization") is not None)
    yield from _biases(v, [*normed])


_CONTRACTING = frozenset({"Conv", "ConvTranspose"})
_PADS: Pass = (frozenset({"Pad"}), nothing)
_SCALES: Pass = (frozenset({"Mul"}), _norms)
BUILT: tuple[Pass, ...] = (_PADS, _SCALES, (_CONTRACTING, _folded_norms), (_CONTRACTING, _biases))
"""What TensorRT's builder does besides."""
GENERATED: tuple[Pass, ...] = (_PADS, (_CONTRACTING, _normed_biases))
"""What costs nothing where PyTorch runs code of its own for it, or one kernel takes it along."""


def _parts(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Each part of a Concat is a Concat of its own; those that stay are copies of one part."""
    for position in places:
        node, types = v.nodes[position], {}
        for place, name in enumerate(node.inputs):
            types[f"{node.outputs[0]}/part{place}"] = v.network.type_of(name)
        pairs = zip(node.inputs, types, strict=True)
        copies = [replace(node, name=made, inputs=(i,), outputs=(made,)) for i, made in pairs]
        yield Match((position,), (*copies, replace(node, inputs=tuple(types))), types)


PARTS: tuple[Pass, ...] = ((frozenset({"Concat"}), _parts),)
"""What classic TensorRT may copy: parts of Concats, one operator each."""
