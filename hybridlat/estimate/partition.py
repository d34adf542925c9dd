"""From a file to the cells it falls into on one target, with the engine asked once per structure.

Asking an engine to lower a network costs tens of milliseconds; reading what it answered last time
costs less than one. The answer is kept in memory and in the store under a key of the file's
structure, so networks that differ in names and weights alone share it.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hybridlat.engines import registry
from hybridlat.errors import HybridlatError, StoreError, TargetError
from hybridlat.estimate import known_files
from hybridlat.graph.cells import cut_positions, file_rank, labels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign, sign_part
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.onnx_io import OnnxFile, Shapes
    from hybridlat.store import Store

PARTITION_FORMAT = 4
MAX_REMEMBERED = 2048
_log = logging.getLogger(__name__)


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
        found: list[int] = []
        for place in self.places:
            found += sorted(itertools.chain.from_iterable(place.kernels))
        return tuple(found)


@dataclass(frozen=True)
class Partition:
    """A network as cells: ``gone`` are positions of operators that the engine does not run.

    ``texts`` are the signature texts of the cells, where they are at hand; ``whole`` is the hash of
    the network itself, under which its whole-network records lie, empty where nobody needed it.
    """

    uses: tuple[CellUse, ...]
    removed: tuple[int, ...]
    batch: int
    by: str
    warnings: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    whole: str = ""

    def to_text(self) -> str:
        """JSON for the store's cache; signature texts are kept by the store itself."""
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
        """Read ``to_text``; None for another format."""
        body = json.loads(text)
        if not isinstance(body, list) or body[0] != PARTITION_FORMAT:
            return None
        _, uses, removed, batch, by, warnings, whole = body
        return cls(
            tuple(
                CellUse(signature, tuple(ops), tuple(_place(*place) for place in places))
                for signature, ops, places in uses
            ),
            tuple(removed),
            batch,
            by,
            tuple(warnings),
            whole=whole,
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
        lower: Callable[[Network, Target], Lowered] = registry.lower_quickly,
        identity: Callable[[Target], str] = registry.lowering_identity,
    ) -> None:
        self._target, self._store = target, store
        self._lower, self._identity = lower, identity
        self._remembered: OrderedDict[str, Partition] = OrderedDict()
        self._keys: OrderedDict[tuple[object, ...], str] = OrderedDict()

    def partition(
        self,
        file: OnnxFile,
        batch: int | None = None,
        shapes: Shapes | None = None,
        *,
        needs_whole: Callable[[Network], bool] = lambda _: True,
    ) -> Partition:
        """The cells of ``file``; NetworkError or MeasurementError where it has none.

        Where ``needs_whole`` says no the network itself need not be signed, which costs as much as
        all its cells. What is remembered unsigned is not asked about again: see ``drop_unsigned``.
        """
        key = self._key(file, batch, shapes)
        partition = self._remembered.get(key)
        if partition is None:
            partition = self._recall(key, file) or self._ask(file, batch, shapes, key, needs_whole)
            self._remember(key, partition)
        else:
            self._remembered.move_to_end(key)
        return partition

    def drop_unsigned(self) -> None:
        """Forget the networks that nobody needed signed: that may have changed."""
        for key in [k for k, partition in self._remembered.items() if not partition.whole]:
            del self._remembered[key]

    def _key(self, file: OnnxFile, batch: int | None, shapes: Shapes | None) -> str:
        """The file's key, worked out once for networks that are asked about again."""
        asked = (file.written, batch, tuple((shapes or {}).items()))
        key = self._keys.get(asked)
        if key is None:
            key = self._keys[asked] = file.key(batch, shapes)
            if len(self._keys) > MAX_REMEMBERED:
                self._keys.popitem(last=False)
        return key

    def remember(self, key: str, partition: Partition) -> None:
        """Take over what another process was answered for the structure ``key``."""
        if key not in self._remembered:
            self._keep(key, partition)
            self._remember(key, partition)

    def _remember(self, key: str, partition: Partition) -> None:
        self._remembered[key] = partition
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)

    def _cache_key(self, key: str) -> str:
        return f"{_scope(self._identity(self._target), self._target)}/{key}"

    def _recall(self, key: str, file: OnnxFile) -> Partition | None:
        if self._store is None:
            return None
        try:
            text = self._store.cache_get(self._cache_key(key))
        except StoreError as error:
            _log.warning("a cached partition is not used: %s", error)
            return None  # a cache that cannot be read is no reason not to answer
        partition = Partition.from_text(text) if text is not None else None
        if partition is not None:
            known_files.keep(self._store, file)
        return partition

    def _ask(
        self,
        file: OnnxFile,
        batch: int | None,
        shapes: Shapes | None,
        key: str,
        needs_whole: Callable[[Network], bool],
    ) -> Partition:
        network = file.network(batch, shapes)
        lowered = self._lower(network, self._target)
        whole = not lowered.is_quick or needs_whole(network)
        partition = partition_network(network, lowered, file.node_names, whole=whole)
        _log.debug("%s: %d distinct cells, by %s", file.label, len(partition.uses), partition.by)
        if not lowered.is_quick:  # else it is made again as quickly as it is found again
            self._keep(key, partition)
            if self._store is not None:
                known_files.keep(self._store, file)
        return partition

    def _keep(self, key: str, partition: Partition) -> None:
        """For the next process, with the texts of its cells where they are at hand."""
        if self._store is None or not partition.texts:
            return
        try:
            self._store.add_signatures(partition.texts)
            self._store.cache_put(self._cache_key(key), partition.to_text())
        except StoreError as error:  # the next process asks the engine again
            _log.warning("a partition is not kept: %s", error)


def _scope(identity: str, target: Target) -> str:
    return f"split/{PARTITION_FORMAT}/{identity}/{target}"


def is_outdated(scope: str, identity: Callable[[Target], str] = registry.lowering_identity) -> bool:
    """Whether what the store caches under ``scope`` will never be asked for again.

    So it is with partitions when the format, the engine or its rules have changed since, and with
    files when their format has; where the engine cannot tell because it is not here, and for
    everything else, the answer is no.
    """
    word, *parts = scope.split("/")
    if word == known_files.SCOPE.partition("/")[0]:
        return scope != known_files.SCOPE
    for count in (4, 3):  # a target has three or four parts, and stands last
        try:
            target = Target.parse("/".join(parts[-count:]))
            return word == "split" and scope != _scope(identity(target), target)
        except TargetError:
            continue
        except HybridlatError:
            return False
    return word == "split"


def _place(order: int, reads: list[int], kernels: list[list[int]]) -> CellPlace:
    return CellPlace(order, tuple(reads), tuple(map(tuple, kernels)))


def partition_network(
    network: Network, lowered: Lowered, file_names: tuple[str, ...], *, whole: bool = True
) -> Partition:
    """Group the cells of a lowered network by signature; positions count in ``file_names``.

    Without ``whole`` the network itself is not signed.
    """
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
    own = sign(network).hash if whole else ""
    return Partition(uses, tuple(sorted(removed)), batch, lowered.by, lowered.warnings, texts, own)
