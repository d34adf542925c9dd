"""From a file to the cells it falls into on one target, the engine being asked once per structure.

Asking an engine to lower a network costs tens of milliseconds; reading what it answered last time
costs less than one. The partition is remembered, and cached in the store under a key of the file's
structure, so networks that differ in names and weights alone share it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from hybridlat.engines import registry
from hybridlat.errors import HybridlatError, StoreError, TargetError
from hybridlat.estimate.partition.partition import PARTITION_FORMAT, Partition, partition_network
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io.facts import FACTS_FORMAT, FileFacts
from hybridlat.schema.target import Target
from hybridlat.store import Store

if TYPE_CHECKING:
    from hybridlat.onnx_io import OnnxFile, Shapes

MAX_REMEMBERED = 2048
FILE_SCOPE = f"file/{FACTS_FORMAT}"
_log = logging.getLogger(__name__)


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

    def partition(
        self,
        file: OnnxFile,
        batch: int | None = None,
        shapes: Shapes | None = None,
    ) -> Partition:
        """The cells of ``file``; NetworkError or MeasurementError where it has none."""
        key = file.key(batch, shapes)
        partition = self._remembered.get(key) or self._recall(key, file)
        partition = partition or self._ask(file, batch, shapes, key)
        self._remember(key, partition)
        return partition

    def remember(self, key: str, partition: Partition) -> None:
        """Take over what another process was answered for the structure ``key``."""
        if key not in self._remembered:
            self._keep(key, partition)
            self._remember(key, partition)

    def _remember(self, key: str, partition: Partition) -> None:
        self._remembered[key] = partition
        self._remembered.move_to_end(key)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)

    def _cache_key(self, key: str) -> str:
        return f"{_scope(self._identity(self._target), self._target)}/{key}"

    def _recall(self, key: str, file: OnnxFile) -> Partition | None:
        if self._store is None:
            return None
        try:
            partition = self._store.cache_read(self._cache_key(key), Partition.from_text)
        except StoreError as error:
            _log.warning("a cached partition is not used: %s", error)
            return None  # a cache that cannot be read is no reason not to answer
        if partition is not None:
            keep_file(self._store, file)
        return partition

    def _ask(
        self,
        file: OnnxFile,
        batch: int | None,
        shapes: Shapes | None,
        key: str,
    ) -> Partition:
        network = file.network(batch, shapes)
        lowered = self._lower(network, self._target)
        # What rules make of a network is found again sooner than made again, which pays for files;
        # a search's candidates, which are none, would fill the store.
        keeps = not lowered.is_quick and bool(file.digest or not lowered.is_by_rules)
        partition = partition_network(network, lowered, file.node_names)
        _log.debug("%s: %d distinct cells, by %s", file.label, len(partition.uses), partition.by)
        if keeps:
            partition = partition.signed()
            self._keep(key, partition)
            if self._store is not None:
                keep_file(self._store, file)
        return partition

    def _keep(self, key: str, partition: Partition) -> None:
        """For the next process, with the texts of its cells where they are at hand."""
        if self._store is None or not partition.texts:
            return
        try:
            self._store.add_signatures(partition.texts)
            self._store.cache_put(self._cache_key(key), partition.to_text())
        except StoreError as error:  # the next process asks the engine again
            _log.warning("a partition is not cached: %s", error)


def _scope(identity: str, target: Target) -> str:
    return f"split/{PARTITION_FORMAT}/{identity}/{target}"


def is_outdated(scope: str, identity: Callable[[Target], str] = registry.lowering_identity) -> bool:
    """Whether what the store caches under ``scope`` will never be asked for again.

    So it is with partitions when the format, the engine or its rules have changed since, and with
    files when their format has; where the engine cannot tell because it is not here, and for
    everything else, the answer is no.
    """
    word, *parts = scope.split("/")
    if word == FILE_SCOPE.partition("/")[0]:
        return scope != FILE_SCOPE
    for count in (4, 3):  # a target has three or four parts, and stands last
        try:
            target = Target.parse("/".join(parts[-count:]))
            return word == "split" and scope != _scope(identity(target), target)
        except TargetError:
            continue
        except HybridlatError:
            return False
    return word == "split"


def known_file(store: Store, digest: str) -> FileFacts | None:
    """What the store's cache holds of the file with these bytes; None where it holds nothing."""
    try:
        return store.cache_read(f"{FILE_SCOPE}/{digest}", FileFacts.from_text)
    except StoreError as error:
        _log.warning("what is cached of a file is not used: %s", error)
        return None  # a cache that cannot be read is no reason not to answer


def keep_file(store: Store, file: OnnxFile) -> None:
    """Cache what later processes need of a file, if its bytes have a digest and it is new."""
    if not file.digest or file.known is not None:
        return
    try:
        store.cache_put(f"{FILE_SCOPE}/{file.digest}", file.facts.to_text())
    except HybridlatError as error:  # the next process parses the file again
        _log.info("what is known of a file is not cached: %s", error)
