"""Colours that tell all nodes of a network apart, whatever order the file lists them in.

Colours spread along the links until no more differ. What is then still alike is taken to be
interchangeable (two equal heads on one tensor). Any one of them is set apart, and that spreads
again, so that what belongs to it follows. In a large network with many equals each step looks at
those alone that are linked to what has changed.
"""

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cache

from hybridlat.graph.network import Network

MOST_MIXED = 300_000
"""Colours that rounds through the whole network may mix; stored signatures come from those."""
MOST_ALIKE = 8
"""Operators in a row that parallel branches of a sum end in, and are told apart all the same."""
_ORDERED = frozenset({"Add", "Mul", "Sum"})


def digest(*parts: object) -> bytes:
    """A colour made of all parts."""
    return digest_of(repr(parts))


def digest_of(text: str) -> bytes:
    """The colour of a text."""
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


def with_ordered_operands(network: Network, kept: Collection[str] = ()) -> Network:
    """The network with the operands of sums and products in one order, whatever the file's.

    The largest comes first; then of a sum what most operators lead to, of a product what fewest do;
    then what has the fewest weights. So the last of parallel branches, which engines let add, does
    most. Those that make one of the ``kept`` tensors stay.
    """
    types, steps, nodes = network.types, dict.fromkeys(network.inputs, 0), [*network.nodes]
    origin = _origins(network)
    for place, node in enumerate(nodes):
        before = [steps[name] for name in node.inputs if name in steps]
        steps.update(dict.fromkeys(node.outputs, max(before, default=0) + 1))
        is_plain = node.op in _ORDERED and not node.domain and node.outputs[0] not in kept
        if not is_plain or len(before) < len(node.inputs):
            continue
        sign = 1 if node.op == "Mul" else -1
        keys = {name: (-types[name].elements, sign * steps[name]) for name in node.inputs}
        origins = {n: origin(n, MOST_ALIKE) for n in keys if len({*keys.values()}) < len(keys)}
        inputs = sorted(node.inputs, key=lambda name: (keys[name], origins.get(name)))
        if inputs != [*node.inputs]:
            nodes[place] = replace(node, inputs=tuple(inputs))
    return network if nodes == [*network.nodes] else replace(network, nodes=tuple(nodes))


def _origins(network: Network) -> Callable[[str, int], tuple[int, bytes]]:
    """The weights that a tensor's maker reads, and a colour by what makes it, so far back.

    Each is worked out once: the ways back through many operands multiply.
    """

    @cache
    def origin(tensor: str, depth: int) -> tuple[int, bytes]:
        place = network.producers.get(tensor)
        if place is None or not depth:
            return 0, b""
        node, known = network.nodes[place], network.constants
        types = [known[name].type for name in node.inputs if name in known]
        before = [origin(name, depth - 1) for name in node.inputs if name in network.types]
        own = node.op, node.attributes, types, sorted(before), node.outputs.index(tensor)
        return sum(type_.elements for type_ in types), digest(*own)

    return origin


def tell_apart(network: Network, nodes: list[bytes], inputs: dict[str, bytes]) -> None:
    """Make all colours different, in place."""
    colours, fed, left = [*nodes], dict(inputs), MOST_MIXED
    while (left := _spread(network, colours, fed, left)) > 0:
        alike = [c for c, count in Counter([*colours, *fed.values()]).items() if count > 1]
        if not alike:
            break
        chosen = min(alike)
        if chosen in colours:
            colours[colours.index(chosen)] = digest(chosen, "first")
        else:
            fed[next(n for n in network.inputs if fed[n] == chosen)] = digest(chosen, "first")
    else:
        colours = _Classes(network, nodes, inputs).tell_apart()
        fed = dict(zip(inputs, colours[len(nodes) :], strict=False))
    nodes[:] = colours[: len(nodes)]
    inputs.update(fed)


def _spread(network: Network, nodes: list[bytes], inputs: dict[str, bytes], left: int) -> int:
    """Mix neighbours into each colour until that tells no more apart; what is left of ``left``."""
    different, types = 0, network.types
    while left > 0:
        count = len(set(nodes)) + len(set(inputs.values()))
        if count == different or count == len(nodes) + len(inputs):
            break
        different = count
        origin = dict[str, tuple[bytes, int]]()
        below: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
        for colour, node in zip(nodes, network.nodes, strict=True):
            origin.update((out, (colour, index)) for index, out in enumerate(node.outputs) if out)
            for index, name in enumerate(node.inputs):
                if name in types:
                    below[name].append((colour, index))
        uses = {name: sorted(readers) for name, readers in below.items()}
        left -= len(nodes) + sum(len(readers) ** 2 for readers in uses.values())
        if left <= 0:
            break

        def tensor(name: str) -> object:
            return origin.get(name) or inputs.get(name), uses.get(name)  # noqa: B023

        mixed = [
            digest(nodes[i], [tensor(n) for n in node.inputs], [tensor(n) for n in node.outputs])
            for i, node in enumerate(network.nodes)
        ]
        for name in network.inputs:
            inputs[name] = digest(inputs[name], tensor(name))
        nodes[:] = mixed
    return left


class _Classes:
    """Nodes and tensors by colour, each linked to what it reads, makes or is read by."""

    def __init__(self, network: Network, nodes: list[bytes], inputs: dict[str, bytes]) -> None:
        place = {name: number for number, name in enumerate(inputs, len(nodes))}
        self.links: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for position, node in enumerate(network.nodes):
            ends = [*enumerate(node.inputs), *((~i, out) for i, out in enumerate(node.outputs))]
            for label, name in ends:
                if name in network.types:
                    tensor = place.setdefault(name, len(nodes) + len(place))
                    self.links[position].append((tensor, label))
                    self.links[tensor].append((position, label))
        kinds = [digest("tensor", inputs.get(name)) for name in place]
        self.colours = [b""] * (len(nodes) + len(kinds))
        self.ends, self.alike = len(nodes) + len(inputs), list[bytes]()
        self.classes: dict[bytes, dict[int, None]] = defaultdict(dict)
        for each, colour in enumerate((*nodes, *kinds)):
            self._recolour(each, colour)

    def tell_apart(self) -> list[bytes]:
        self._spread(range(len(self.colours)))
        while self.alike:
            colour = heapq.heappop(self.alike)
            members = self.classes[colour]
            if len(members) > 1:
                first = next(reversed(members))  # the first is slow to find in a dict that shrinks
                self._recolour(first, digest(colour, "first", len(members)))
                heapq.heappush(self.alike, colour)
                self._spread([first])
        return self.colours

    def _recolour(self, each: int, colour: bytes) -> None:
        self.classes[self.colours[each]].pop(each, None)
        self.colours[each] = colour
        if not self.classes[colour] and each < self.ends:
            heapq.heappush(self.alike, colour)
        self.classes[colour][each] = None

    def _spread(self, changed: Iterable[int]) -> None:
        """Split each class by the links of its members to what has changed, until none splits."""
        colours, classes = self.colours, self.classes
        while changed:
            seen: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
            for each in changed:
                for other, label in self.links[each]:
                    if len(classes[colours[other]]) > 1:
                        seen[other].append((label, colours[each]))
            parts: dict[bytes, dict[bytes, list[int]]] = defaultdict(lambda: defaultdict(list))
            for each, ends in seen.items():
                parts[colours[each]][digest(colours[each], sorted(ends))].append(each)
            split: list[int] = []
            for old, news in parts.items():
                if len(news) > 1 or len(classes[old]) > len(next(iter(news.values()))):
                    for new, members in news.items():
                        split += members
                        for each in members:
                            self._recolour(each, new)
            changed = split
