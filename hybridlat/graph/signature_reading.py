"""Signature texts read again; see ``signature`` for the format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.operators import WHOLE
from hybridlat.graph.signature import HEADER, SIGNATURE_FORMAT, outline_of


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


def outline(text: str) -> str:
    """The ``signature.outline`` of the network that a text describes; ValueError."""
    nodes, types = [], dict[str, str]()
    for node in lines_of(text):
        if node.word == "node":
            made = dict(result.split(":", 1) for result in node.results if result != "-")
            types |= made
            nodes.append((f"{node.head} {node.rest}", [*made], node.sources))
    return outline_of(nodes, types.__getitem__)


def read(text: str, name: str = "cell") -> Network:
    """The network that a signature text describes, tensors named ``t<number>``; ValueError."""
    try:
        return _read(text, name)
    except (AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"a signature of format {SIGNATURE_FORMAT} that is damaged") from error


def _read(text: str, name: str) -> Network:
    inputs: list[str] = []
    outputs: list[str] = []
    nodes: list[Node] = []
    types: dict[str, TensorType] = {}
    constants: dict[str, Constant] = {}
    context = ""
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
