"""What the differential protocol times: a cell with its predecessor, and the predecessor alone.

An engine hands its results out in the plain layout, so T(predecessor) would pay for a conversion
that T(predecessor ++ cell) does not: on large maps more than the cell itself. Every result that is
not the network's own is therefore read by a *tap* inside the engine, a pooling that reads one pixel
a channel, and the tap hands out that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hybridlat.graph.cells import cut, file_part
from hybridlat.graph.network import Lowered, Network, Node, TensorType
from hybridlat.graph.signature import Signature, sign
from hybridlat.schema.measurement import Kind

_TAP_VERSION = 12
_MAP_DIMENSIONS = 4
# More memory than this is cold anyway, and building it all at once costs too much of it.
MAX_ROOM_BYTES = 300_000_000


@dataclass(frozen=True)
class Part:
    """One thing to measure: what ``with_predecessor`` takes, less what ``predecessor`` takes.

    ``predecessor`` is None for the first cell of a network, and for a whole one. ``working_bytes``
    is the network's memory, so much of which is touched between two runs of a part.
    """

    signature: Signature
    kind: Kind
    with_predecessor: Network
    predecessor: Network | None
    labels: Mapping[str, str] = field(default_factory=dict)
    working_bytes: int = 0
    ops: tuple[str, ...] = ()

    @property
    def networks(self) -> tuple[Network, ...]:
        """What is built: what is timed, then what is taken off it."""
        both = (self.with_predecessor, self.predecessor)
        return tuple(network for network in both if network is not None)


def whole(name: str, network: Network) -> Part:
    """A whole network, timed directly."""
    return Part(sign(network), "network", network, None, {"network": name}, working_bytes(network))


def parts_of(name: str, network: Network, lowered: Lowered) -> list[tuple[Part, int]]:
    """The distinct cells of a network with the number of their uses, each with its predecessor.

    A cell that is met several times is measured with the first predecessor that it has.
    """
    by_hash: dict[str, Part] = {}
    counts: dict[str, int] = {}
    before: tuple[int, ...] = ()
    room_bytes = working_bytes(network)
    given_out = frozenset(network.outputs)
    for cell in cut(lowered, network):
        if not cell.origins:
            continue
        signature = sign(cell.network)
        counts[signature.hash] = counts.get(signature.hash, 0) + 1
        if signature.hash not in by_hash:
            both = tapped(file_part(network, lowered, (*before, *cell.origins)), given_out)
            first = tapped(file_part(network, lowered, before), given_out) if before else None
            by_hash[signature.hash] = Part(
                signature, "cell", both, first, {"network": name}, room_bytes, tuple(cell.ops)
            )
        before = cell.origins
    return [(part, counts[hash_]) for hash_, part in by_hash.items()]


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


@dataclass
class Rotation:
    """Parts whose sessions run in turn; ``networks`` are the distinct ones by signature hash."""

    name: str
    parts: list[Part]
    networks: dict[str, Network] = field(default_factory=dict)
    held_bytes: int = 0


def rotations(parts: Sequence[Part]) -> list[Rotation]:
    """Parts of one network together, up to the memory that the network works in."""
    rotations_: list[Rotation] = []
    counts: dict[tuple[str, ...], int] = {}
    last: tuple[str, ...] = ()
    for part in parts:
        group = (part.kind, *map(str, part.labels.values()))
        new = {sign(network).hash: network for network in part.networks}
        room_bytes = min(part.working_bytes, MAX_ROOM_BYTES)
        current = (
            rotations_[-1] if rotations_ and group == last and part.kind != "network" else None
        )
        added = [n for h, n in new.items() if current is None or h not in current.networks]
        held_bytes = sum(map(working_bytes, added))
        if current is None or current.held_bytes + held_bytes > room_bytes:
            counts[group] = counts.get(group, -1) + 1
            current = Rotation("/".join((*group, str(counts[group]))), [])
            rotations_.append(current)
            held_bytes = sum(map(working_bytes, new.values()))
        current.parts.append(part)
        current.networks.update(new)
        current.held_bytes += held_bytes
        last = group
    return rotations_
