"""Canonical text of a cell: the same for any node order, any names and any weights.

The text is lossless but for names and weights, so a cell can be rebuilt, measured or described
from its signature alone. ``docs/contributing/file-formats.md`` shows one, line by line. Nodes stand
in a canonical topological order; tensors are numbered, inputs first, then outputs of nodes.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.graph.operators import decides
from hybridlat.graph.symmetry import digest, digest_of, tell_apart

SIGNATURE_FORMAT = 2
MOST_REMEMBERED = 8192
HEADER = f"hybridlat-signature {SIGNATURE_FORMAT}"


@dataclass(frozen=True, slots=True)
class Signature:
    """``hash`` (32 hex digits of SHA-256) names a cell in the store; ``text`` says what it is."""

    hash: str
    text: str


def sign(network: Network) -> Signature:
    """The signature of a network, cell or kernel."""
    return sign_in_order(network)[0]


def sign_in_order(network: Network) -> tuple[Signature, tuple[int, ...]]:
    """The signature, and the positions of the nodes in the order in which its text has them."""
    order, inputs = _canonical(network)
    text = _write(network, order, inputs)
    return Signature(hash_of(text), text), tuple(order)


_Listing = tuple[object, ...]
_signed: dict[_Listing, tuple[Signature, tuple[int, ...]]] = {}


def sign_part(network: Network, positions: tuple[int, ...]) -> tuple[Signature, tuple[int, ...]]:
    """``sign_in_order`` of ``network.subnetwork(positions)``; positions rise.

    Parts that list the same nodes in the same order are signed once: networks of a search space
    repeat their cells.
    """
    listing = _listing(network, positions)
    signed = _signed.get(listing)
    if signed is None:
        if len(_signed) >= MOST_REMEMBERED:
            _signed.clear()
        signed = _signed[listing] = sign_in_order(network.subnetwork(positions))
    return signed


def _listing(network: Network, positions: tuple[int, ...]) -> _Listing:
    """All that the signature of a part tells, in the order in which it is listed."""
    types, constants, readers = network.types, network.constants, network.consumers
    chosen = frozenset(positions)
    number: dict[str, int] = {}
    parts: list[object] = [network.context]
    for position in positions:
        node = network.nodes[position]
        # The parts of ``kind``, which takes longer to write than all the rest.
        exact = marshal.dumps(node.attributes, 2)  # 1 and 1.0 differ
        parts += (node.op, node.domain, node.version, exact, len(node.inputs))
        for place, name in enumerate(node.inputs):
            constant = constants.get(name)
            if constant is not None:
                is_weight = constant.values is None
                parts.append(constant.type if is_weight else _token(node, place, constant))
                continue
            if name and name not in number:
                number[name] = len(number)
                parts.append(types[name])
            parts.append(number.get(name))
        for index, name in enumerate(node.outputs):
            if not name:
                parts.append("")
                continue
            number[name] = len(number)
            behind = readers.get(name)
            inside = chosen.issuperset(behind) if behind else index > 0
            parts += (types[name], not inside or name in network.outputs)
    return tuple(parts)


def hash_of(text: str) -> str:
    """The hash that names a signature text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def outline(network: Network) -> str:
    """A hash that networks of one signature share, and few others; quicker to work out."""
    types = network.types
    nodes = ((node.kind, node.outputs, node.inputs) for node in network.nodes)
    return outline_of(nodes, lambda name: typed(types[name]))


def outline_of(
    nodes: Iterable[tuple[str, Sequence[str], Sequence[str]]], type_of: Callable[[str], str]
) -> str:
    """It tells what each node is, makes and reads from: its kind, results with types, inputs."""
    makers, lines = dict[str, str](), list[str]()
    for kind, made, read in nodes:
        line = [kind, *[makers[name] for name in read if name in makers]]
        for name in filter(None, made):
            makers[name] = kind
            line.append(type_of(name))
        lines.append(" ".join(line))
    return hash_of("\n".join(sorted(lines)))


def canonical_order(network: Network) -> list[int]:
    """Positions of the nodes in a topological order that their listing does not decide."""
    return _canonical(network)[0]


def _canonical(network: Network) -> tuple[list[int], list[str]]:
    """Order of nodes and of graph inputs by structure alone."""
    nodes, inputs = _colours(network)
    if len(set(nodes)) < len(nodes) or len(set(inputs.values())) < len(inputs):
        tell_apart(network, nodes, inputs)
    return network.order_by(nodes.__getitem__), sorted(network.inputs, key=inputs.__getitem__)


def _colours(network: Network) -> tuple[list[bytes], dict[str, bytes]]:
    """A hash of each node and graph input: of all it is made from, then of all it is made into."""
    types, constants = network.types, network.constants
    made_from = {name: digest(typed(types[name])).hex() for name in network.inputs}
    above: list[str] = []
    for node in network.nodes:
        sources = [
            _token(node, place, constants[name]) if name in constants else made_from.get(name, "-")
            for place, name in enumerate(node.inputs)
        ]
        results = [typed(types[name]) if name else "-" for name in node.outputs]
        code = digest_of(f"{node.kind} {' '.join(sources)} > {' '.join(results)}").hex()
        above.append(code)
        for index, out in enumerate(node.outputs):
            if out:
                made_from[out] = f"{code}.{index}"
    below: dict[str, list[bytes]] = {}
    for name in network.outputs:
        below.setdefault(name, []).append(b"out")
    colours: list[bytes] = [b""] * len(network.nodes)
    for position in range(len(network.nodes) - 1, -1, -1):
        node = network.nodes[position]
        uses = [sorted(below.get(o, ())) for o in node.outputs]
        colours[position] = digest(above[position], uses)
        colour = colours[position].hex()
        for index, name in enumerate(node.inputs):
            if name in types:
                below.setdefault(name, []).append(digest_of(f"{colour} {index}"))
    ends = {n: made_from[n].encode() + b"".join(sorted(below.get(n, ()))) for n in network.inputs}
    return colours, ends


@lru_cache(maxsize=16_384)
def typed(type_: TensorType) -> str:
    """A type as texts have it."""
    return f"{type_.dtype}:{'x'.join(map(str, type_.shape))}"


def _token(node: Node, place: int, constant: Constant) -> str:
    """A constant as the node's line has it: with its values where they decide what is computed."""
    values = constant.values
    if values is None or not decides(node.op, place, constant.type):
        return typed(constant.type)
    return f"{typed(constant.type)}={','.join(map(repr, values))}"


def _write(network: Network, order: list[int], inputs: list[str]) -> str:
    types, constants = network.types, network.constants
    number = {name: str(index) for index, name in enumerate(inputs)}
    lines = [HEADER]
    lines += [f"input {number[name]} {typed(types[name])}" for name in inputs]
    for node in [network.nodes[position] for position in order]:
        sources = [
            _token(node, place, constants[name]) if name in constants else number.get(name, "-")
            for place, name in enumerate(node.inputs)
        ]
        results = []
        for name in node.outputs:
            if name:
                number[name] = str(len(number))
            results.append(f"{number[name]}:{typed(types[name])}" if name else "-")
        lines.append(
            f"node {node.qualified_op}@{node.version} ({' '.join(sources)}) -> "
            f"({' '.join(results)}) {node.written}"
        )
    lines += [f"output {o}" for o in sorted(int(number[name]) for name in network.outputs)]
    if network.context:
        lines.append(f"context {network.context}")
    return "\n".join(lines) + "\n"
