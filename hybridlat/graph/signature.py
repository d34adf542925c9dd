"""Canonical text of a cell: the same for any node order, any names and any weights.

The text is lossless but for names and weights: a cell can be rebuilt (``read``) and measured from
its signature alone. ``docs/contributing/file-formats.md`` shows one, line by line. Nodes stand in a
canonical topological order; tensors are numbered, inputs first, then outputs of nodes.
"""

import hashlib
import json
import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.operators import WHOLE, decides
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
    order, inputs = canonical_order(network)
    types, number = network.types, {name: str(index) for index, name in enumerate(inputs)}
    lines = [HEADER, *[f"input {number[name]} {typed(types[name])}" for name in inputs]]
    for node in [network.nodes[position] for position in order]:
        sources, results = _sources(network, node, number), list[str]()
        for name in node.outputs:
            if name:
                number[name] = str(len(number))
            results.append(f"{number[name]}:{typed(types[name])}" if name else "-")
        op = f"{node.qualified_op}@{node.version}"
        lines.append(f"node {op} ({sources}) -> ({' '.join(results)}) {node.written}")
    lines += [f"output {o}" for o in sorted(int(number[name]) for name in network.outputs)]
    lines += [f"context {network.context}"] if network.context else []
    text = "\n".join(lines) + "\n"
    return Signature(hash_of(text), text), tuple(order)


_signed: dict[tuple[object, ...], tuple[Signature, tuple[int, ...]]] = {}


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


def _listing(network: Network, positions: tuple[int, ...]) -> tuple[object, ...]:
    """All that the signature of a part tells, in the order in which it is listed."""
    types, constants, readers = network.types, network.constants, network.consumers
    chosen, number, parts = frozenset(positions), dict[str, int](), list[object]([network.context])
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


def canonical_order(network: Network) -> tuple[list[int], list[str]]:
    """The nodes (their positions) and inputs in an order that their listing does not decide."""
    nodes, inputs = _colours(network)
    if len(set(nodes)) < len(nodes) or len(set(inputs.values())) < len(inputs):
        tell_apart(network, nodes, inputs)
    return network.order_by(nodes.__getitem__), sorted(network.inputs, key=inputs.__getitem__)


def _colours(network: Network) -> tuple[list[bytes], dict[str, bytes]]:
    """A hash of each node and graph input: of all it is made from, then of all it is made into."""
    types = network.types
    made_from = {name: digest(typed(types[name])).hex() for name in network.inputs}
    above: list[str] = []
    for node in network.nodes:
        results = " ".join([typed(types[name]) if name else "-" for name in node.outputs])
        code = digest_of(f"{node.kind} {_sources(network, node, made_from)} > {results}").hex()
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


def _sources(network: Network, node: Node, names: Mapping[str, str]) -> str:
    """What a node reads: constants as they are, tensors by these names."""
    sources = []
    for place, name in enumerate(node.inputs):
        constant = network.constants.get(name)
        sources.append(_token(node, place, constant) if constant else names.get(name, "-"))
    return " ".join(sources)


def outline(network: Network) -> str:
    """A hash that networks of one signature share, and few others; quicker to work out."""
    nodes = ((node.kind, node.outputs, node.inputs) for node in network.nodes)
    return _outline(nodes, lambda name: typed(network.types[name]))


def text_outline(text: str) -> str:
    """The ``outline`` of the network that a text describes; ValueError."""
    nodes, types = [], dict[str, str]()
    for node in lines_of(text):
        if node.word == "node":
            made = dict(result.split(":", 1) for result in node.results if result != "-")
            types |= made
            nodes.append((f"{node.head} {node.rest}", [*made], node.sources))
    return _outline(nodes, types.__getitem__)


def _outline(
    nodes: Iterable[tuple[str, Sequence[str], Sequence[str]]], type_of: Callable[[str], str]
) -> str:
    """Of the kind of each node, what it makes and what it reads."""
    makers, lines = dict[str, str](), list[str]()
    for kind, made, read in nodes:
        line = [kind, *[makers[name] for name in read if name in makers]]
        for name in filter(None, made):
            makers[name] = kind
            line.append(type_of(name))
        lines.append(" ".join(line))
    return hash_of("\n".join(sorted(lines)))


# ---- texts read again ----


class Line(NamedTuple):
    """A line of a text: an input, an output or the context (``word``), or a node.

    ``head`` is a tensor's number, the context, or an operator with its version; ``rest`` a type or
    attributes; ``sources`` and ``results`` are what a node reads and makes, as written.
    """

    word: str
    head: str
    rest: str = ""
    sources: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


def lines_of(text: str) -> Iterator[Line]:
    """The lines of a text behind its first; ValueError for what is no signature of this format."""
    header, *lines = text.strip().split("\n")
    if header != HEADER:
        raise ValueError(f"not a signature of format {SIGNATURE_FORMAT}: {header[:60]!r}")
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "node":
            head, _, attributes = rest.partition(" {")
            op, _, wiring = head.partition(" (")
            read, _, made = wiring.partition(") -> (")
            sources, results = tuple(read.split(" ")), tuple(made.removesuffix(")").split(" "))
            yield Line(word, op, "{" + attributes, sources, results)
        elif word in ("input", "output", "context"):
            number, _, type_ = rest.partition(" ")
            yield Line(word, number, type_)
        else:
            raise ValueError(f"not a line of a signature: {word[:60]!r}")


def read(text: str, name: str = "cell") -> Network:
    """The network that a signature text describes, tensors named ``t<number>``; ValueError."""
    inputs, outputs, nodes, context = list[str](), list[str](), list[Node](), ""
    types, constants = dict[str, TensorType](), dict[str, Constant]()
    try:
        for line in lines_of(text):
            if line.word == "input":
                inputs.append(f"t{int(line.head)}")
                types[inputs[-1]] = TensorType.of(*line.rest.split(":"))
            elif line.word == "output":
                outputs.append(f"t{int(line.head)}")
            elif line.word == "context":
                context = line.head
            else:
                nodes.append(_node(line, len(nodes), types, constants))
    except (AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"a signature of format {SIGNATURE_FORMAT} that is damaged") from error
    return Network(
        name, tuple(nodes), tuple(inputs), tuple(outputs), types, constants, context=context
    )


def _node(
    line: Line, position: int, types: dict[str, TensorType], constants: dict[str, Constant]
) -> Node:
    op, _, version = line.head.rpartition("@")
    domain, _, op = op.rpartition("::")
    inputs, outputs = [], []
    for place, token in enumerate(line.sources):
        if ":" in token:
            inputs.append(f"c{position}.{place}")
            constants[inputs[-1]] = _constant(token)
        elif token:
            inputs.append("" if token == "-" else f"t{int(token)}")
    for token in line.results:
        number, _, type_ = token.partition(":")
        outputs.append(f"t{int(number)}" if number != "-" else "")
        if number != "-":
            types[outputs[-1]] = TensorType.of(*type_.split(":"))
    attributes = tuple(sorted((k, _attribute(v)) for k, v in json.loads(line.rest).items()))
    return Node(f"n{position}", op, tuple(inputs), tuple(outputs), attributes, domain, int(version))


def _constant(token: str) -> Constant:
    written, has_values, values = token.partition("=")
    type_ = TensorType.of(*written.split(":"))
    number = int if type_.dtype in WHOLE else float
    numbers = tuple(map(number, values.split(","))) if values else ()
    return Constant(type_, numbers if has_values else None)


def _attribute(value: object) -> AttributeValue:
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, int | float | str):
        raise ValueError(f"an attribute of a signature reads {value!r}")
    return value
