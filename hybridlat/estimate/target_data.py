"""Everything that is known of one target: its records, its shipped packs, what training left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.estimate import machine, own_records
from hybridlat.estimate.agreement import undisturbed
from hybridlat.estimate.composition import Composition
from hybridlat.estimate.trained import Trained
from hybridlat.estimate.wandering import Wandering
from hybridlat.estimate.whole_networks import WholeLatency, whole_latency
from hybridlat.graph.signature_reading import weight_bytes_of
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.estimate.fallback import Fallback
    from hybridlat.estimate.near_targets import NearTarget
    from hybridlat.estimate.partition import Partition
    from hybridlat.store import LatencyStats, Store
    from hybridlat.store.packs import PackLookup

MAX_REMEMBERED = 200_000
FEW_NETWORKS = 50
"""To sign so many takes less than to read what was measured."""


@dataclass
class _StoreView:
    """What a store was found to hold of a target, at ``stamp``: see ``Store.stamp``.

    ``unknown`` are cells that nobody has measured, ``networks`` how many records of whole networks
    there are, ``holds_any`` whether there is a record of anything; None before somebody asked.
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
        self.kin = registry.kin(target)
        """Targets that share this one's cells: the same machine and engine, files of another
        precision."""
        self.trained = Trained(target, self.kin, models)
        self._remembered: dict[str, LatencyStats] = {}
        self._seen_store = _StoreView()
        self._weight_bytes: tuple[int, frozenset[int] | None] | None = None
        self._compared = 0
        self._paced_at: object = None
        self._composition: Composition | None = None
        self._wandering: Wandering | None = None

    @cached_property
    def _packs(self) -> list[PackLookup]:
        from hybridlat.store import packs

        return [pack for target in (self.target, *self.kin) for pack in packs.packs_for(target)]

    def known(self, hashes: Iterable[str]) -> dict[str, LatencyStats]:
        """What is known of each cell; those nobody has measured are left out."""
        wanted = list(dict.fromkeys(hashes))
        stats = {h: self._remembered[h] for h in wanted if h in self._remembered}
        view = self._view()
        missing = [h for h in wanted if h not in stats and h not in view.unknown]
        targets = (self.target, *self.kin) if missing else ()
        stored: Mapping[Target, Mapping[str, LatencyStats]] = {}
        if missing and view.holds_any is None:
            # Asked first only where the answer can be kept: else the look-up itself tells as much.
            held = None if view.stamp is None else self.store.targets()
            view.holds_any = held is None or not set(targets).isdisjoint(held)
        if missing and view.holds_any:
            stored = self.store.latencies_by_target(targets, missing)
        for target in targets:
            packs = [pack for pack in self._packs if pack.target == target]
            shipped = [pack.latencies(target, missing) for pack in packs]
            for new in (stored.get(target, {}), *shipped):
                stats.update((h, found) for h, found in new.items() if h not in stats)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.clear()
        if len(view.unknown) > MAX_REMEMBERED:
            view.unknown.clear()
        self._remembered.update(stats)
        view.unknown.update([h for h in missing if h not in stats])
        return stats

    def _view(self) -> _StoreView:
        """What the store was found to hold since the last write to it; new after one."""
        stamp = self.store.stamp
        if stamp is None or stamp != self._seen_store.stamp:
            self._seen_store = _StoreView(stamp)
        return self._seen_store

    def forget(self, hashes: Iterable[str]) -> None:
        """These were measured just now, and the entry cost perhaps: ask the store again."""
        for hash_ in (*hashes, _entry_cost_signature()):
            self._remembered.pop(hash_, None)
        self._seen_store.whole.clear()
        self._weight_bytes = None
        self._composition = self._wandering = None

    def whole(self, signature: str) -> WholeLatency | None:
        """What is recorded of a whole network, here or on another version; None without any."""
        if not signature:
            return None
        known = self._view().whole
        if signature not in known:
            found = self.own_whole(signature)
            if found is None:
                elsewhere = (one.whole(signature) for one in self.near)
                found = next((one for one in elsewhere if one is not None), None)
            if len(known) > MAX_REMEMBERED:
                known.clear()
            known[signature] = found
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

    def whole_of(self, partition: Partition) -> WholeLatency | None:
        """``whole`` for a network, which is not signed where no record can be of it."""
        network = partition.network
        if network is not None and not self._may_be_measured(network.weight_bytes):
            return None
        return self.whole(partition.whole)

    def _may_be_measured(self, weight_bytes: int) -> bool:
        """Whether a network with so many bytes of weights may have been measured whole."""
        if self.near:
            return True  # on another version of the engine, perhaps
        networks = self.networks
        if not networks:
            return False
        if self._weight_bytes is None or self._weight_bytes[0] != networks:
            self._compared += 1
            if self._compared <= FEW_NETWORKS:
                return True
            self._compared, self._weight_bytes = 0, (networks, self._measured_weight_bytes())
        measured = self._weight_bytes[1]
        return measured is None or weight_bytes in measured

    def _measured_weight_bytes(self) -> frozenset[int] | None:
        """Bytes of weights of the networks on record; None where they are unknown for one."""
        found: list[str] = []
        packs = [pack for pack in self._packs if pack.target == self.target]
        sources: list[tuple[Store | PackLookup, list[str]]] = [
            (self.store, self.store.signatures(self.target, "network")),
            *[(pack, pack.signatures("network")) for pack in packs],
        ]
        for source, hashes in sources:
            texts = source.signature_texts(hashes)
            if len(texts) < len(set(hashes)):
                return None
            found += texts.values()
        try:
            return frozenset(map(weight_bytes_of, found))
        except ValueError:  # of a later format
            return None

    def own_whole(self, signature: str) -> WholeLatency | None:
        """What is recorded of a whole network on this very target; None where nothing is."""
        return whole_latency(self.target, signature, self.store, self._packs)

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

    @property
    def composition(self) -> Composition:
        """The target's composition, else what its whole networks say beside one that is borrowed.

        The machine's own wandering is in it. Both are known from its first measurement on: ask
        again after one.
        """
        self._forget_old_pace()
        if self._composition is None:
            trained = self.trained
            found = trained.composition or trained.kin_composition or self._machine_composition()
            self._composition = self.on_this_machine(found)
        return self._composition

    def on_this_machine(self, composition: Composition) -> Composition:
        """A composition with what the machine's own records say of its pace, if there are any."""
        found = self.wandering
        if not found.processes:
            return composition
        return replace(composition, wander_share=found.share, shown_ratio=found.shown_ratio)

    @property
    def wandering(self) -> Wandering:
        """How the machine's own pace wanders, as its newest records tell it."""
        self._forget_old_pace()
        if self._wandering is None:
            self._wandering = own_records.newest_wandering(self.store, self.target)
        return self._wandering

    def _forget_old_pace(self) -> None:
        """What the machine's own records say is worked out anew once there are others."""
        state = self._view().stamp or self.store.revision(self.target)
        if state != self._paced_at:
            self._paced_at, self._composition, self._wandering = state, None, None

    def _machine_composition(self) -> Composition:
        borrowed = self.trained.borrowed
        lent = None if borrowed is None else borrowed[1]

        def fitted() -> Composition:
            overhead_us = self.dispatch_overhead_us
            networks = undisturbed(self.summed_networks(), overhead_us, lent)
            return machine.machine_composition(networks, overhead_us, lent)

        revisions = [self.store.revision(target) for target in self.kin]
        packs = [(str(pack.folder), pack.info) for pack in self._packs]
        lending = None if lent is None else lent.to_json()
        found = own_records.of_this_revision(
            self.store, self.target, "composition", Composition, fitted,
            (lending, revisions, packs),
        )  # fmt: skip
        trained = self.trained.fitted
        return found if trained is None else replace(found, correlation=trained.correlation)

    def summed_networks(self) -> list[machine.SummedNetwork]:
        """Networks in the store that were measured whole and with every cell, 200 at most."""
        return own_records.summed_networks(self.store, self.target, self.known, self.whole)

    @property
    def is_calibrating(self) -> bool:
        """Whether whole networks are wanted: the machine has too few to compose by its own."""
        return not self.trained.has_composition and self.composition.networks < machine.CALIBRATING

    @cached_property
    def near(self) -> tuple[NearTarget, ...]:
        """The same device and engine at other versions and precisions, the surest first."""
        from hybridlat.estimate.near_targets import near_targets

        return near_targets(self.target, self.store)

    @cached_property
    def fallback(self) -> Fallback | None:
        """What answers for cells that the target's own model does not know; see `fallback_for`."""
        from hybridlat.estimate.fallback import fallback_for

        return fallback_for(self.target, self.store, self.trained.model, self.near)


@cache
def _entry_cost_signature() -> str:
    """Under which the cost of entering the engine is kept."""
    from hybridlat.graph.reference_networks import null_network
    from hybridlat.graph.signature import sign

    return sign(null_network(1)).hash
