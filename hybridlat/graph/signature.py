"""Canonical text of a cell: the same for any node order, any names and any weights.

The text is lossless but for names and weights, so a cell can be rebuilt, measured or described
from its signature alone. One line a fact::

    hybridlat-signature 1
    input 0 float32 1x64x56x56
    constant 1 float32 64x64x1x1
    constant 2 int64 2 = 1 -1
    node com.microsoft.nchwc::Conv@1 (0 1 -) -> (3:float32:1x64x56x56) {"group":1}
    output 3
    context small

Tensors are numbered inputs first, then constants as first read, then outputs of nodes; ``-`` is an
input left out; a scalar's shape is empty; the last line is there only where a cell's context says
what kind of network it stands in. Nodes stand in a canonical topological order.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache

from hybridlat.graph.network import AttributeValue, Network, TensorType
from hybridlat.graph.symmetry import digest, digest_of, tell_apart

SIGNATURE_FORMAT = 1
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

    Remembered for parts that list the same nodes in the same order, which then need not become
    networks: a network repeats its cells, and so do the networks of a search space.
    """
    listing = _listing(network, positions)
    signed = _signed.get(listing)
    if signed is None:
        if len(_signed) >= MOST_REMEMBERED:
            _signed.clear()
        signed = _signed[listing] = sign_in_order(network.subnetwork(positions))
    return signed


def _listing(network: Network, positions: tuple[int, ...]) -> _Listing:
    """All that the signature of a part tells, in the order in which it is listed.

    Of each node the operator; every tensor that it reads by its number, behind what it is where it
    is read first; of every result its type and whether it is an output.
    """
    types, constants, readers = network.types, network.constants, network.consumers
    chosen = frozenset(positions)
    number: dict[str, int] = {}
    parts: list[object] = [network.context]
    for position in positions:
        node = network.nodes[position]
        parts += (node.op, node.domain, node.version)
        parts += (_texts(node.attributes)[0], len(node.inputs))
        for name in node.inputs:
            place = number.get(name)
            if place is None and name:
                place = number[name] = len(number)
                if name in types:
                    parts.append(types[name])
                else:
                    constant = constants[name]
                    parts += (constant.type, repr(constant.values))
            parts.append(place)
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


def canonical_order(network: Network) -> list[int]:
    """Positions of the nodes in a topological order that their listing does not decide."""
    return _canonical(network)[0]


def _canonical(network: Network) -> tuple[list[int], list[str]]:
    """Order of nodes and of graph inputs by structure alone."""
    if len(network.inputs) < 2 and _is_forced(network):
        return list(range(len(network.nodes))), list(network.inputs)
    nodes, inputs = _colours(network)
    if len(set(nodes)) < len(nodes) or len(set(inputs.values())) < len(inputs):
        tell_apart(network, nodes, inputs)
    return network.order_by(nodes.__getitem__), sorted(network.inputs, key=inputs.__getitem__)


def _is_forced(network: Network) -> bool:
    """Whether nodes can stand in no other order: each reads what the one before it makes."""
    last: tuple[str, ...] = ()
    for position, node in enumerate(network.nodes):
        if position and not any(out and out in node.inputs for out in last):
            return False
        last = node.outputs
    return True


