"""Cells of engines whose graph cannot be cut, each with its predecessor, which is taken off.

A cell is T(predecessor ++ cell) − T(predecessor). Both are built from the file's operators, so the
engine optimises them as it does the whole network; entering the engine and the change of layout at
the border are in both, and cancel. The predecessor is the last cell that makes what the cell reads.

An engine hands its results out in the plain layout, so T(predecessor) would pay for a conversion
that T(predecessor ++ cell) does not: on large maps more than the cell itself. Every result that is
not the network's own is therefore read by a *tap* inside the engine, a pooling that reads one pixel
a channel, and the tap hands out that. What a cell reads of other cells comes from a *source* in
both, a pooling that writes it inside the engine. So a change of layout is charged to the cell that
reads a tensor in another layout than its maker writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hybridlat.graph.cells import Cell, cut, file_part
from hybridlat.graph.network import Lowered, Network, Node, TensorType
from hybridlat.graph.signature import sign
from hybridlat.measuring.schedule import Job

MAX_ROOM_BYTES = 300_000_000
"""What a network works in beyond this is as cold as it can be."""
_POOL = 12
_SAME = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)))
_MAP_DIMENSIONS = 4


def pairs_of(name: str, network: Network, lowered: Lowered) -> list[Job]:
    """The distinct cells of a network, each with the first predecessor that it has."""
    jobs: dict[str, Job] = {}
    works_in_bytes = min(working_bytes(network), MAX_ROOM_BYTES)

    def part(*cells: Cell, made: Sequence[str] = ()) -> Network:
        origins = [origin for cell in cells for origin in cell.origins]
        whole = sourced(file_part(network, lowered, origins), {n: network.types[n] for n in made})
        return replace(tapped(whole, frozenset(network.outputs)), name=" ".join(cells[-1].ops))

    makers: dict[str, int] = {}
    cells = [cell for cell in cut(lowered, network) if cell.origins]
    for place, cell in enumerate(cells):
        read = [makers[name] for name in cell.network.inputs if name in makers]
        makers.update(dict.fromkeys(cell.network.outputs, place))
        signature = sign(cell.network)
        if signature.hash in jobs:
            continue
        before = cells[max(read, default=place - 1)] if place else None
        both, predecessor = part(cell), None
        if before is not None:
            inputs, own = part(before, cell).inputs, part(before).inputs
            made = [n for n in inputs if n not in (*own, *network.inputs)]
            both, predecessor = part(before, cell, made=made), part(before, made=made)
        own_bytes = sum(working_bytes(p) for p in (both, predecessor) if p is not None)
        jobs[signature.hash] = Job(
            signature, both, "cell", {"network": name}, predecessor,
            max(0, works_in_bytes - own_bytes),
        )  # fmt: skip
    return list(jobs.values())


def sourced(part: Network, made: Mapping[str, TensorType]) -> Network:
    """The part with a source of each of these feature maps, read in it or not."""
    made = {name: type_ for name, type_ in made.items() if _is_map(type_)}
    source = {name: f"{name}__source" for name in made}
    return replace(
        part,
        nodes=(
            *(Node(source[n], "MaxPool", (source[n],), (n,), _SAME, version=_POOL) for n in made),
            *part.nodes,
        ),
        inputs=(*(n for n in part.inputs if n not in made), *source.values()),
        outputs=(*part.outputs, *(n for n in made if n not in part.inputs)),
        types={**part.types, **made, **{source[n]: type_ for n, type_ in made.items()}},
    )


def tapped(part: Network, network_outputs: frozenset[str]) -> Network:
    """The part with a tap on every feature map that is not among the network's own outputs."""
    nodes, types = list(part.nodes), dict(part.types)
    taps: dict[str, str] = {}
    for name in part.outputs:
        type_ = part.types[name]
        if name not in network_outputs and _is_map(type_) and type_.shape[2:] != (1, 1):
            tap = taps[name] = f"{name}__tap"
            types[tap] = TensorType(type_.dtype, (*type_.shape[:2], 1, 1))
            attributes = (("kernel_shape", (1, 1)), ("strides", type_.shape[2:]))
            nodes.append(Node(tap, "MaxPool", (name,), (tap,), attributes, version=_POOL))
    outputs = tuple(taps.get(name, name) for name in part.outputs)
    return replace(part, nodes=tuple(nodes), types=types, outputs=outputs)


def _is_map(type_: TensorType) -> bool:
    return len(type_.shape) == _MAP_DIMENSIONS and type_.dtype.startswith("float")


def working_bytes(network: Network) -> int:
    """Memory that a network works in: all weights, and what its largest operator reads and makes.

    Engines give the activations of different operators the same memory.
    """
    largest = 0
    for node in network.nodes:
        names = {name for name in (*node.inputs, *node.outputs) if name in network.types}
        largest = max(largest, sum(network.types[name].bytes for name in names))
    return network.weight_bytes + largest
