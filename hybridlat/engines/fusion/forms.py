"""One form for each computation that files write in several, for engines that see through them.

A file may say LayerNormalization or the nine operators of one, GlobalAveragePool or a mean over
pixels, Gelu or its parts, a product with its weight turned or not. PyTorch computes the same for
both, and TensorRT's compiler sees the same. ONNX Runtime's own optimiser decides for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from hybridlat.engines.fusion.composites import COMPOSITES
from hybridlat.engines.fusion.rewriting import Match, Pass, Rewritten, View, rewritten
from hybridlat.graph.network import Constant, Network, Node, TensorType


def one_form(network: Network, further: tuple[Pass, ...] = ()) -> Rewritten:
    """The network with one form for each computation, and what ``further`` passes make of it."""
    return rewritten(network, (*_PASSES, *further))


def _nothing(v: View, places: Sequence[int]) -> Iterator[Match]:
    """What gives out just what it reads."""
    for position in places:
        node = v.nodes[position]
        is_copy = len(node.inputs) == 1 if node.op == "Concat" else True
        if node.op == "AveragePool":
            is_copy = set(cast("tuple[int, ...]", node.attribute("kernel_shape"))) == {1}
        source, made = node.inputs[0], node.outputs[0]
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
    """A mean over all pixels is a pooling; one that drops its axes, a mean and a view."""
    for position in places:
        node = v.nodes[position]
        axes, x, y = node.attribute("axes"), node.inputs[0], node.outputs[0]
        if x not in v.types or not isinstance(axes, tuple):
            continue
        shape = v.types[x].shape
        keeps, pools = node.attribute("keepdims", 1), axes == tuple(range(2, len(shape)))
        pools = pools and node.op == "ReduceMean" and len(shape) == 4
        kept = tuple([1 if axis in axes else size for axis, size in enumerate(shape)])
        if keeps and not pools:
            continue
        mean = replace(node, attributes=(("axes", axes),))
        if pools:
            mean = replace(node, op="GlobalAveragePool", attributes=(), version=1)
        if keeps:
            yield Match((position,), (mean,))
            continue
        whole, sizes = f"{y}/whole", f"{y}/shape"
        to = Constant(TensorType("int64", (len(v.types[y].shape),)), v.types[y].shape)
        view = Node(node.name, "Reshape", (whole, sizes), (y,), version=14)
        nodes = (replace(mean, outputs=(whole,)), view)
        yield Match((position,), nodes, {whole: v.types[x]._replace(shape=kept)}, {sizes: to})


def _flat_products(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A Gemm between two views of more axes is a product of those, and a sum."""
    for position in places:
        node = v.nodes[position]
        before, after = v.maker(node.inputs[0], "Reshape"), v.reader(position, "Reshape")
        if before is None or after is None or v.reader(before, "Gemm") != position:
            continue
        x, y = v.nodes[before].inputs[0], v.nodes[after].outputs[0]
        weight = v.network.constants.get(node.inputs[1])
        turned = dict(node.attributes) == {"transB": 1}
        if weight is None or x not in v.types or (node.attributes and not turned):
            continue
        if any(name in v.types for name in node.inputs[2:]):
            continue
        shape = weight.type.shape[::-1] if turned else weight.type.shape
        if (*v.types[x].shape[:-1], shape[-1]) != v.types[y].shape:
            continue
        name, product = f"{y}/weight", f"{y}/product"
        has_sum = len(node.inputs) > 2
        made = product if has_sum else y
        multiply = Node(node.name, "MatMul", (x, name), (made,), version=13)
        add = Node(node.name, "Add", (product, *node.inputs[2:]), (y,), version=14)
        put = {name: Constant(weight.type._replace(shape=shape))}
        types = {product: v.types[y]} if has_sum else {}
        nodes = (multiply, add)[: 1 + has_sum]
        yield Match((before, position, after), nodes, types, put)


