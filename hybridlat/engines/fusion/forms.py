"""One form for each computation that files write in several, for engines that see through them.

A file may say LayerNormalization or the nine operators of one, GlobalAveragePool or a mean over
pixels, Gelu or its parts, a product with its weight turned or not. PyTorch computes the same for
both, and TensorRT's compiler sees the same. ONNX Runtime's own optimiser decides for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from hybridlat.graph.network import Constant, Network, Node, TensorType

_POINTWISE = frozenset({"Mul", "Div", "Add", "Sub", "Pow"})


class Rewritten(NamedTuple):
    """A network in other operators; ``origins`` are the positions in the file of each of them."""

    network: Network
    origins: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Match:
    """Operators (``members``, positions) and those that stand in their place.

    ``stands_for`` maps tensors that are gone to those that are read instead.
    """

    members: tuple[int, ...]
    nodes: tuple[Node, ...] = ()
    types: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    stands_for: dict[str, str] = field(default_factory=dict)


def one_form(network: Network, further: tuple[Pass, ...] = ()) -> Rewritten:
    """The network with one form for each computation, and what ``further`` passes make of it."""
    result = _in_order(Rewritten(network, tuple([(i,) for i in range(len(network.nodes))])))
    for anchors, find in (*_PASSES, *further):
        if any(node.op in anchors for node in result.network.nodes):
            places = [i for i, node in enumerate(result.network.nodes) if node.op in anchors]
            result = _replaced(result, find(_View(result.network), places))
    return _in_order(result)


def _in_order(old: Rewritten) -> Rewritten:
    order = reading_order(old.network)
    nodes = tuple([old.network.nodes[i] for i in order])
    return Rewritten(replace(old.network, nodes=nodes), tuple([old.origins[i] for i in order]))


def reading_order(network: Network) -> list[int]:
    """Positions of the operators in the order in which the outputs need them.

    Branches come in the order in which their join reads them, however a file lists them; what no
    output needs comes last.
    """
    producers, nodes = network.producers, network.nodes
    order: dict[int, None] = {}
    ends = [producers[name] for name in network.outputs if name in producers]
    for end in (*ends, *range(len(nodes))):
        waiting = [end]
        while waiting:
            position = waiting[-1]
            needs = [producers.get(name, -1) for name in nodes[position].inputs]
            missing = [need for need in needs if need >= 0 and need not in order]
            if missing and position not in order:
                waiting += reversed(missing)
            else:
                order[waiting.pop()] = None
    return list(order)


def _replaced(old: Rewritten, matches: Iterator[Match]) -> Rewritten:
    """Put new operators in; a match that shares an operator with an earlier one is none."""
    network, gone, put = old.network, set[int](), dict[int, Match]()
    types, constants = dict(network.types), dict(network.constants)
    stands_for: dict[str, str] = {}
    for match in matches:
        if gone.isdisjoint(match.members):
            gone.update(match.members)
            put[match.members[-1]] = match
            types.update(match.types)
            constants.update(match.constants)
            for name, source in match.stands_for.items():
                stands_for[name] = stands_for.get(source, source)
    if not put:
        return old

    def read_now(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([stands_for.get(name, name) for name in names])

    nodes: list[Node] = []
    origins: list[tuple[int, ...]] = []
    for position, node in enumerate(network.nodes):
        if position in put:
            match = put[position]
            held = tuple(sorted({o for m in match.members for o in old.origins[m]}))
            nodes += match.nodes
            origins += [held] * len(match.nodes)
        elif position not in gone:
            nodes.append(node)
            origins.append(old.origins[position])
    if stands_for:
        nodes = [replace(node, inputs=read_now(node.inputs)) for node in nodes]
    made = {*network.inputs, *[out for node in nodes for out in node.outputs]}
    read = {name for node in nodes for name in node.inputs}
    new = replace(
        network, nodes=tuple(nodes), outputs=tuple(dict.fromkeys(read_now(network.outputs))),
        types={name: type_ for name, type_ in types.items() if name in made},
        constants={name: c for name, c in constants.items() if name in read},
    )  # fmt: skip
    return Rewritten(new, tuple(origins))


class _View:
    """A network as patterns ask it: who makes a tensor, who alone reads it, what a number is."""

    def __init__(self, network: Network) -> None:
        self.network, self.nodes, self.types = network, network.nodes, network.types
        self.producers, self.consumers = network.producers, network.consumers
        self.outputs = frozenset(network.outputs)

    def maker(self, tensor: str, *ops: str) -> int | None:
        """The operator of these kinds that makes a tensor."""
        position = self.producers.get(tensor)
        is_one = position is not None and self.nodes[position].op in ops
        return position if is_one and not self.nodes[position or 0].domain else None

    def reader(self, position: int, *ops: str) -> int | None:
        """The operator of these kinds that alone reads what one makes."""
        out = self.nodes[position].outputs[0]
        readers = self.consumers.get(out, ())
        if len(readers) != 1 or out in self.outputs or self.nodes[readers[0]].domain:
            return None
        return readers[0] if self.nodes[readers[0]].op in ops else None

    def data(self, position: int) -> list[str]:
        """What an operator reads that is no constant."""
        return [name for name in self.nodes[position].inputs if name in self.types]

    def number(self, position: int) -> float | None:
        """The one number that an operator reads beside its data."""
        constants = self.network.constants
        values = [c.values for n in self.nodes[position].inputs if (c := constants.get(n))]
        value = values[0] if len(values) == 1 else None
        return float(value[0]) if value is not None and len(value) == 1 else None

    def by_one_value(self, position: int) -> bool:
        """Whether an operator reads one tensor and one constant of one element."""
        constants = [c for n in self.nodes[position].inputs if (c := self.network.constants.get(n))]
        is_single = len(constants) == 1 and constants[0].type.elements == 1
        return is_single and len(self.data(position)) == 1


def _nothing(v: _View, places: Sequence[int]) -> Iterator[Match]:
    """What gives out just what it reads."""
    for position in places:
        node = v.nodes[position]
        is_copy = len(node.inputs) == 1 if node.op == "Concat" else True
        if node.op == "AveragePool":
            is_copy = set(cast("tuple[int, ...]", node.attribute("kernel_shape"))) == {1}
        source, made = node.inputs[0], node.outputs[0]
        is_between = source in v.types and not (made in v.outputs and source in v.network.inputs)
        if not node.domain and is_copy and is_between and v.types[source] == v.types[made]:
            yield Match((position,), stands_for={made: source})


def _splits(v: _View, places: Sequence[int]) -> Iterator[Match]:
    """Slices that together are all of a tensor are one Split."""
    parts: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for position in places:
        node = v.nodes[position]
        known = [v.network.constants.get(name) for name in node.inputs[1:]]
        if (
            len(known) == 3
            and not node.domain
            and all(c and len(c.values or ()) == 1 for c in known)
        ):
            start, end, axis = (int(c.values[0]) for c in known if c and c.values)
            parts.setdefault((node.inputs[0], axis), {})[start] = end, position
    for (source, axis), cuts in parts.items():
        starts = sorted(cuts)
        ends = [cuts[start][0] for start in starts]
        if starts[0] or starts[1:] != ends[:-1] or ends[-1] != v.types[source].shape[axis]:
            continue
        members = tuple([cuts[start][1] for start in starts])
        first = v.nodes[members[0]]
        sizes, name = tuple(map(int.__sub__, ends, starts)), f"{first.outputs[0]}/split"
        outputs = tuple([v.nodes[member].outputs[0] for member in members])
        attributes = (("axis", axis),) if axis else ()
        split = replace(
            first, op="Split", inputs=(source, name), outputs=outputs, attributes=attributes
        )
        put = Constant(TensorType("int64", (len(sizes),)), sizes)
        yield Match(members, (split,), constants={name: put})


def _steps(v: _View, places: Sequence[int]) -> Iterator[Match]:
    """Swish and Mish as older sets write them: their rules name the parts."""
    for position in places:
        node = v.nodes[position]
        (x,), (y,) = node.inputs, node.outputs
        parts = ("Sigmoid",) if node.op == "Swish" else ("Softplus", "Tanh")
        if node.domain or node.attribute("alpha") is not None:
            continue
        names = [x, *[f"{y}/{op}" for op in parts]]
        made = [
            replace(node, op=op, inputs=(names[i],), outputs=(names[i + 1],), version=13)
            for i, op in enumerate(parts)
        ]
        product = replace(node, op="Mul", inputs=(x, names[-1]), version=14)
        yield Match((position,), (*made, product), dict.fromkeys(names[1:], v.types[y]))


def _hard_gates(v: _View, places: Sequence[int]) -> Iterator[Match]:
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
            x, members = v.data(shift)[0], [shift, position]
            if v.number(shift) != 3:
                continue
            scale = v.reader(position, "Div", "Mul")
            if scale is not None and v.by_one_value(scale):
                members.append(scale)
                if v.reader(scale, "Mul") is not None and x in v.data(v.reader(scale, "Mul") or 0):
                    members.append(v.reader(scale, "Mul") or 0)
                    yield _gate(v, members, x, "HardSwish")
                else:
                    yield _gate(v, members, x, "HardSigmoid")
            elif scale is not None and x in v.data(scale):
                sixth = v.reader(scale, "Div", "Mul")
                if sixth is not None and v.by_one_value(sixth):
                    yield _gate(v, [*members, scale, sixth], x, "HardSwish")
            continue
        product = v.reader(position, "Mul")
        if product is not None and x in v.data(product):
            yield _gate(v, [position, product], x, "HardSwish")


def _gate(v: _View, members: list[int], x: str, op: str) -> Match:
    last = v.nodes[members[-1]]
    attributes = () if op == "HardSwish" else (("alpha", _SIXTH),)
    version = 14 if op == "HardSwish" else 6
    node = replace(last, op=op, inputs=(x,), attributes=attributes, version=version)
    return Match(tuple(members), (node,))


_SIXTH = 0.1666666716337204
"""A sixth as a file has it, in 32 bits."""


def _gelus(v: _View, places: Sequence[int]) -> Iterator[Match]:
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


def _only_of(v: _View, position: int) -> tuple[list[int], str] | None:
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


def _layer_norms(v: _View, places: Sequence[int]) -> Iterator[Match]:
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


def _plain_norms(v: _View, places: Sequence[int]) -> Iterator[Match]:
    """What is added to a variance is no part of a norm's cost, nor whether its shift is zero."""
    for position in places:
        node = v.nodes[position]
        kept = tuple([a for a in node.attributes if a[0] not in ("epsilon", "stash_type")])
        inputs = node.inputs[:2] if node.op == "LayerNormalization" else node.inputs
        if not node.domain and (kept, inputs) != (node.attributes, node.inputs):
            yield Match((position,), (replace(node, attributes=kept, inputs=inputs),))


