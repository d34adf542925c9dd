"""Networks written in other operators, by patterns that are found in them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from hybridlat import onnx_io
from hybridlat.engines.fusion.groups import equal_results
from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.operators import SET, Blocks, Sizes, joined, named, turned, turns_between
from hybridlat.graph.work import FAMILIES


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
        while made in self.net.types:
            made += "_"  # an earlier form has written this tensor anew as well
        self.types[made] = self.net.types[self.made]._replace(shape=tuple(shape))
        written, name = tuple(attributes.items()), self.members[-1].name
        node = Node(name, op, tuple(read), (made,), written, version=SET)
        self.put(onnx_io.local_form(node), *constants)
        self._added = made
        return made

    def view(self, source: str, shape: Sequence[int]) -> str:
        """A tensor in another shape; itself if that is its own."""
        known = self.types.get(source) or self.net.type_of(source)
        type_, constant = known._replace(shape=tuple(shape)), self.net.constants.get(source)
        if known == type_:
            return source
        if constant is not None:
            self.constants[f"{source}/view"] = replace(constant, type=type_)
            return f"{source}/view"
        made = self.add("Reshape", (source,), shape, integers(*shape))
        self.types[made] = type_
        return made

    def put(self, node: Node, *constants: Constant) -> None:
        """An operator whose results have their names already; it reads new constants last."""
        for constant in constants:
            name = f"{node.outputs[0]}/{len(node.inputs)}"
            while name in self.net.types or name in self.net.constants:
                name += "_"
            self.constants[name] = constant
            node = replace(node, inputs=(*node.inputs, name))
        self.nodes.append(node)

    def skip(self, source: str) -> None:
        """Readers of the result read ``source`` instead."""
        self.stands_for[self.made] = source

    def written(self) -> list[Node]:
        """The operators that stand in place, under the names of their results."""
        if not self.nodes or self.nodes[-1].outputs != (self._added,):
            return self.nodes
        return [*self.nodes[:-1], replace(self.nodes[-1], outputs=(self.made,))]


_MOVES = ("Reshape", "Transpose")
Pass = tuple[frozenset[str], Callable[[Network, Sequence[Node]], Iterator[Match]]]
"""The operators, by qualified names, that a pattern begins with, and what finds it at them."""


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
    def of(cls, file: Network) -> "Rewritten":
        """The network of a file before anything is written anew."""
        return cls(file, tuple([(i,) for i in range(len(file.nodes))]))

    def then(self, passes: Sequence[Pass]) -> "Rewritten":
        result = _in_order(self)
        for anchors, find in passes:
            net = result.network
            nodes = [node for node in net.nodes if node.qualified_op in anchors]
            if nodes:
                result = replaced(result, [*find(net, nodes)])
        return result


def _in_order(old: Rewritten) -> Rewritten:
    """What the outputs need, in the order in which they do, however a file lists it."""
    network = old.network
    order = network.order_before(network.ends)
    nodes = tuple([network.nodes[i] for i in order])
    made = {*network.inputs, *[out for node in nodes for out in node.outputs]}
    read = {name for node in nodes for name in node.inputs}
    outputs = tuple([name for name in dict.fromkeys(network.outputs) if name in made])
    types = {name: type_ for name, type_ in network.types.items() if name in made}
    constants = {name: known for name, known in network.constants.items() if name in read}
    new = replace(network, nodes=nodes, outputs=outputs, types=types, constants=constants)
    return Rewritten(new, tuple([old.origins[i] for i in order]))


def replaced(old: Rewritten, matches: Sequence[Match]) -> Rewritten:
    """Put new operators in; what no output needs any more is gone.

    A match that shares an operator with an earlier one, or hides a result that is read, is none.
    """
    if not matches:
        return old
    network, gone, stands_for = old.network, set[int](), dict[str, str]()
    types, constants = dict(network.types), dict(network.constants)
    place = {id(node): position for position, node in enumerate(network.nodes)}
    standing = [[pair] for pair in zip(network.nodes, old.origins, strict=True)]
    for match in matches:
        members, nodes = [place[id(node)] for node in match.members], match.written()
        if gone.isdisjoint(members) and not _hides(match, {*members}, nodes):
            gone.update(members)
            held = tuple(sorted({o for member in members for o in old.origins[member]}))
            for member in members:
                standing[member] = []
            standing[members[-1]] = [(node, held) for node in nodes]
            types |= match.types
            constants |= match.constants
            for name, source in match.stands_for.items():
                stands_for[name] = stands_for.get(source, source)
    if not gone:
        return old

    def read_now(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([stands_for.get(name, name) for name in names])

    pairs = [pair for pairs in standing for pair in pairs]
    if stands_for:
        pairs = [(replace(node, inputs=read_now(node.inputs)), held) for node, held in pairs]
    written, origins = tuple([node for node, _ in pairs]), tuple([held for _, held in pairs])
    new = replace(network, nodes=written, types=types, constants=constants)
    return _in_order(Rewritten(replace(new, outputs=read_now(network.outputs)), origins))


def _hides(match: Match, members: set[int], nodes: Sequence[Node]) -> bool:
    """Whether a result that only the members make is read by others or given out."""
    net = match.net
    kept = {*match.stands_for, *[name for node in nodes for name in node.outputs]}
    made = {name for node in match.members for name in node.outputs}
    return any(
        name in net.outputs or not members.issuperset(net.consumers.get(name, ()))
        for name in made - kept
    )


def integers(*values: int) -> Constant:
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
        same(net, node.inputs[0], match)


def same(net: Network, source: str, match: Match) -> None:
    """Readers read ``source``, if that is the same and not handed through."""
    is_through = match.made in net.outputs and source in net.inputs
    if not is_through and source in net.types and net.types[source] == net.types[match.made]:
        match.skip(source)


def _moves(net: Network, nodes: Sequence[Node]) -> Iterator[Match]:
    """Views and turned axes in a row are written in one way, and once: what moves where decides.

    Exporters and simplifiers turn axes before a view or behind it, there and back, and twice.
    """
    known, first = dict[str, tuple[str, Blocks]](), dict[tuple[str, Blocks, Sizes], str]()
    for node in nodes:
        match, read, order = Match(net, node), node.inputs[0], node.sizes("perm")
        made = net.types[match.made].shape
        if read not in net.types or 0 in made:
            continue
        plain = joined(((math.prod(made), 1),))
        x, before = known.get(read, (read, plain))
        blocks = turned(before, net.types[read].shape, order) if order else before
        if blocks is None:  # it cuts through what moved: its result begins anew
            continue
        known[match.made] = x, blocks
        twin = first.setdefault((x, blocks, made), match.made)
        if blocks == plain and net.types[x].shape == made:
            same(net, x, match)
        elif twin != match.made and match.made not in net.outputs:
            match.skip(twin)
        else:
            source, at, steps = x, plain, list[tuple[Sizes, Sizes, Blocks]]()
            for turn, to in turns_between(net.types[x].shape, blocks, made):
                at = blocks if turn else at
                kept = first.get((x, at, to), match.made)
                source, steps = (
                    (kept, []) if kept != match.made else (source, [*steps, (turn, to, at)])
                )
            for turn, to, at in steps:
                if (source, turn) != (read, order or ()):
                    op, sizes = ("Transpose", []) if turn else ("Reshape", [integers(*to)])
                    source = match.add(
                        op, (source,), to, *sizes, **({"perm": turn} if turn else {})
                    )
                    first.setdefault((x, at, to), source)
        if match.nodes or match.stands_for:
            yield match


def _detours(net: Network, node: Node, match: Match) -> None:
    """A view and back are none around what numbers do to each element, as in a variance."""
    steps, x = list[tuple[Node, Constant]](), node.inputs[0]
    while (step := net.maker(x, "Add", "Sub", "Mul", "Div")) is not None:
        number = net.constant(step, 1)
        if number is None or number.type.shape not in ((), (1,)):
            return
        steps, x = [(step, number), *steps], step.inputs[0]
    view, type_ = net.maker(x, "Reshape"), net.types[match.made]
    if view is not None and steps and net.type_of(view.inputs[0]) == type_:
        match.members, x = (*[step for step, _ in steps], node), view.inputs[0]
        for step, number in steps:
            x = match.add(step.op, (x,), type_.shape, number)


def twins(net: Network, nodes: Sequence[Node]) -> Iterator[Match]:
    """What does the same to the same tensor is done once: some exporters write it so."""
    same = equal_results(net, nodes, net.outputs)
    for node in nodes:
        if node.outputs[0] in same:
            match = Match(net, node)
            match.skip(same[match.made])
            yield match


TURNS: Pass = frozenset(_MOVES), _moves
TWINS: Pass = named(" ".join(FAMILIES[f] for f in ("pool", "pointwise", "reduce", "move"))), twins
ONCE: tuple[Pass, ...] = (TURNS, each("Reshape", _detours), TWINS)
