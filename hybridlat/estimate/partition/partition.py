"""A network as cells of one target: what each is, how often and where it stands in the file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from hybridlat.graph.cells import cut_positions, file_rank, labels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign, sign_part
from hybridlat.schema import wire

PARTITION_FORMAT = 4


class _Place(NamedTuple):
    """A ``CellPlace`` in a cache."""

    order: int
    reads: tuple[int, ...]
    kernels: tuple[tuple[int, ...], ...]


class _Document(NamedTuple):
    """What ``Partition.to_text`` writes."""

    format: int
    uses: tuple[tuple[str, tuple[str, ...], tuple[_Place, ...]], ...]
    removed: tuple[int, ...]
    batch: int
    by: str
    warnings: tuple[str, ...]
    whole: str


@dataclass(frozen=True, slots=True)
class CellPlace:
    """One use of a cell: the ``order``-th cell of the network's schedule, counted from 0.

    ``reads`` are the orders of the cells whose results it reads, -1 for the network's inputs;
    ``kernels`` the positions in the file that each kernel computes, in the order of the signature.
    """

    order: int
    reads: tuple[int, ...]
    kernels: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class CellUse:
    """One distinct cell of a network: ``ops`` labels its kernels as the file lists them."""

    signature: str
    ops: tuple[str, ...]
    places: tuple[CellPlace, ...]

    @property
    def count(self) -> int:
        """How often the network holds the cell."""
        return len(self.places)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Positions in the file of all operators in any of the uses."""
        positions: list[int] = []
        for place in self.places:
            positions += sorted(itertools.chain.from_iterable(place.kernels))
        return tuple(positions)


@dataclass(frozen=True)
class Partition:
    """A network as cells: ``removed`` are positions of operators that the engine does not run.

    ``texts`` are the signature texts of the cells, where they are at hand. ``hash`` is that of the
    network itself where it has been signed, else ``network`` is there to be signed: see ``whole``.
    """

    uses: tuple[CellUse, ...]
    removed: tuple[int, ...]
    batch: int
    by: str
    warnings: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    hash: str = ""
    network: Network | None = field(default=None, repr=False, compare=False)

    @cached_property
    def whole(self) -> str:
        """The hash of the network itself, under which its whole-network records lie.

        To sign a network costs as much as to sign all its cells, so it is done when first needed.
        """
        return self.hash if self.network is None else sign(self.network).hash

    def signed(self) -> Partition:
        """The same partition without its network, to be stored or sent."""
        return replace(self, hash=self.whole, network=None)

    def to_text(self) -> str:
        """JSON for the store's cache; the store itself holds the signature texts."""
        uses = [
            [u.signature, u.ops, [[p.order, p.reads, p.kernels] for p in u.places]]
            for u in self.uses
        ]
        body = [
            PARTITION_FORMAT,
            uses,
            list(self.removed),
            self.batch,
            self.by,
            list(self.warnings),
            self.whole,
        ]
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Partition | None:
        """Read ``to_text``; None for another format, and for what is damaged."""
        body = wire.decode_or_none(text, _Document)
        if body is None or body.format != PARTITION_FORMAT:
            return None
        return cls(
            tuple(
                CellUse(signature, ops, tuple(CellPlace(*place) for place in places))
                for signature, ops, places in body.uses
            ),
            body.removed,
            body.batch,
            body.by,
            body.warnings,
            hash=body.whole,
        )


def partition_network(network: Network, lowered: Lowered, file_names: tuple[str, ...]) -> Partition:
    """Group the cells of a lowered network by signature; positions count in ``file_names``."""
    position_of = {name: i for i, name in enumerate(file_names)}
    in_file = [position_of[node.name] for node in network.nodes]
    nodes, types = lowered.network.nodes, lowered.network.types
    kernels = [tuple([in_file[i] for i in origin]) for origin in lowered.origins]
    rank = file_rank(lowered)
    ops: dict[str, tuple[str, ...]] = {}
    places: dict[str, list[CellPlace]] = {}
    texts: dict[str, str] = {}
    maker: dict[str, int] = {}
    for order, positions in enumerate(cut_positions(lowered.network)):
        signature, signed = sign_part(lowered.network, positions)
        hash_ = signature.hash
        if hash_ not in ops:
            texts[hash_] = signature.text
            ops[hash_] = labels(lowered, positions, network, rank)
            places[hash_] = []
        read = set()
        for node in [nodes[position] for position in positions]:
            read.update([maker.get(name, -1) for name in node.inputs if name in types])
            maker.update(dict.fromkeys(node.outputs, order))
        read.discard(order)
        computed = tuple([kernels[positions[kernel]] for kernel in signed])
        places[hash_].append(CellPlace(order, tuple(sorted(read)), computed))
    uses = tuple(
        CellUse(hash_, ops[hash_], tuple(cell_place)) for hash_, cell_place in places.items()
    )
    removed = [in_file[i] for i in lowered.removed]
    removed += [position_of[name] for name in network.folded]
    removed += [position_of[name] for name, _ in network.left_out]
    first = network.types[network.inputs[0]].shape if network.inputs else ()
    batch = first[0] if first else 1
    gone = tuple(sorted(removed))
    return Partition(
        uses, gone, batch, lowered.by, lowered.warnings, texts, network=network
    )  # fmt: skip
