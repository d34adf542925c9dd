"""Signature texts read again: the networks that they describe; see ``signature`` for the format."""

from __future__ import annotations

import json

from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.graph.signature import HEADER, SIGNATURE_FORMAT


def read(text: str, name: str = "cell") -> Network:
    """The network that a signature text describes; tensors are named ``t<number>``.

    Raises ValueError for a text that is not a signature of this format.
    """
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
    header, *lines = text.strip().split("\n")
    if header != HEADER:
        raise ValueError(f"not a signature of format {SIGNATURE_FORMAT}: {header[:60]!r}")
    for line in lines:
        word, rest = line.split(" ", 1)
        if word == "input":
            tensor, types[tensor] = _typed(rest)
            inputs.append(tensor)
        elif word == "constant":
            head, is_known, values = rest.partition(" =")
            tensor, type_ = _typed(head)
            number = float if "float" in type_.dtype else int
            known = tuple(map(number, values.split())) if is_known else None
            constants[tensor] = Constant(type_, known)
        elif word == "output":
            outputs.append(f"t{rest}")
        elif word == "node":
            nodes.append(_node(rest, len(nodes), types))
        elif word == "context":
            context = rest
        else:
            raise ValueError(f"not a line of a signature: {word[:60]!r}")
    return Network(
        name, tuple(nodes), tuple(inputs), tuple(outputs), types, constants, context=context
    )


def _typed(text: str) -> tuple[str, TensorType]:
    parts = text.split(" ")
    return f"t{parts[0]}", TensorType(parts[1], _shape(parts[2] if len(parts) > 2 else ""))


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text else ()


def _node(text: str, position: int, types: dict[str, TensorType]) -> Node:
    head, _, written = text.partition(" {")
    qualified, _, wiring = head.partition(" (")
    sources, _, results = wiring.partition(") -> (")
    op, _, version = qualified.rpartition("@")
    domain, _, op = op.rpartition("::")
    outputs = []
    for item in results.removesuffix(")").split(" "):
        number, dtype, shape = ("", "", "") if item == "-" else item.split(":")
        outputs.append(f"t{number}" if number else "")
        if number:
            types[f"t{number}"] = TensorType(dtype, _shape(shape))
    inputs = tuple("" if s == "-" else f"t{s}" for s in sources.split(" ") if s)
    attributes = tuple(sorted((k, _attribute(v)) for k, v in json.loads("{" + written).items()))
    return Node(f"n{position}", op, inputs, tuple(outputs), attributes, domain, int(version))


def _attribute(value: object) -> AttributeValue:
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, int | float | str):
        raise ValueError(f"an attribute of a signature reads {value!r}")
    return value
