"""Networks written in other operators, by patterns that are found in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.normal import sizes_of
from hybridlat.graph.operators import SET, plain_version


class Rewritten(NamedTuple):
    """A network in other operators; ``origins`` are the positions in the file of each of them."""

    network: Network
    origins: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, file: Network) -> Rewritten:
        """The network of a file before anything is written anew."""
        return cls(file, tuple([(i,) for i in range(len(file.nodes))]))

    def then(self, passes: Sequence[Pass]) -> Rewritten:
        result = _in_order(self)
        for anchors, find in passes:
            nodes = enumerate(result.network.nodes)
            places = [i for i, node in nodes if node.op in anchors and not node.domain]
            if places:
                result = _replaced(result, find(View(result.network), places))
        return _in_order(result)


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


def _in_order(old: Rewritten) -> Rewritten:
    """The operators in the order in which the outputs need them, however a file lists them."""
    network = old.network
    ends = [network.producers[name] for name in network.outputs if name in network.producers]
    order = network.order_before((*ends, *range(len(network.nodes))))
    nodes = tuple([network.nodes[i] for i in order])
    return Rewritten(replace(network, nodes=nodes), tuple([old.origins[i] for i in order]))


def _hides(match: Match, network: Network) -> bool:
    """Whether a result that only the members make is read by others or given out."""
    kept = {*match.stands_for, *[name for node in match.nodes for name in node.outputs]}
    made = {name for member in match.members for name in network.nodes[member].outputs}
    return any(
        name in network.outputs
        or not set(match.members).issuperset(network.consumers.get(name, ()))
        for name in made - kept
    )


def _replaced(old: Rewritten, matches: Iterator[Match]) -> Rewritten:
    """Put new operators in; a view is gone with the last of its readers.

    A match that shares an operator with an earlier one, or hides a result that is read, is none.
    """
    network, gone, put = old.network, set[int](), dict[int, Match]()
    types, constants = dict(network.types), dict(network.constants)
    stands_for: dict[str, str] = {}
    for match in matches:
        if gone.isdisjoint(match.members) and not _hides(match, network):
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
    needed = {name for node in nodes for name in node.inputs}.union(read_now(network.outputs))
    dropped = {name for name in network.consumers if name not in needed}
    kept = [i for i, n in enumerate(nodes) if n.op != "Reshape" or n.outputs[0] not in dropped]
    nodes, origins = [nodes[i] for i in kept], [origins[i] for i in kept]
    made = {*network.inputs, *[out for node in nodes for out in node.outputs]}
    read = {name for node in nodes for name in node.inputs}
    outputs = tuple([name for name in dict.fromkeys(read_now(network.outputs)) if name in made])
    types = {name: type_ for name, type_ in types.items() if name in made}
    constants = {name: constant for name, constant in constants.items() if name in read}
    new = replace(network, nodes=tuple(nodes), outputs=outputs, types=types, constants=constants)
    return Rewritten(new, tuple(origins))


class View:
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


class Parts:
    """Operators that stand in one's place: each has one result, the last has that one's."""

    def __init__(self, v: View, position: int) -> None:
        self.v, self.name, (self.made, *_) = v, v.nodes[position].name, v.nodes[position].outputs
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Constant] = {}

    def add(
        self,
        op: str,
        read: Sequence[str],
        shape: Sequence[int],
        *constants: Constant,
        **attributes: AttributeValue,
    ) -> str:
        """One more operator, which reads ``constants`` behind tensors; the name of its result."""
        made = f"{self.made}/part{len(self.nodes)}"
        while made in self.v.types or f"{made}/0" in self.v.network.constants:
            made += "_"  # an earlier form has written this tensor anew as well
        names = [f"{made}/{place}" for place in range(len(constants))]
        self.constants.update(zip(names, constants, strict=True))
        self.types[made] = self.v.types[self.made]._replace(shape=tuple(shape))
        version, inputs = plain_version(op, SET, attributes), (*read, *names)
        written = tuple(attributes.items())
        self.nodes.append(Node(self.name, op, inputs, (made,), written, version=version))
        return made

    def view(self, source: str, shape: Sequence[int]) -> str:
        """A tensor in another shape; itself if that is its own."""
        known = self.types.get(source) or self.v.network.type_of(source)
        if known.shape == tuple(shape):
            return source
        to = Constant(TensorType("int64", (len(shape),)), tuple(shape))
        return self.add("Reshape", (source,), shape, to)

    def match(self, members: Sequence[int]) -> Match:
        *nodes, last = self.nodes
        del self.types[last.outputs[0]]
        nodes.append(replace(last, outputs=(self.made,)))
        return Match(tuple(members), tuple(nodes), self.types, self.constants)


Pass = tuple[frozenset[str], Callable[[View, Sequence[int]], Iterator[Match]]]
"""The operators of ONNX's own domain that a pattern begins with, and what finds it at them."""


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
        is_between = source in v.types and not (made in v.outputs and source in v.network.inputs)
        if is_copy and is_between and v.types[source] == v.types[made]:
            yield Match((position,), stands_for={made: source})


