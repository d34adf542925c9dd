"""Where values are read: slices, places along axes, and what is repeated, each in one form."""

import math
from collections.abc import Iterator, Sequence
from typing import cast

from hybridlat.engines.fusion.patterns import Match, Pass, each, integers
from hybridlat.graph.network import Constant, Network, Node
from hybridlat.graph.operators import Blocks, joined, packed, split, turned, turns_between


def _cuts(net: Network, node: Node) -> dict[int, tuple[int, int]]:
    """From where to where a Slice without steps cuts each axis; none where that is not known."""
    known = [net.constants.get(name) for name in node.inputs[1:]]
    columns = [cast("tuple[int, ...]", c.values) for c in known if c is not None and c.values]
    is_whole = len(columns) == len(known) == 3 and len({*map(len, columns)}) == 1
    return {a: (s, e) for s, e, a in zip(*columns, strict=True)} if is_whole else {}


def _slices(net: Network, node: Node, match: Match) -> None:
    """A slice of a slice is one of what that reads."""
    cuts, first, made = _cuts(net, node), node, net.types[match.made].shape
    while cuts and (before := net.maker(first.inputs[0], "Slice")) is not None:
        outer = _cuts(net, before)
        if not outer or not outer.keys().isdisjoint(cuts):
            break
        cuts, first = outer | cuts, before
    if first is not node:
        columns = zip(*[(*cuts[axis], axis) for axis in sorted(cuts)], strict=True)
        match.add("Slice", first.inputs[:1], made, *[integers(*column) for column in columns])


def _splits(net: Network, nodes: Sequence[Node]) -> Iterator[Match]:
    """Slices that together are all of a tensor are one Split, unless a sum as large reads one."""
    parts: dict[tuple[str, int], dict[int, tuple[int, Node]]] = {}
    for node in nodes:
        if len(cut := _cuts(net, node)) == 1:
            ((axis, (start, end)),) = cut.items()
            parts.setdefault((node.inputs[0], axis), {})[start] = end, node
    for (source, axis), cuts in parts.items():
        starts = sorted(cuts)
        ends, members = zip(*[cuts[start] for start in starts], strict=True)
        if starts[0] or (*starts[1:], net.types[source].shape[axis]) != ends:
            continue
        sums = [one.inputs for part in members if (one := net.reader(part, "Add", "Sum"))]
        if all(len({net.types.get(name) for name in read}) > 1 for read in sums):
            outputs = tuple([member.outputs[0] for member in members])
            attributes = (("axis", axis),) if axis else ()
            split = Node(members[0].name, "Split", (source,), outputs, attributes, version=13)
            match = Match(net, *members)
            match.put(split, integers(*map(int.__sub__, ends, starts)))
            yield match


def _single_places(net: Network, node: Node, match: Match) -> None:
    """What takes one place along an axis is a slice and a view, as ``x[:, 0]`` of a module.

    Places of single elements are those of a vector.
    """
    (x, places), made = node.inputs, net.types[match.made].shape
    constant, axis = net.constants.get(places), int(str(node.attribute("axis", 0)))
    if x in net.types and constant is not None and len(constant.values or ()) == 1:
        (place,), shape = cast("tuple[int]", constant.values), list(net.types[x].shape)
        start, shape[axis] = place % shape[axis], 1
        at = (integers(start), integers(start + 1), integers(axis))
        match.view(match.add("Slice", (x,), shape, *at), made)
    elif x in net.types and not axis and net.types[x].shape[1:] == (1,):
        vector = match.view(x, net.types[x].shape[:1])
        match.view(match.add("Gather", (vector, places), net.type_of(places).shape), made)


def gathers(net: Network, node: Node, match: Match) -> None:
    """Places along the first axis alone are those of a Gather; one of size 1 has no other."""
    (x, places), made = node.inputs, net.types[match.made].shape
    *shape, depth = net.type_of(places).shape
    columns, (size, *rest) = net.maker(places, "Concat"), net.type_of(x).shape
    if node.attribute("batch_dims", 0) or x not in net.types:
        return
    constant = net.constants.get(places)
    if columns is not None and depth == len(columns.inputs) == 2 and size == 1:
        x, places, depth = match.view(x, rest), columns.inputs[1], 1
    elif constant is not None and constant.values and depth == 2 and size == 1:
        behind = Constant(constant.type._replace(shape=tuple(shape)), constant.values[1::2])
        match.add("Gather", (match.view(x, rest),), made, behind)
    if depth == 1:
        match.add("Gather", (x, match.view(places, shape)), made)


def _tiles(net: Network, node: Node, match: Match) -> None:
    """What repeats single elements stretches them to the sizes of the result."""
    x, made, sizes = node.inputs[0], net.types[match.made].shape, net.constant(node, 1)
    shape = net.type_of(x).shape
    is_stretched = all(a in (1, b) for a, b in zip(shape[::-1], made[::-1], strict=False))
    is_whole = node.op == "Expand" and sizes is not None and sizes.values == made
    if x in net.types and is_stretched and not is_whole:
        match.add("Expand", (x,), made, integers(*made))


def _early_parts(net: Network, node: Node, match: Match) -> None:
    """A part, or places, of what is viewed and turned is one along an axis before that."""
    x, shape, chain = node.inputs[0], net.type_of(node.inputs[0]).shape, list[Node]()
    while (move := net.maker(x, "Reshape", "Transpose")) is not None:
        chain, x = [move, *chain], move.inputs[0]
    order: Blocks | None = joined(((math.prod(shape), 1),))
    for move in chain:
        axes, read = move.sizes("perm"), net.type_of(move.inputs[0]).shape
        order = turned(order, read, axes) if order and axes else order
    is_whole, made = node.op == "Gather", net.types[match.made].shape
    axis = int(str(node.attribute("axis", 0)))
    known = {axis: (0, shape[axis])} if is_whole else _cuts(net, node)
    if x not in net.types or not chain or not order or len(known) != 1 or len(made) != len(shape):
        return
    (axis, (start, end)), parts, whole = *known.items(), split(order, shape), net.types[x].shape
    inner = packed([size for size, _ in parts], range(len(parts)))
    at = {place: part for part, place in zip(parts, inner, strict=True)}
    size, step = at.get(packed(shape, range(len(shape)))[axis], (0, 0))
    for k, stride in enumerate(packed(whole, range(len(whole)))):
        few, more = step % stride, step // stride
        if size != shape[axis] or whole[k] != size * more or few or (is_whole and more > 1):
            continue
        rest = (*whole[:k], made[axis] * more, *whole[k + 1 :])
        ends = [integers(place) for place in (start * more, end * more, k)]
        name = (
            match.add("Gather", (x, node.inputs[1]), rest, **({"axis": k} if k else {}))
            if is_whole
            else match.add("Slice", (x,), rest, *ends)
        )
        left = {(n, s): (n, s * made[axis] // size) for n, s in parts if s > step}
        left[size, step] = made[axis], step
        moved = joined([left.get(part, part) for part in parts])
        for turn, to in turns_between(rest, moved, made):
            name = match.add("Transpose", (name,), to, perm=turn) if turn else match.view(name, to)
        return


PLACES: tuple[Pass, ...] = (
    each("GatherND", gathers),
    each("Gather", _single_places),
    each("Expand Tile", _tiles),
)
SLICES: tuple[Pass, ...] = (each("Slice", _slices), (frozenset({"Slice"}), _splits))
EARLY_PLACES, EARLY_CUTS = (each(op, _early_parts) for op in ("Gather", "Slice"))
"""Where a view costs nothing, of several ways to a part one will do."""
