"""What the differential protocol times: cells behind their predecessor, and what is taken off.

An engine hands its results out in the plain layout. Inside a network a cell's result stays in the
engine's own layout, so T(previous) alone would pay for a conversion that T(previous ++ cell) does
not: on large maps more than the cell itself. Every result that is not the network's own is
therefore read by a *tap* inside the engine, a pooling that reads one pixel a channel, and the tap
hands out that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hybridlat.graph.cells import Cell, cut, file_part, kernels
from hybridlat.graph.network import Lowered, Network, Node, TensorType
from hybridlat.graph.signature import sign
from hybridlat.schema.measurement import Kind

_TAP_VERSION = 12
_MAP_DIMENSIONS = 4


@dataclass(frozen=True)
class Part:
    """One thing to measure: ``behind`` is what is timed, ``alone`` what is taken off it.

    ``alone`` None: nothing is taken off but the cost of entering the engine (the first cell of a
    network), or nothing at all (a whole network). ``room_bytes`` is the memory that the whole
    network works in: so much is touched between two runs of a part.
    """

    signature: str
    kind: Kind
    behind: Network
    alone: Network | None
    labels: Mapping[str, str] = field(default_factory=dict)
    room_bytes: int = 0


def whole(name: str, network: Network) -> Part:
    """A whole network, timed directly."""
    return Part(
        sign(network).hash, "network", network, None, {"network": name}, working_bytes(network)
    )


def parts_of(name: str, network: Network, lowered: Lowered) -> list[tuple[Part, int]]:
    """The distinct cells of a network with the number of their uses, each behind the one before.

    A cell that is met several times is measured behind its first predecessor.
    """
    found: dict[str, Part] = {}
    counts: dict[str, int] = {}
    before: Cell | None = None
    room = working_bytes(network)
    given_out = frozenset(network.outputs)
    for cell in cut(lowered, network):
        if cell.origins:
            signature = sign(cell.network).hash
            counts[signature] = counts.get(signature, 0) + 1
            if signature not in found:
                first = before.origins if before else ()
                behind = tapped(file_part(network, lowered, (*first, *cell.origins)), given_out)
                alone = tapped(file_part(network, lowered, first), given_out) if first else None
                labels = {"network": name}
                found[signature] = Part(signature, "cell", behind, alone, labels, room)
            before = cell
    return [(part, counts[signature]) for signature, part in found.items()]


def isolated_parts(
    name: str, network: Network, lowered: Lowered, *, by: str
) -> list[tuple[Part, int]]:
    """The cells (``by="cells"``) or kernels of a lowered network, each timed alone.

    With the file itself for ``lowered``, kernels are its unfused layers.
    """
    counts: dict[str, tuple[Part, int]] = {}
    room = working_bytes(network)
    for cell in (cut if by == "cells" else kernels)(lowered, network):
        if cell.origins:
            behind = file_part(network, lowered, cell.origins)
            key = sign(behind).hash
            part = Part(key, "layer", behind, None, {"network": name, "by": by}, room)
            counts[key] = (part, counts.get(key, (part, 0))[1] + 1)
    return list(counts.values())


def tapped(part: Network, given_out: frozenset[str]) -> Network:
    """The part with a tap on every feature map that is not among the network's own outputs."""
    nodes, types = list(part.nodes), dict(part.types)
    outputs: list[str] = []
    for name in part.outputs:
        type_ = part.types[name]
        is_map = len(type_.shape) == _MAP_DIMENSIONS and type_.dtype.startswith("float")
        if name in given_out or not is_map or type_.shape[2:] == (1, 1):
            outputs.append(name)
            continue
        tap = f"{name}__tap"
        types[tap] = TensorType(type_.dtype, (*type_.shape[:2], 1, 1))
        attributes = (("kernel_shape", (1, 1)), ("strides", type_.shape[2:]))
        nodes.append(Node(tap, "MaxPool", (name,), (tap,), attributes, version=_TAP_VERSION))
        outputs.append(tap)
    return replace(part, nodes=tuple(nodes), types=types, outputs=tuple(outputs))


def working_bytes(network: Network) -> int:
    """Memory that a network works in: all weights, and what its largest operator reads and makes.

    Engines give the activations of different operators the same memory.
    """
    largest = 0
    for node in network.nodes:
        names = {name for name in (*node.inputs, *node.outputs) if name in network.types}
        largest = max(largest, sum(network.types[name].bytes for name in names))
    return network.weight_bytes + largest
