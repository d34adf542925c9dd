"""From a file to the cells it falls into on one target, with the engine asked once per structure.

Asking an engine to lower a network costs tens of milliseconds; reading what it answered last time
costs less than one. The answer is kept in memory and in the store under a key of the file's
structure, so networks that differ in names and weights alone share it.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hybridlat.engines import registry
from hybridlat.errors import HybridlatError, StoreError, TargetError
from hybridlat.graph.cells import Cell, cut
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.onnx_io import OnnxFile, Shapes
    from hybridlat.store import Store

PARTITION_FORMAT = 3
MAX_REMEMBERED = 2048
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CellUse:
    """One distinct cell of a network: ``nodes`` are positions in the file, of all its uses."""

    signature: str
    ops: tuple[str, ...]
    nodes: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Partition:
    """A network as cells: ``gone`` are positions of operators that the engine does not run.

    ``texts`` are the signature texts of the cells, where they are at hand.
    """

    uses: tuple[CellUse, ...]
    removed: tuple[int, ...]
    batch: int
    by: str
    warnings: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """JSON for the store's cache; signature texts are kept by the store itself."""
        uses = [[u.signature, list(u.ops), list(u.nodes), u.count] for u in self.uses]
        body = [
            PARTITION_FORMAT,
            uses,
            list(self.removed),
            self.batch,
            self.by,
            list(self.warnings),
        ]
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Partition | None:
        """Read ``to_text``; None for another format."""
        body = json.loads(text)
        if not isinstance(body, list) or body[0] != PARTITION_FORMAT:
            return None
        _, uses, removed, batch, by, warnings = body
        return cls(
            tuple(CellUse(s, tuple(ops), tuple(nodes), count) for s, ops, nodes, count in uses),
            tuple(removed),
            batch,
            by,
            tuple(warnings),
        )


class Partitioner:
    """Splits files into cells for one target, as its engine fuses them.

    ``lower`` asks the engine or applies its rules; ``identity`` names what its answers depend on,
    so that nothing remembered outlives an engine's version or a change of its rules.
    """

    def __init__(
        self,
        target: Target,
        store: Store | None,
        lower: Callable[[Network, Target], Lowered] = registry.lower,
        identity: Callable[[Target], str] = registry.lowering_identity,
    ) -> None:
        self._target, self._store = target, store
        self._lower, self._identity = lower, identity
        self._remembered: OrderedDict[str, Partition] = OrderedDict()

    def partition(
        self, file: OnnxFile, batch: int | None = None, shapes: Shapes | None = None
    ) -> Partition:
        """The cells of ``file``; NetworkError or MeasurementError where it has none."""
        key = file.key(batch, shapes)
        partition = self._remembered.get(key)
        if partition is None:
            partition = self._recall(key) or self._ask(file, batch, shapes, key)
            self._remembered[key] = partition
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        else:
            self._remembered.move_to_end(key)
        return partition

    def _cache_key(self, key: str) -> str:
        return f"{_scope(self._identity(self._target), self._target)}/{key}"

    def _recall(self, key: str) -> Partition | None:
        if self._store is None:
            return None
        try:
            text = self._store.cache_get(self._cache_key(key))
        except StoreError as error:
            _log.warning("a cached partition is not used: %s", error)
            return None  # a cache that cannot be read is no reason not to answer
        return Partition.from_text(text) if text is not None else None

    def _ask(self, file: OnnxFile, batch: int | None, shapes: Shapes | None, key: str) -> Partition:
        network = file.network(batch, shapes)
        partition = partition_network(network, self._lower(network, self._target), file.node_names)
        _log.debug("%s: %d distinct cells, by %s", file.label, len(partition.uses), partition.by)
        if self._store is not None:
            try:
                self._store.add_signatures(partition.texts)
                self._store.cache_put(self._cache_key(key), partition.to_text())
            except StoreError as error:  # the next process asks the engine again
                _log.warning("a partition is not kept: %s", error)
        return partition


def _scope(identity: str, target: Target) -> str:
    return f"split/{PARTITION_FORMAT}/{identity}/{target}"


def is_outdated(scope: str, identity: Callable[[Target], str] = registry.lowering_identity) -> bool:
    """Whether partitions that the store caches under ``scope`` will never be asked for again.

    So it is when the format, the engine or its rules have changed since; where the engine cannot
    tell because it is not here, and for what is no partition, the answer is no.
    """
    word, *parts = scope.split("/")
    for count in (4, 3):  # a target has three or four parts, and stands last
        try:
            target = Target.parse("/".join(parts[-count:]))
            return word == "split" and scope != _scope(identity(target), target)
        except TargetError:
            continue
        except HybridlatError:
            return False
    return word == "split"


def partition_network(network: Network, lowered: Lowered, file_names: tuple[str, ...]) -> Partition:
    """Group the cells of a lowered network by signature; positions count in ``file_names``."""
    place = {name: i for i, name in enumerate(file_names)}
    grouped: dict[str, list[Cell]] = {}
    texts: dict[str, str] = {}
    for cell in cut(lowered, network):
        signature = sign(cell.network)
        texts[signature.hash] = signature.text
        grouped.setdefault(signature.hash, []).append(cell)
    uses = tuple(
        CellUse(
            hash_,
            cells[0].ops,
            tuple(place[network.nodes[i].name] for cell in cells for i in cell.origins),
            len(cells),
        )
        for hash_, cells in grouped.items()
    )
    removed = [place[network.nodes[i].name] for i in lowered.removed]
    removed += [place[name] for name in network.folded]
    removed += [place[name] for name, _ in network.left_out]
    first = network.types[network.inputs[0]].shape if network.inputs else ()
    batch = first[0] if first else 1
    return Partition(uses, tuple(sorted(removed)), batch, lowered.by, lowered.warnings, texts)