def _means(v: _View, places: Sequence[int]) -> Iterator[Match]:
    """A mean over all pixels is a pooling; one that drops its axes, a mean and a view."""
    for position in places:
        node = v.nodes[position]
        axes, x, y = node.attribute("axes"), node.inputs[0], node.outputs[0]
        if x not in v.types or node.domain or not isinstance(axes, tuple):
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


def _flat_products(v: _View, places: Sequence[int]) -> Iterator[Match]:
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


def _products(v: _View, places: Sequence[int]) -> Iterator[Match]:
    """A product of a matrix with a weight is a Gemm, whose weight is not turned."""
    constants = v.network.constants
    for position in places:
        node = v.nodes[position]
        if node.domain or len(node.inputs) < 2 or node.inputs[1] not in constants:
            continue
        x, weight = node.inputs[0], constants[node.inputs[1]]
        if x not in v.types or len(v.types[x].shape) != 2 or len(weight.type.shape) != 2:
            continue
        attributes = dict(node.attributes)
        turned = attributes.pop("transB", 0)
        if attributes or (node.op == "Gemm" and not turned):
            continue
        inputs = [x, f"{node.outputs[0]}/weight", *node.inputs[2:]]
        shape = weight.type.shape[::-1] if turned else weight.type.shape
        put = {inputs[1]: Constant(weight.type._replace(shape=shape))}
        members = [position]
        shift = v.reader(position, "Add") if node.op == "MatMul" else None
        if shift is not None and len(v.data(shift)) == 1:
            bias = next(name for name in v.nodes[shift].inputs if name in constants)
            if constants[bias].type.shape == shape[1:]:
                members.append(shift)
                inputs.append(bias)
        last = v.nodes[members[-1]]
        gemm = replace(last, op="Gemm", inputs=tuple(inputs), attributes=(), version=13)
        yield Match(tuple(members), (gemm,), constants=put)


