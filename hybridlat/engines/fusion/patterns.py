"""Networks written in other operators, by patterns that are found in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.operators import SET, named, plain_version


class Match:
    """Operators of a network, and those that stand in their place.

    ``nodes`` stand where the last of the ``members`` did. What ``add`` made last is that one's
    result. ``stands_for`` maps tensors that are gone to those that are read instead.
    """

    def __init__(self, net: Network, *members: Node) -> None:
        self.net, self.members = net, members
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Constant] = {}
        self.stands_for: dict[str, str] = {}
        self._added = ""

    @property
    def made(self) -> str:
        """The result of the last of them."""
        return self.members[-1].outputs[0]

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
        while made in self.net.types or f"{made}/0" in self.net.constants:
            made += "_"  # an earlier form has written this tensor anew as well
        names = [f"{made}/{place}" for place in range(len(constants))]
        self.constants.update(zip(names, constants, strict=True))
        self.types[made] = self.net.types[self.made]._replace(shape=tuple(shape))
        version, inputs = plain_version(op, SET, attributes), (*read, *names)
        name, written = self.members[-1].name, tuple(attributes.items())
        self.nodes.append(Node(name, op, inputs, (made,), written, version=version))
        self._added = made
        return made

    def view(self, source: str, shape: Sequence[int]) -> str:
        """A tensor in another shape; itself if that is its own."""
        known = self.types.get(source) or self.net.type_of(source)
        if known.shape == tuple(shape):
            return source
        return self.add("Reshape", (source,), shape, whole_numbers(*shape))

    def put(self, *nodes: Node, **constants: Constant) -> None:
        """Operators whose results have their names already, and new constants."""
        self.nodes += nodes
        self.constants |= constants

    def skip(self, source: str) -> None:
        """Readers of the result read ``source`` instead."""
        self.stands_for[self.made] = source

    def written(self) -> list[Node]:
        """The operators that stand in place, under the names of their results."""
        if not self.nodes or self.nodes[-1].outputs != (self._added,):
            return self.nodes
        return [*self.nodes[:-1], replace(self.nodes[-1], outputs=(self.made,))]


_COPIES, _MOST_PARTS = named("Reshape Concat"), 1000
Pass = tuple[frozenset[str], Callable[[Network, Sequence[Node]], Iterator[Match]]]
"""The operators of ONNX's own domain that a pattern begins with, and what finds it at them."""


def each(
    ops: str, fill: Callable[[Network, Node, Match], None], *, is_backwards: bool = False
) -> Pass:
    """The pass that looks at one of these operators after the other.

    ``fill`` gets a match of that one, and leaves it empty where the operator stays.
    """

    def find(net: Network, nodes: Sequence[Node]) -> Iterator[Match]:
        for node in reversed(nodes) if is_backwards else nodes:
            match = Match(net, node)
            fill(net, node, match)
            if match.nodes or match.stands_for:
                yield match

    return frozenset(ops.split()), find


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
            net = result.network
            nodes = [node for node in net.nodes if node.op in anchors and not node.domain]
            if nodes:
                result = _replaced(result, [*find(net, nodes)])
        return _in_order(result)


def _in_order(old: Rewritten) -> Rewritten:
    """The operators in the order in which the outputs need them, however a file lists them."""
    network = old.network
    order = network.order_before((*network.ends, *range(len(network.nodes))))
    nodes = tuple([network.nodes[i] for i in order])
    return Rewritten(replace(network, nodes=nodes), tuple([old.origins[i] for i in order]))