def _colours(network: Network) -> tuple[list[bytes], dict[str, bytes]]:
    """A hash of each node and graph input: of all it is made from, then of all it is made into.

    Digests are those of ``digest``, their texts put together from parts that are at hand.
    """
    types, constants = network.types, network.constants
    above = {name: digest(str(types[name])) for name in network.inputs}
    made_from = {"": "b'-'", **{name: repr(code) for name, code in above.items()}}
    made_from.update((name, _constant(c.type, repr(c.values))) for name, c in constants.items())
    node_above: list[str] = []
    for node in network.nodes:
        head = f"{node.domain!r}, {node.op!r}, {node.version!r}, {_texts(node.attributes)[0]}"
        sources = ", ".join([made_from[i] for i in node.inputs])
        results = ", ".join([_type(types[o]) if o else "'-'" for o in node.outputs])
        code = repr(digest_of(f"({head}, [{sources}], [{results}])"))
        node_above.append(code)
        for index, out in enumerate(node.outputs):
            if out:
                made_from[out] = repr(digest_of(f"({code}, {index})"))
    below: dict[str, list[bytes]] = {}
    for name in network.outputs:
        below.setdefault(name, []).append(b"out")
    colours: list[bytes] = [b""] * len(network.nodes)
    for position in range(len(network.nodes) - 1, -1, -1):
        node = network.nodes[position]
        uses = [sorted(below.get(o, ())) for o in node.outputs]
        colours[position] = digest_of(f"({node_above[position]}, {uses!r})")
        colour = repr(colours[position])
        for index, name in enumerate(node.inputs):
            if name and name not in constants:
                below.setdefault(name, []).append(digest_of(f"({colour}, {index})"))
    return colours, {n: above[n] + b"".join(sorted(below.get(n, ()))) for n in network.inputs}


@lru_cache(maxsize=16_384)
def _constant(type_: TensorType, values: str) -> str:
    return repr(digest_of(f"('c', {str(type_)!r}, {values})"))


@lru_cache(maxsize=16_384)
def _type(type_: TensorType) -> str:
    return repr(str(type_))


@lru_cache(maxsize=16_384)
def _shape(type_: TensorType) -> str:
    return "x".join(map(str, type_.shape))


_Attributes = tuple[tuple[str, AttributeValue], ...]
_attribute_texts: dict[int, tuple[_Attributes, str, str]] = {}


def _texts(attributes: _Attributes) -> tuple[str, str]:
    """Attributes as Python writes them, and as a signature does.

    Remembered by identity: equal ones may be written otherwise (1 and 1.0, 0.0 and -0.0).
    """
    texts = _attribute_texts.get(id(attributes))
    if texts is not None and texts[0] is attributes:
        return texts[1], texts[2]
    if len(_attribute_texts) >= MOST_REMEMBERED:
        _attribute_texts.clear()
    written = json.dumps(dict(attributes), sort_keys=True, separators=(",", ":"))
    _attribute_texts[id(attributes)] = (attributes, repr(attributes), written)
    return repr(attributes), written


def _write(network: Network, order: list[int], inputs: list[str]) -> str:
    nodes = [network.nodes[position] for position in order]
    constants = network.constants
    read = dict.fromkeys([name for node in nodes for name in node.inputs if name in constants])
    number = {name: str(index) for index, name in enumerate((*inputs, *read))}
    head: list[str] = []
    for name in inputs:
        type_ = network.types[name]
        head.append(f"input {number[name]} {type_.dtype} {_shape(type_)}".rstrip())
    for name in read:
        constant = constants[name]
        line = f"constant {number[name]} {constant.type.dtype} {_shape(constant.type)}"
        if constant.values is not None:
            line = f"{line.rstrip()} = {' '.join(map(repr, constant.values))}"
        head.append(line.rstrip())
    body: list[str] = []
    for node in nodes:
        sources = " ".join(number[i] if i else "-" for i in node.inputs)
        results = []
        for name in node.outputs:
            if not name:
                results.append("-")
                continue
            number[name] = place = str(len(number))
            type_ = network.types[name]
            results.append(f"{place}:{type_.dtype}:{_shape(type_)}")
        body.append(
            f"node {node.qualified_op}@{node.version} ({sources}) -> ({' '.join(results)}) "
            f"{_texts(node.attributes)[1]}"
        )
    tail = [f"output {o}" for o in sorted(int(number[name]) for name in network.outputs)]
    if network.context:
        tail.append(f"context {network.context}")
    return "\n".join([HEADER, *head, *body, *tail]) + "\n"