def _resizes(v: _View, places: Sequence[int]) -> Iterator[Match]:
    """The sizes of the result say how much is resized."""
    for position in places:
        node, sizes = v.nodes[position], f"{v.nodes[position].outputs[0]}/sizes"
        shape = v.types[node.outputs[0]].shape
        known = Constant(TensorType("int64", (len(shape),)), shape)
        if not node.domain and any(node.inputs[1:]):
            inputs = (node.inputs[0], "", "", sizes)
            yield Match((position,), (replace(node, inputs=inputs),), constants={sizes: known})


Pass = tuple[frozenset[str], Callable[[_View, Sequence[int]], Iterator[Match]]]
_PASSES: tuple[Pass, ...] = (
    (frozenset({"Slice", "Reshape", "Concat", "Expand", "Tile", "AveragePool"}), _nothing),
    (frozenset({"Slice"}), _splits),
    (frozenset({"Swish", "Mish"}), _steps),
    (frozenset({"Clip", "HardSigmoid"}), _hard_gates),
    (frozenset({"Erf", "Tanh"}), _gelus),
    (frozenset({"ReduceMean"}), _layer_norms),
    (frozenset({"LayerNormalization", "InstanceNormalization"}), _plain_norms),
    (frozenset({"ReduceMean", "ReduceMax", "ReduceL2"}), _means),
    (frozenset({"Gemm"}), _flat_products),
    (frozenset({"Gemm", "MatMul"}), _products),
    (frozenset({"Resize"}), _resizes),
)
"""In this order: the operators that a form begins with, and what finds it."""


def _folded_norms(v: _View, places: Sequence[int]) -> Iterator[Match]:
    """A batch normalisation behind a convolution is in its weights."""
    for position in places:
        norm = v.reader(position, "BatchNormalization")
        if norm is not None and not v.nodes[position].domain:
            made = replace(v.nodes[position], outputs=v.nodes[norm].outputs)
            yield Match((position, norm), (made,))


def _biases(v: _View, places: Sequence[int]) -> Iterator[Match]:
    """A kernel adds its bias, be it zero or not."""
    for position in places:
        node = v.nodes[position]
        if not node.domain and len(node.inputs) == 3 and node.inputs[2] in v.network.constants:
            yield Match((position,), (replace(node, inputs=node.inputs[:2]),))


_CONTRACTING = frozenset({"Conv", "ConvTranspose"})
BUILT: tuple[Pass, ...] = (
    (_CONTRACTING, _folded_norms), (_CONTRACTING | {"Gemm"}, _biases),
)  # fmt: skip
"""What TensorRT's builder does besides."""