def views(v: View, places: Sequence[int]) -> Iterator[Match]:
    """A view of a view reads what that reads."""
    for position in places:
        source, made = v.nodes[position].inputs[0], v.nodes[position].outputs[0]
        while (before := v.maker(source, "Reshape")) is not None:
            source = v.nodes[before].inputs[0]
        if source not in v.types:
            continue
        if v.types[source] == v.types[made]:
            if made not in v.outputs or source not in v.network.inputs:
                yield Match((position,), stands_for={made: source})
        elif source != v.nodes[position].inputs[0]:
            parts = Parts(v, position)
            parts.view(source, v.types[made].shape)
            yield parts.match((position,))


def still(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Turning axes of one element moves nothing, so that it is a Reshape."""
    for position in places:
        (read,), (made,) = v.nodes[position].inputs, v.nodes[position].outputs
        order, shape = sizes_of(v.nodes[position], "perm"), v.network.type_of(read).shape
        moved = [axis for axis in order or () if shape[axis] > 1]
        if order and moved == sorted(moved) and v.types[made].shape != shape:
            parts = Parts(v, position)
            parts.view(read, v.types[made].shape)
            yield parts.match((position,))


def twins(v: View, places: Sequence[int]) -> Iterator[Match]:
    """What does the same to the same tensor is done once: some exporters write it so."""
    first = dict[tuple[object, ...], str]()
    for position in places:
        node, made = v.nodes[position], v.nodes[position].outputs[0]
        kept = first.setdefault((node.op, node.attributes, node.inputs, node.outputs[1:]), made)
        if kept != made and made not in v.outputs:
            yield Match((position,), stands_for={made: kept})


def chunks(v: View, places: Sequence[int]) -> Iterator[Match]:
    """Each part of a Split is a Slice, which may be copied alone."""
    for position in places:
        node, end, kind = v.nodes[position], 0, TensorType("int64", (1,))
        axis, sizes = node.attribute("axis", 0), v.network.constants.get("".join(node.inputs[1:]))
        nodes, constants = list[Node](), dict[str, Constant]()
        for made, size in zip(node.outputs, (sizes and sizes.values) or (), strict=False):
            start, end = end, end + int(size)
            names = [f"{made}/{label}" for label in ("start", "end", "axis")]
            values = (start, end, int(str(axis)))
            constants |= {n: Constant(kind, (at,)) for n, at in zip(names, values, strict=True)}
            view = replace(node, op="Slice", inputs=(node.inputs[0], *names), outputs=(made,))
            nodes += [replace(view, attributes=(), version=13)] * bool(made)
        if nodes:
            yield Match((position,), tuple(nodes), constants=constants)


def concats(v: View, places: Sequence[int]) -> Iterator[Match]:
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