def _products(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A product of a matrix with a weight is a Gemm with a weight that is not turned.

    Its epilogue adds a bias, be it zero or not. A Gemm that adds a computed tensor stays.
    """
    constants = v.network.constants
    for position in places:
        node = v.nodes[position]
        if len(node.inputs) < 2 or not constants.keys() >= set(node.inputs[1:]):
            continue
        x, weight = node.inputs[0], constants[node.inputs[1]]
        if x not in v.types or len(v.types[x].shape) != 2 or len(weight.type.shape) != 2:
            continue
        attributes = dict(node.attributes)
        turned = attributes.pop("transB", 0)
        if attributes or (node.op == "Gemm" and not turned and len(node.inputs) < 3):
            continue
        inputs = [x, f"{node.outputs[0]}/weight"]
        shape = weight.type.shape[::-1] if turned else weight.type.shape
        put = {inputs[1]: Constant(weight.type._replace(shape=shape))}
        members = [position]
        shift = v.reader(position, "Add") if node.op == "MatMul" else None
        if shift is not None and len(v.data(shift)) == 1:
            bias = next(name for name in v.nodes[shift].inputs if name in constants)
            if constants[bias].type.shape == shape[1:]:
                members.append(shift)
        last = v.nodes[members[-1]]
        gemm = replace(last, op="Gemm", inputs=tuple(inputs), attributes=(), version=13)
        yield Match(tuple(members), (gemm,), constants=put)


def _resizes(v: View, places: Sequence[int]) -> Iterator[Match]:
    """The sizes of the result say how much is resized."""
    for position in places:
        node, sizes = v.nodes[position], f"{v.nodes[position].outputs[0]}/sizes"
        shape = v.types[node.outputs[0]].shape
        known = Constant(TensorType("int64", (len(shape),)), shape)
        if any(node.inputs[1:]):
            inputs = (node.inputs[0], "", "", sizes)
            yield Match((position,), (replace(node, inputs=inputs),), constants={sizes: known})


_PASSES: tuple[Pass, ...] = (
    (frozenset({"Slice", "Reshape", "Concat", "Expand", "Tile", "AveragePool"}), _nothing),
    (frozenset({"Slice"}), _splits),
    *COMPOSITES,
    (frozenset({"LayerNormalization", "InstanceNormalization"}), _plain_norms),
    (frozenset({"ReduceMean", "ReduceMax", "ReduceL2"}), _means),
    (frozenset({"Gemm"}), _flat_products),
    (frozenset({"Gemm", "MatMul"}), _products),
    (frozenset({"Resize"}), _resizes),
)
"""In this order: the operators that a form begins with, and what finds it."""


def _folded_norms(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A batch normalisation behind a convolution is in its weights, with what scales it on."""
    for position in places:
        below = v.reader(position, "BatchNormalization")
        members = [position]
        while below is not None and len(v.data(below)) == 1:
            members.append(below)
            below = v.reader(below, "Mul", "Add")
        if len(members) > 1:
            made = replace(v.nodes[position], outputs=v.nodes[members[-1]].outputs)
            yield Match(tuple(members), (made,))


def _concats(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Parts of parts are parts."""
    for position in places:
        node, members = v.nodes[position], [position]
        inputs: list[str] = []
        for name in node.inputs:
            maker = v.maker(name, "Concat")
            is_part = maker is not None and v.reader(maker, "Concat") == position
            if maker is not None and is_part and v.nodes[maker].attributes == node.attributes:
                members.append(maker)
                inputs += v.nodes[maker].inputs
            else:
                inputs.append(name)
        if len(members) > 1:
            yield Match(tuple(members), (replace(node, inputs=tuple(inputs)),))


def _biases(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A kernel adds its bias, be it zero or not."""
    for position in places:
        node = v.nodes[position]
        if len(node.inputs) == 3 and node.inputs[2] in v.network.constants:
            yield Match((position,), (replace(node, inputs=node.inputs[:2]),))


_CONTRACTING = frozenset({"Conv", "ConvTranspose"})
BUILT: tuple[Pass, ...] = (
    (_CONTRACTING, _folded_norms), (_CONTRACTING, _biases), (frozenset({"Concat"}), _concats),
)  # fmt: skip
"""What TensorRT's builder does besides."""
