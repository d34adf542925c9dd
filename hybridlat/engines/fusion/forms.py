"""One form for each computation that files write in several, for engines that see through them.

A file may say LayerNormalization or the nine operators of one, GlobalAveragePool or a mean over
pixels, Gelu or its parts, a product with its weight turned or not. PyTorch computes the same for
both, and TensorRT's compiler sees the same. ONNX Runtime's own optimiser decides for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hybridlat.engines.fusion.composites import COMPOSITES, concats, own_pads
from hybridlat.engines.fusion.expanded import attentions
from hybridlat.engines.fusion.patterns import ONCE, TURNS, Match, Pass, each, integers, nothing
from hybridlat.engines.fusion.places import PLACES, SLICES
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.graph.operators import Sizes, named
from hybridlat.onnx_io.facts import simplified

_POOLS = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}
_LAYERS = named("Conv ConvTranspose Relu Clip LeakyRelu Elu MaxPool AveragePool Add Concat")
"""What a batch normalisation stands behind: neither an image nor another norm."""
_POOLED = {op: pool for pool, op in _POOLS.items()}
_PRODUCTS = frozenset({"Gemm", "MatMul"})
_BY_ROWS = named(
    "Add Sub Mul Div Relu Gelu Sigmoid Tanh HardSwish HardSigmoid LeakyRelu Elu LayerNormalization"
)
"""What treats each row of a matrix alone, where constants have one axis at most."""


def norms(net: Network, node: Node, match: Match) -> None:
    """A scale for each channel of what a layer makes, and then a shift, is a batch normalisation.

    So is a scale alone behind a depthwise convolution or before a ReLU: TensorFlow leaves zeros
    out. Any other is a layer's.
    """
    is_whole = node.op == "Add"
    scale = net.maker(node.inputs[0], "Mul") if is_whole else node
    if scale is None or (layer := net.maker(x := scale.inputs[0], *_LAYERS)) is None:
        return
    members = (scale, node) if is_whole else (node,)
    is_deep, (dtype, shape) = not is_whole and layer.attribute("group", 1) != 1, net.type_of(x)
    behind = ("Add",) if is_whole else ("Relu", "Clip")
    known = [net.constant(member, 1) for member in members]
    channels = (*shape[1:2], *[1] * (len(shape) - 2))
    is_of_channels = all(c is not None and c.type.shape == channels for c in known)
    if is_of_channels and shape[2:] and (is_deep or net.reader(scale, *behind) is not None):
        match.members, vector = members, Constant(TensorType(dtype, shape[1:2]))
        match.add("BatchNormalization", (x,), shape, *[vector] * 4)


def _plain(net: Network, node: Node, match: Match) -> None:
    """What is added to a variance, a shift of zeros, and pads that a pool has not cost nothing."""
    counted = () if node.sizes("pads") else ("count_include_pad",)
    plain = node.with_attributes("epsilon", "stash_type", *counted)
    if node.op == "LayerNormalization" and net.types.keys().isdisjoint(node.inputs[2:]):
        plain = replace(plain, inputs=node.inputs[:2])
    if plain != node:
        match.put(plain)


def _means(net: Network, node: Node, match: Match) -> None:
    """A mean or maximum over all pixels is a pooling; one that drops its axes, one and a view.

    That of a tensor with its axes turned is one over other axes, where the rest keep their order.
    A maximum in one window without padding is over all pixels; maps of one row are rows.
    """
    x, made, op = node.inputs[0], net.types[match.made].shape, _POOLS.get(node.op, node.op)
    is_whole = node.sizes("kernel_shape") == net.type_of(x).shape[2:]
    if node.op == "MaxPool" and is_whole and not node.sizes("pads") and len(node.outputs) == 1:
        op = "ReduceMax"
    axes = tuple(range(2, len(made))) if op != node.op else node.sizes("axes")
    if x not in net.types or axes is None:
        return
    before = net.type_of(row := (net.maker(x, "Reshape") or node).inputs[0]).shape
    if axes == (2, 3) and net.types[x].shape == (*before[:2], 1, *before[2:]):
        x, axes = row, (2,)
    turn = net.maker(x, "Transpose")
    order = (turn.sizes("perm") if turn else None) or ()
    rest = [axis for place, axis in enumerate(order) if place not in axes]
    if turn and net.reader(turn, node.op, "Reshape") and rest == sorted(rest):
        x, axes = turn.inputs[0], tuple(sorted({*order}.difference(rest)))
    shape, stated = net.types[x].shape, {"axes": axes}
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    if len(shape) > 3 and axes == tuple(range(2, len(shape))) and op in _POOLED:
        op, stated = _POOLED[op], {}
    if op != node.op or x != node.inputs[0] or not node.attribute("keepdims", 1):
        match.view(match.add(op, (x,), kept, **stated), made)


def _counted(net: Network, node: Node, match: Match) -> None:
    """A sum divided by how many there are is a mean."""
    behind, axes = net.reader(node, "Div", "Mul"), net.constant(node, 1)
    number = net.constant(behind, 1) if behind is not None else None
    if behind is None or axes is None or not axes.values or number is None or not number.values:
        return
    places = tuple(map(int, axes.values))
    count, times = math.prod(net.type_of(node.inputs[0]).shape[a] for a in places), number.values[0]
    if len(number.values) == 1 and math.isclose(
        times, count ** (1 if behind.op == "Div" else -1), rel_tol=1e-3
    ):
        match.members, stated = (node, behind), dict(node.attributes) | {"axes": places}
        match.add("ReduceMean", node.inputs[:1], net.types[match.made].shape, **stated)


def _bounded(net: Network, node: Node, match: Match) -> None:
    """What lies between two numbers is clipped; what is nothing below 0 is a ReLU."""
    way, shape = {"Max": "Min", "Min": "Max"}.get(node.op, ""), net.types[match.made].shape
    other = net.reader(node, way)
    steps = (node, other) if other is not None else (node,)
    read = [name for name in node.inputs if name in net.types]
    known = [net.constants[name] for step in steps for name in step.inputs if name in net.constants]
    if len(read) != 1 or len(known) != len(steps) or any(c.type.elements > 1 for c in known):
        return
    if other is not None:
        match.members, ends = steps, known[:: 1 if way == "Min" else -1]
        ends = [replace(end, type=end.type._replace(shape=())) for end in ends]
        match.add("Clip", read, shape, *ends)
    elif node.op != "Min" and known[0].values == (0,) and len(node.inputs) == 2:
        match.add("Relu", read, shape)


def _flat_windows(net: Network, node: Node, match: Match) -> None:
    """A pool of maps of one row is one of rows, as a module calls it."""
    view, read = net.maker(node.inputs[0], "Reshape"), net.type_of(node.inputs[0]).shape
    if view is None or len(node.outputs) > 1 or len(read) != 4:
        return
    row, shape = net.type_of(view.inputs[0]).shape, net.types[match.made].shape
    if (*row[:2], 1, *row[2:]) != read or len(row) != 3 or shape[2] != 1:
        return
    stated = {n: v[1::2] if isinstance(v, tuple) else v for n, v in node.attributes}
    made = match.add(node.op, view.inputs[:1], (*row[:2], *shape[3:]), **stated)
    match.view(made, shape)


def _sums(net: Network, node: Node, match: Match) -> None:
    """A sum whose axes a view puts back, or takes away, keeps or drops them itself."""
    behind, axes = net.reader(node, "Reshape"), net.constant(node, 1)
    if behind is None or axes is None or axes.values is None or node.inputs[0] not in net.types:
        return
    shape, is_kept = net.types[node.inputs[0]].shape, node.attribute("keepdims", 1) == 1
    sizes = [1 if axis in axes.values else size for axis, size in enumerate(shape)]
    left = [size for axis, size in enumerate(shape) if axis not in axes.values]
    new, stated = (left, {"keepdims": 0}) if is_kept else (sizes, {})
    if list(net.types[behind.outputs[0]].shape) == new:
        match.members = (node, behind)
        match.add("ReduceSum", node.inputs[:1], new, axes, **stated)


def _turned_products(net: Network, node: Node, match: Match) -> None:
    """The axes of what a Gemm reads are turned before it."""
    x = node.inputs[0]
    if node.attribute("transA", 0) and x in net.types:
        turn = match.add("Transpose", (x,), net.types[x].shape[::-1], perm=(1, 0))
        match.put(replace(node.with_attributes("transA"), inputs=(turn, *node.inputs[1:])))


def _weight_of(net: Network, node: Node) -> tuple[Constant, bool] | None:
    """The matrix that a matrix is multiplied with, as it is then, and whether it is turned."""
    weight, attributes = net.constant(node, 1), dict(node.attributes)
    is_turned = attributes == {"transB": 1}
    if weight is None or len(weight.type.shape) != 2 or (attributes and not is_turned):
        return None
    if not net.types.keys().isdisjoint(node.inputs[2:]):
        return None
    shape = weight.type.shape[::-1] if is_turned else weight.type.shape
    return Constant(weight.type._replace(shape=shape)), is_turned


def _flat_products(net: Network, nodes: Sequence[Node]) -> Iterator[Match]:
    """Products, and what treats their rows behind them, have the axes of what the first one reads.

    So views of rows stand behind both. A Gemm with a turned weight is a module's, which adds a
    bias: exporters leave out one of zeros.
    """
    leads = dict[str, Sizes]()
    for node in nodes:
        (dtype, shape), read = net.types[node.outputs[0]], node.inputs[0]
        tensors = [name for name in node.inputs if name in net.types]
        lead, known = leads.get(read), [*map(net.constants.get, node.inputs[len(tensors) :])]
        weight = _weight_of(net, node) if node.op in _PRODUCTS else None
        if weight is not None and lead is None:
            axes = net.type_of((net.maker(read, "Reshape") or node).inputs[0]).shape
            fronts = [axes[: end + 1] for end in range(len(axes))]
            lead = next((f for f in fronts if math.prod(f) == math.prod(shape[:-1])), shape[:-1])
        is_view = node.op == "Reshape" and shape[-1:] == net.type_of(read).shape[-1:]
        are_rows = all(c is not None and len(c.type.shape) < 2 for c in known)
        rows = {(leads.get(name), net.types[name].shape[:-1]) for name in tensors}
        are_rows &= node.op in _BY_ROWS and node.attribute("axis") is None
        are_rows &= rows == {(lead, shape[:-1])}
        if lead is None or not (weight or is_view or are_rows):
            continue
        leads[node.outputs[0]] = lead
        if is_view or shape[:-1] == lead:
            continue
        match, operands = Match(net, node), [c for c in known if c is not None]
        views = [match.view(name, (*lead, net.types[name].shape[-1])) for name in tensors]
        new = (*lead, shape[-1])
        if weight is None:
            made = match.add(node.op, views, new, *operands, **dict(node.attributes))
        else:
            made = match.add("MatMul", views, new, weight[0])
            for bias in operands[1:] or [Constant(TensorType(dtype, new[-1:]))] * weight[1]:
                made = match.add("Add", (made,), new, bias)
        match.view(made, shape)
        yield match


def _joined_products(net: Network, node: Node, match: Match) -> None:
    """Products of one tensor that onnxsim has joined, as it names the weight, are several."""
    product = net.maker(node.inputs[0], "MatMul")
    weight = net.constant(product, 1) if product else None
    is_last = node.attribute("axis", 0) == len(net.type_of(node.inputs[0]).shape) - 1
    if product and weight and is_last and simplified(product.inputs, ()) == "changed":
        match.members = (product, node)
        for made in filter(None, node.outputs):
            part = replace(product, inputs=product.inputs[:1], outputs=(made,))
            shape = (*weight.type.shape[:-1], net.types[made].shape[-1])
            match.put(part, Constant(weight.type._replace(shape=shape)))


def _products(net: Network, node: Node, match: Match) -> None:
    """A product of a matrix with a weight is a Gemm with a weight that is not turned.

    Its epilogue adds a bias, be it zero or not. A Gemm that adds a computed tensor stays.
    """
    weight, x, made = _weight_of(net, node), node.inputs[0], net.types[match.made].shape
    if weight is None or x not in net.types or len(net.types[x].shape) != 2:
        return
    shift = net.reader(node, "Add") if node.op == "MatMul" else None
    added = [c.type.shape for n in (shift.inputs if shift else ()) if (c := net.constants.get(n))]
    match.members = (node, shift) if shift and made[1:] in added else (node,)
    match.add("Gemm", (x,), made, weight[0])


def _resizes(net: Network, node: Node, match: Match) -> None:
    """The sizes of the result say how much is resized, and no time hangs on which pixel is near."""
    if any(node.inputs[1:]):
        node = replace(node, inputs=(node.inputs[0], "", ""))
        if node.attribute("mode", "nearest") == "nearest":
            node = node.with_attributes("cubic_coeff_a", **_NEAREST)
        match.put(node, integers(*net.types[match.made].shape))


_NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_ROWS: Pass = (_PRODUCTS | _BY_ROWS | {"Reshape"}, _flat_products)
FORMS: tuple[Pass, ...] = (
    each("Conv", own_pads),
    each("Attention", attentions),
    *PLACES,
    each("Gemm", _turned_products),
    each("ReduceSum", _counted),
    each("GlobalAveragePool GlobalMaxPool MaxPool ReduceMean ReduceMax ReduceL2", _means),
    each("Slice Concat Expand Tile AveragePool", nothing),
    *ONCE,
    each("AveragePool MaxPool", _flat_windows),
    each("ReduceSum", _sums),
    *SLICES,
    each("Split", _joined_products),
    *COMPOSITES,
    each("Add", norms),
    each("Max Min Clip", _bounded),
    each("LayerNormalization RMSNormalization InstanceNormalization AveragePool", _plain),
    *(_ROWS, TURNS) * 2,  # what follows a product may have its axes now
    each("Gemm MatMul", _products),
    each("Resize", _resizes),
    each("Concat", concats, is_backwards=True),
)
"""In this order: the operators that a form begins with, and what finds it."""


def biases(net: Network, node: Node, match: Match) -> None:
    """A kernel adds its bias, be it zero or not."""
    if len(node.inputs) == 3 and node.inputs[2] in net.constants:
        match.put(replace(node, inputs=node.inputs[:2]))


def normed_biases(net: Network, node: Node, match: Match) -> None:
    """A bias before a norm does not count: folded files lack it, and a compiler's loop adds it."""
    if net.reader(node, "BatchNormalization") is not None:
        biases(net, node, match)


CONTRACTING = "Conv ConvTranspose"
