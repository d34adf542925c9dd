"""A graph that is written as protobuf, taken apart without reading it.

Asking protobuf for each operator of a graph takes twice as long as finding where each stands. All
that a GraphProto holds is written alike: a byte for the field, the length in groups of seven bits,
the content.
"""

from __future__ import annotations

from dataclasses import dataclass

_TEXT_OR_MESSAGE = 2  # how such content is marked in protobuf's encoding
_NODE, _NAME, _TENSOR, _DOC, _INPUT, _OUTPUT, _VALUE_INFO, _QUANTISATION = (
    field << 3 | _TEXT_OR_MESSAGE for field in (1, 2, 5, 10, 11, 12, 13, 14)
)
_GRAPH = 7 << 3 | _TEXT_OR_MESSAGE


@dataclass(frozen=True, slots=True)
class GraphFields:
    """The operators and constants of a graph, each as it is written.

    ``rest`` are its name, inputs and outputs, with their fields; what only describes is left out.
    """

    nodes: list[bytes]
    tensors: list[bytes]
    rest: bytes


def split_graph(graph: bytes) -> GraphFields | None:
    """The parts of a GraphProto; None for one with parts that are not among the usual."""
    nodes: list[bytes] = []
    tensors: list[bytes] = []
    rest: list[bytes] = []
    place, end = 0, len(graph)
    while place < end:
        start, field = place, graph[place]
        length = graph[place + 1]
        place += 2
        if length > 127:
            length &= 127
            shift = 7
            while (more := graph[place]) > 127:
                length |= (more & 127) << shift
                shift += 7
                place += 1
            length |= more << shift
            place += 1
        if field == _NODE:
            nodes.append(graph[place : place + length])
        elif field == _TENSOR:
            tensors.append(graph[place : place + length])
        elif field in (_NAME, _INPUT, _OUTPUT):
            rest.append(graph[start : place + length])
        elif field not in (_DOC, _VALUE_INFO, _QUANTISATION):
            return None
        place += length
    return GraphFields(nodes, tensors, b"".join(rest))


def graph_field(graph: bytes) -> bytes:
    """A graph as the field of a ModelProto."""
    length = len(graph)
    written = bytearray([_GRAPH])
    while length > 127:
        written.append(length & 127 | 128)
        length >>= 7
    written.append(length)
    return bytes(written) + graph
