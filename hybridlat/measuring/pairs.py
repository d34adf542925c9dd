"""Cells of engines whose graph cannot be cut, each with its predecessor, which is taken off.

A cell is T(predecessor ++ cell) − T(predecessor). Both are built from the file's operators, so the
engine optimises them as it does the whole network; entering the engine and the change of layout at
the border are in both, and cancel.

An engine hands its results out in the plain layout, so T(predecessor) would pay for a conversion
that T(predecessor ++ cell) does not: on large maps more than the cell itself. Every result that is
not the network's own is therefore read by a *tap* inside the engine, a pooling that reads one pixel
a channel, and the tap hands out that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hybridlat.graph.cells import cut, file_part
from hybridlat.graph.network import Lowered, Network, Node, TensorType
from hybridlat.graph.signature import sign
from hybridlat.measuring.schedule import Job

MAX_ROOM_BYTES = 300_000_000
"""What a network works in beyond this is as cold as it can be."""
_TAP_VERSION = 12
_MAP_DIMENSIONS = 4


def pairs_of(name: str, network: Network, lowered: Lowered) -> list[Job]:
    """The distinct cells of a network, each with the first predecessor that it has."""
    jobs: dict[str, Job] = {}
    works_in_bytes = min(working_bytes(network), MAX_ROOM_BYTES)

    def part(origins: Iterable[int], ops: Iterable[str]) -> Network:
        made = tapped(file_part(network, lowered, origins), frozenset(network.outputs))
        return replace(made, name=" ".join(ops))

    cells = [cell for cell in cut(lowered, network) if cell.origins]
    for before, cell in zip([None, *cells], cells, strict=False):
        signature = sign(cell.network)
        if signature.hash in jobs:
            continue
        both = part((*(before.origins if before else ()), *cell.origins), cell.ops)
        predecessor = part(before.origins, before.ops) if before else None
        own_bytes = sum(working_bytes(p) for p in (both, predecessor) if p is not None)
        jobs[signature.hash] = Job(
            signature, both, "cell", {"network": name}, predecessor,
            max(0, works_in_bytes - own_bytes),
        )  # fmt: skip
    return list(jobs.values())


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
