"""The look-ups of one target: its records in the store and in shipped packs, its models."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, cast

from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.estimate.lookup.models import InstalledModels
from hybridlat.estimate.lookup.whole_networks import (
    WholeLatency,
    outline,
    outline_of_text,
    whole_latency,
)
from hybridlat.estimate.partition.partition import Partition
from hybridlat.graph.reference_networks import null_network
from hybridlat.graph.signature import sign
from hybridlat.graph.signature_reading import weight_bytes_of
from hybridlat.schema import wire
from hybridlat.schema.measurement import BUSY_SPREAD_SHARE
from hybridlat.schema.target import Target
from hybridlat.store import LatencyStats, Store, packs
from hybridlat.store.packs import PackLookup

MAX_REMEMBERED = 200_000
T = TypeVar("T")
V = TypeVar("V")
_CACHED_VERSION = 4
FEW_NETWORKS = 50
"""To sign so many takes less than to read what was measured."""


@dataclass
class _StoreView:
    """What a store holds of a target, at ``stamp``: see ``Store.stamp``.

    ``unknown`` are cells without a record, ``networks`` counts the records of whole networks,
    ``holds_any`` says whether there is any record; None before the first look-up.
    ``whole`` are networks by signature, None where there is no record of one.
    """

    stamp: object = None
    unknown: set[str] = field(default_factory=set)
    networks: int | None = None
    holds_any: bool | None = None
    whole: dict[str, WholeLatency | None] = field(default_factory=dict)


class TargetData:
    """Look-ups for one target: remembered, else from the store, else from the shipped packs."""

    def __init__(self, target: Target, store: Store, models: Sequence[Path] | None = None) -> None:
        """``models`` are folders to take the target's model from, else those installed."""
        self.target, self.store = target, store
        self.related = registry.same_cell_targets(target)
        """Targets that share this one's cells: the same machine and engine, files of another
        precision."""
        self.models = InstalledModels(target, self.related, models)
        self._remembered: dict[str, LatencyStats] = {}
        self._seen_store = _StoreView()
        self._measured: tuple[int, Mapping[int, list[str]] | None] | None = None
        self._compared = 0
        self._neighbours: dict[Target, TargetData] = {}
        self._stamp: object = None
        self._state: object = None
        self._at_state: dict[str, object] = {}

    @cached_property
    def _packs(self) -> list[PackLookup]:
        return [pack for target in (self.target, *self.related) for pack in packs.packs_for(target)]

    def known(self, hashes: Iterable[str]) -> dict[str, LatencyStats]:
        """The record of each cell, as far as there is one."""
        wanted = list(dict.fromkeys(hashes))
        stats = {h: self._remembered[h] for h in wanted if h in self._remembered}
        view = self._view()
        missing = [h for h in wanted if h not in stats and h not in view.unknown]
        targets = (self.target, *self.related) if missing else ()
        stored: Mapping[Target, Mapping[str, LatencyStats]] = {}
        if missing and view.holds_any is None:
            # Worth a query only where its result can be remembered.
            held = None if view.stamp is None else self.store.targets()
            view.holds_any = held is None or not set(targets).isdisjoint(held)
        if missing and view.holds_any:
            stored = self.store.latencies_by_target(targets, missing)
        for target in targets:
            packs = [pack for pack in self._packs if pack.target == target]
            shipped = [pack.latencies(target, missing) for pack in packs]
            for new in (stored.get(target, {}), *shipped):
                better = {h: s for h, s in new.items() if _outweighs(s, stats.get(h))}
                stats.update(better)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.clear()
        if len(view.unknown) > MAX_REMEMBERED:
            view.unknown.clear()
        self._remembered.update(stats)
        view.unknown.update([h for h in missing if h not in stats])
        return stats

    def _view(self) -> _StoreView:
        """What the store holds since the last write to it; new after one."""
        stamp = self.store.stamp
        if stamp is None or stamp != self._seen_store.stamp:
            self._seen_store = _StoreView(stamp)
        return self._seen_store

    def forget(self, hashes: Iterable[str]) -> None:
        """Look these up again: they were measured just now, and perhaps the entry cost."""
        for hash_ in (*hashes, _entry_cost_signature()):
            self._remembered.pop(hash_, None)
        self._seen_store.whole.clear()
        self._measured = None
        self._at_state.clear()

    def whole(self, signature: str) -> WholeLatency | None:
        """What is recorded of a whole network on this very target; None without any record."""
        known = self._view().whole
        if signature not in known:
            if len(known) > MAX_REMEMBERED:
                known.clear()
            known[signature] = whole_latency(self.target, signature, self.store, self._packs)
        return known[signature]

    @property
    def networks(self) -> int:
        """How many records of whole networks there are of this target, this moment."""
        view = self._view()
        if view.networks is None:
            view.networks = self.store.count(self.target, "network")
        return self._shipped_networks + view.networks

    @cached_property
    def _shipped_networks(self) -> int:
        packs = [pack for pack in self._packs if pack.target == self.target]
        return sum(pack.counts()["network"] for pack in packs)

    def may_be_measured(self, partition: Partition) -> bool:
        """Whether a network may have been measured whole here: False only where that is certain."""
        network = partition.network
        if network is None:
            return True
        networks = self.networks
        if not networks:
            return False
        if self._measured is None or self._measured[0] != networks:
            self._compared += 1
            if self._compared <= FEW_NETWORKS:
                return True
            self._compared, self._measured = 0, (networks, self._measured_networks())
        measured = self._measured[1]
        if measured is None:
            return True
        alike = measured.get(network.weight_bytes)
        return alike is not None and outline(network) in map(outline_of_text, alike)

    def _measured_networks(self) -> Mapping[int, list[str]] | None:
        """Signature texts of networks on record by bytes of weights; None where one is unknown."""
        packs = [pack for pack in self._packs if pack.target == self.target]
        sources: list[tuple[Store | PackLookup, list[str]]] = [
            (self.store, self.store.signatures(self.target, "network")),
            *[(pack, pack.signatures("network")) for pack in packs],
        ]
        texts_of: dict[int, list[str]] = {}
        for source, hashes in sources:
            texts = source.signature_texts(hashes)
            if len(texts) < len(set(hashes)):
                return None
            try:
                for text in texts.values():
                    texts_of.setdefault(weight_bytes_of(text), []).append(text)
            except ValueError:  # of a later format
                return None
        return texts_of

    def texts(self, partition: Partition, hashes: Sequence[str]) -> Mapping[str, str]:
        """Signature texts of cells; StoreError when one is nowhere to be found."""
        texts = {h: partition.texts[h] for h in hashes if h in partition.texts}
        sources: list[Store | PackLookup] = [self.store, *self._packs]
        for source in sources:
            missing = [h for h in hashes if h not in texts]
            if missing:
                texts.update(source.signature_texts(missing))
        for hash_ in hashes:
            if hash_ not in texts:
                raise StoreError(
                    f"the store has lost the text of the cell {hash_}: "
                    "run `hybridlat store check`, or use another store with --store"
                )
        return texts

    @property
    def dispatch_overhead_us(self) -> float:
        """What entering the engine costs once per inference; 0 where it was never measured."""
        entry = self.known([_entry_cost_signature()]).get(_entry_cost_signature())
        return (entry.latency_us or 0.0) if entry is not None else 0.0

    def at_this_state(self, name: str, work_out: Callable[[], T]) -> T:
        """What follows from the store's records, worked out once until there are others."""
        stamp = self._view().stamp
        if stamp is None or stamp != self._stamp:
            targets = (self.target, *self._neighbours)
            state = self.store.targets(), [self.store.revision(target) for target in targets]
            if state != self._state:
                self._at_state.clear()
            self._stamp, self._state = stamp, state
        if name not in self._at_state:
            self._at_state[name] = work_out()
        return cast(T, self._at_state[name])

    def neighbour(self, target: Target) -> TargetData:
        """The look-ups of another target in the same store."""
        if target not in self._neighbours:
            self._neighbours[target] = TargetData(target, self.store)
        return self._neighbours[target]

    def cached(
        self, what: str, form: type[V], work_out: Callable[[], V], besides: object = None
    ) -> V:
        """A value that follows from the target's records, cached in the store for its state.

        ``besides`` is whatever else it depends on, but for the records of related targets.
        """
        count, last = self.store.revision(self.target)
        if not count:
            return work_out()
        revisions = [self.store.revision(target) for target in self.related]
        packs = [(str(pack.folder), pack.info) for pack in self._packs]
        depends = hashlib.sha256(repr((besides, revisions, packs)).encode()).hexdigest()[:16]
        key = f"{what}/{_CACHED_VERSION}/{self.target}/{count}-{last}-{depends}"
        known = self.store.cache_read(key, partial(wire.decode_or_none, form=form))
        if known is not None:
            return known
        made = work_out()
        with contextlib.suppress(StoreError):  # a store that takes nothing: worked out again
            self.store.cache_put(key, json.dumps(asdict(cast(Any, made))))
        return made


def _outweighs(found: LatencyStats, known: LatencyStats | None) -> bool:
    """Whether a later source answers: nothing is known, or only what a busy machine measured."""
    if known is None or found.latency_us is None:
        return known is None
    return found.spread_share < BUSY_SPREAD_SHARE <= known.spread_share


@cache
def _entry_cost_signature() -> str:
    """The signature of the cost of entering the engine."""
    return sign(null_network(1)).hash