def _replaced(old: Rewritten, matches: Sequence[Match]) -> Rewritten:
    """Put new operators in; a view or Concat is gone with the last of its readers.

    A match that shares an operator with an earlier one, or hides a result that is read, is none.
    """
    if not matches:
        return old
    network, gone, put = old.network, set[int](), dict[int, tuple[list[Node], set[int]]]()
    types, constants = dict(network.types), dict(network.constants)
    place = {id(node): position for position, node in enumerate(network.nodes)}
    stands_for: dict[str, str] = {}
    for match in matches:
        members, nodes = {place[id(node)] for node in match.members}, match.written()
        if gone.isdisjoint(members) and not _hides(match, members, nodes):
            gone |= members
            put[place[id(match.members[-1])]] = nodes, members
            types |= match.types
            constants |= match.constants
            for name, source in match.stands_for.items():
                stands_for[name] = stands_for.get(source, source)
    if not put:
        return old

    def read_now(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([stands_for.get(name, name) for name in names])

    pairs: list[tuple[Node, tuple[int, ...]]] = []
    for position, node in enumerate(network.nodes):
        if position in put:
            nodes, members = put[position]
            held = tuple(sorted({o for member in members for o in old.origins[member]}))
            pairs += [(new, held) for new in nodes]
        elif position not in gone:
            pairs.append((node, old.origins[position]))
    if stands_for:
        pairs = [(replace(node, inputs=read_now(node.inputs)), held) for node, held in pairs]
    needed = {name for node, _ in pairs for name in node.inputs}.union(read_now(network.outputs))
    dropped = {name for name in network.consumers if name not in needed}
    pairs = [p for p in pairs if p[0].op not in _COPIES or p[0].outputs[0] not in dropped]
    nodes = [node for node, _ in pairs]
    made = {*network.inputs, *[out for node in nodes for out in node.outputs]}
    read = {name for node in nodes for name in node.inputs}
    outputs = tuple([name for name in dict.fromkeys(read_now(network.outputs)) if name in made])
    types = {name: type_ for name, type_ in types.items() if name in made}
    constants = {name: constant for name, constant in constants.items() if name in read}
    new = replace(network, nodes=tuple(nodes), outputs=outputs, types=types, constants=constants)
    return Rewritten(new, tuple([held for _, held in pairs]))


def _hides(match: Match, members: set[int], nodes: Sequence[Node]) -> bool:
    """Whether a result that only the members make is read by others or given out."""
    net = match.net
    kept = {*match.stands_for, *[name for node in nodes for name in node.outputs]}
    made = {name for node in match.members for name in node.outputs}
    return any(
        name in net.outputs or not members.issuperset(net.consumers.get(name, ()))
        for name in made - kept
    )


def whole_numbers(*values: int) -> Constant:
    """Sizes, axes or places, as constants of operators have them."""
    return Constant(TensorType("int64", (len(values),)), values)


# ---- patterns of several engines ----


def nothing(net: Network, node: Node, match: Match) -> None:
    """What gives out just what it reads."""
    is_copy = len(node.inputs) == 1 if node.op == "Concat" else True
    if node.op == "Pad":
        sizes = net.constant(node, 1)
        is_copy = sizes is not None and sizes.values is not None and not any(sizes.values)
    elif node.op == "AveragePool":
        is_copy = set(cast("tuple[int, ...]", node.attribute("kernel_shape"))) == {1}
    if is_copy:
        _same(net, node.inputs[0], match)


def _same(net: Network, source: str, match: Match) -> None:
    """Readers read ``source``, if that is the same and not handed through."""
    is_through = match.made in net.outputs and source in net.inputs
    if not is_through and source in net.types and net.types[source] == net.types[match.made]:
        match.skip(source)


def views(net: Network, node: Node, match: Match) -> None:
    """A view of a view reads what that reads."""
    source, shape = node.inputs[0], net.types[node.outputs[0]].shape
    while (before := net.maker(source, "Reshape")) is not None:
        source = before.inputs[0]
    if source in net.types and net.types[source].shape == shape:
        _same(net, source, match)
    elif source in net.types and source != node.inputs[0]:
        match.view(source, shape)


def still(net: Network, node: Node, match: Match) -> None:
    """Turning axes of one element moves nothing, so that it is a Reshape."""
    made, shape = net.types[node.outputs[0]].shape, net.type_of(node.inputs[0]).shape
    order = node.sizes("perm") or ()
    moved = [axis for axis in order if shape[axis] > 1]
    if order and moved == sorted(moved) and made != shape:
        match.view(node.inputs[0], made)


def neutral(net: Network, node: Node, match: Match) -> None:
    """A sum with the number 0 and a product by 1 are what they read: one of the exporters says so.

    Modules begin sums with 0; ``addcmul`` has a factor between its product and its sum. TensorRT
    erases both ("Scale" in NVIDIA's list of fusions).
    """
    x, is_product, number = node.inputs[0], node.op == "Mul", net.constant(node, 1)
    if number is None or number.values != (int(is_product),):
        return
    if number.type.shape and not (is_product and _is_factor(net, node)):
        return  # parameters that begin so have an axis
    if match.made not in net.outputs and net.types.get(x) == net.types[match.made]:
        match.skip(x)


def _is_factor(net: Network, node: Node) -> bool:
    """Whether a product stands between one with several parameters and a sum."""
    before, behind = net.maker(node.inputs[0], "Mul"), net.reader(node, "Add")
    read = before.inputs if before is not None and behind is not None else ()
    return any(c.type.elements > 1 for c in map(net.constants.get, read) if c)


def twins(net: Network, nodes: Sequence[Node]) -> Iterator[Match]:
    """What does the same to the same tensor is done once: some exporters write it so."""
    first, same = dict[tuple[object, ...], str](), dict[str, str]()
    for node in nodes:
        made, known = node.outputs[0], map(net.constants.get, node.inputs)
        values = [constant and constant.values for constant in known]
        read = [v or same.get(n, n) for v, n in zip(values, node.inputs, strict=True)]
        kept = first.setdefault((node.op, node.attributes, *read, node.outputs[1:]), made)
        if kept != made and made not in net.outputs:
            match, same[made] = Match(net, node), kept
            match.skip(kept)
            yield match


TWINS: Pass = named("Pad MaxPool AveragePool GlobalAveragePool Relu Sigmoid Concat"), twins


def concats(net: Network, node: Node, match: Match) -> None:
    """Parts of parts are parts where Concats alone read these: a simplifier joins all of them."""
    inputs, waiting, kind = list[str](), [*node.inputs], (node.op, node.attributes)
    while waiting:
        part = waiting.pop()
        maker = net.maker(part, node.op) if part not in net.outputs else None
        beside = (maker, *[net.nodes[i] for i in net.consumers[part]]) if maker else ()
        is_part = {(n.qualified_op, n.attributes) for n in beside if n} == {kind}
        if maker and is_part and len(waiting) < _MOST_PARTS:
            waiting += maker.inputs
        else:
            inputs.insert(0, part)
    if inputs != [*node.inputs]:
        match.put(replace(node, inputs=tuple(inputs)))
