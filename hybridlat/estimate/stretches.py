"""Cells of networks that were never seen, put together from stretches that were.

The networks of a search space are other chains of the same blocks. What a stretch of operators
falls into is remembered with all that it hangs on: its operators and their links, the type of its
input, and what the engine's lowering says stands before and behind it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from hybridlat.engines.base import StretchLowering
from hybridlat.estimate.partition import CellPlace, CellUse, Partition, partition_network
from hybridlat.estimate.whole_networks import Links, links_of, outline_of
from hybridlat.graph.network import TensorType
from hybridlat.graph.signature import sign
from hybridlat.onnx_io.stretches import Chain, Stretch, chain_of

if TYPE_CHECKING:
    from hybridlat.onnx_io import OnnxFile, Shapes

MOST_REMEMBERED = 8192
NeedsWhole = Callable[[int, Callable[[], str]], bool]
"""Whether a network with so many bytes of weights and that outline has to be signed itself."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """A use of a cell in a stretch; positions and orders count in the stretch, as in CellPlace."""

    signature: str
    text: str
    ops: tuple[str, ...]
    reads: tuple[int, ...]
    kernels: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What a stretch falls into; ``type`` and ``op`` are of what it makes, ``links`` its outline.

    ``inside`` is what its engine's lowering knows of it, ``behind`` are the borders behind it, by
    those before it.
    """

    inside: object
    by: str
    cells: tuple[_Cell, ...]
    removed: tuple[int, ...]
    type: TensorType
    op: str
    links: Links
    behind: dict[object, object]


class StretchMemory:
    """Partitions of files, stretch by stretch, for one target's engine."""

    def __init__(self, lowering: StretchLowering) -> None:
        self._lowering = lowering
        self._parts: OrderedDict[tuple[object, ...], _Part | None] = OrderedDict()
        self._generation = lowering.generation

    def partition(
        self, file: OnnxFile, batch: int | None, shapes: Shapes, needs_whole: NeedsWhole
    ) -> Partition | None:
        """The cells of ``file``, itself signed only if needed; None if this way has no answer."""
        if not self._lowering.is_ready:
            return None
        chain = chain_of(file, batch, shapes, self._lowering.joining)
        if chain is None:
            return None
        parts = self._parts_of(chain)
        if parts is None:
            return None
        makers = ["", *[part.op for part in parts]]
        links = [(part.links, maker) for part, maker in zip(parts, makers, strict=False)]
        if not self._lowering.may_skip_asking():
            return None
        partition = _assemble(chain, parts)
        if needs_whole(chain.weight_bytes, partial(outline_of, links)):
            return replace(partition, whole=sign(file.network(batch, shapes)).hash)
        return partition

    def _parts_of(self, chain: Chain) -> list[_Part] | None:
        lowering = self._lowering
        if lowering.generation != self._generation:
            self._parts.clear()
            self._generation = lowering.generation
        context = lowering.context(chain.weight_bytes)
        type_, before = chain.type, lowering.start
        parts: list[_Part] = []
        for stretch in chain.stretches:
            readers = min(stretch.readers, 2)  # more than one is all that anything hangs on
            key = (stretch.key, chain.opset, type_, lowering.form(before), readers, context)
            if key in self._parts:
                part = self._parts[key]
                self._parts.move_to_end(key)
            else:
                part = self._lower(chain, stretch, type_, before, readers, context)
                self._parts[key] = part
                if len(self._parts) > MOST_REMEMBERED:
                    self._parts.popitem(last=False)
            if part is None:
                return None
            behind = part.behind.get(before)
            if behind is None:
                behind = lowering.behind(part.inside, before)
                if behind is None:
                    return None
                part.behind[before] = behind
            parts.append(part)
            type_, before = part.type, behind
        return parts

    def _lower(
        self,
        chain: Chain,
        stretch: Stretch,
        type_: TensorType,
        before: object,
        readers: int,
        context: str,
    ) -> _Part | None:
        network = chain.network(stretch, type_)
        if network is None:
            return None
        found = self._lowering.lower(network, before, readers, context)
        if found is None:
            return None
        names = tuple([node.name for node in network.nodes])
        partition = partition_network(network, found.lowered, names, whole=False)
        cells = [
            (place.order, _Cell(
                use.signature, partition.texts[use.signature], use.ops, place.reads, place.kernels
            ))
            for use in partition.uses for place in use.places
        ]  # fmt: skip
        cells.sort(key=lambda pair: pair[0])
        last = network.nodes[network.producers()[stretch.exit]]
        return _Part(
            found.inside, found.lowered.by, tuple([cell for _, cell in cells]), partition.removed,
            network.types[stretch.exit], last.op, links_of(network), {},
        )  # fmt: skip


def _assemble(chain: Chain, parts: list[_Part]) -> Partition:
    """The cells of all parts, as places in the file and in the order of the whole network."""
    ops: dict[str, tuple[str, ...]] = {}
    places: dict[str, list[CellPlace]] = {}
    texts: dict[str, str] = {}
    removed = list(chain.removed)
    order = 0
    for stretch, part in zip(chain.stretches, parts, strict=True):
        at = stretch.positions
        first = order  # what reads the entry reads the last cell of the stretch before
        for cell in part.cells:
            signature = cell.signature
            if signature not in ops:
                ops[signature], texts[signature] = cell.ops, cell.text
                places[signature] = []
            kernels = tuple([tuple([at[i] for i in kernel]) for kernel in cell.kernels])
            reads = tuple([read + first for read in cell.reads])
            places[signature].append(CellPlace(order, reads, kernels))
            order += 1
        removed += [at[i] for i in part.removed]
    uses = tuple([CellUse(name, ops[name], tuple(found)) for name, found in places.items()])
    return Partition(
        uses, tuple(sorted(removed)), chain.type.shape[0] if chain.type.shape else 1,
        parts[-1].by, (), texts, constants=frozenset(chain.removed),
    )  # fmt: skip
