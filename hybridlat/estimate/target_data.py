"""Everything that is known of one target: its records, its shipped packs, its model."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.estimate import machine, wandering
from hybridlat.estimate.agreement import undisturbed
from hybridlat.estimate.composition import Composition
from hybridlat.estimate.measured_outlines import MeasuredOutlines
from hybridlat.estimate.model_folders import (
    model_folders,
    read_composition,
    read_model,
    read_target,
    readable,
)
from hybridlat.estimate.wandering import Wandering
from hybridlat.estimate.whole_networks import WholeLatency, whole_latency
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.estimate.fallback import Fallback
    from hybridlat.estimate.near_targets import NearTarget
    from hybridlat.estimate.partition import Partition
    from hybridlat.model.cell_model import CellModel
    from hybridlat.store import LatencyStats, Store
    from hybridlat.store.packs import PackLookup

MAX_REMEMBERED = 200_000
FEW_NETWORKS = 8
_MACHINE_VERSION = 3  # 1 counted networks that were disturbed, 2 knew of no usual pace
_MOST_NETWORKS = 200
T = TypeVar("T")


@dataclass
class _StoreView:
    """What a store was found to hold of a target, at ``stamp``: see ``Store.stamp``.

    ``unknown`` are cells that nobody has measured, ``networks`` how many records of whole networks
    there are, ``holds_any`` whether there is a record of anything; None before somebody asked.
    """

    stamp: object = None
    unknown: set[str] = field(default_factory=set)
    networks: int | None = None
    holds_any: bool | None = None


class TargetData:
    """Look-ups for one target: remembered, else from the store, else from the shipped packs."""

    def __init__(self, target: Target, store: Store, models: Sequence[Path] | None = None) -> None:
        """``models`` are folders to take the target's model from, else those installed."""
        self.target, self.store = target, store
        self._models = models
        self.kin = registry.kin(target)
        """Targets that share this one's cells: the same machine and engine, files of another
        precision."""
        self._remembered: dict[str, LatencyStats] = {}
        self._seen_store = _StoreView()
        self._entry_cost_us: float | None = None
        self._whole: dict[str, WholeLatency | None] = {}
        self._outlines: tuple[int, MeasuredOutlines | None] | None = None
        self._seen = 0
        self._composition: Composition | None = None
        self._wandering: Wandering | None = None
        self.warnings: list[str] = []
        """What of this target's own model could not be used, and what to do about it."""

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
        self._entry_cost_us = None
        self._whole.clear()
        self._outlines = None
        self._composition = self._wandering = None

    def whole(self, signature: str) -> WholeLatency | None:
        """What is recorded of a whole network, here or on another version; None without any."""
        if not signature:
            return None
        if signature not in self._whole:
            found = self.own_whole(signature)
            if found is None:
                elsewhere = (one.whole(signature) for one in self.near)
                found = next((one for one in elsewhere if one is not None), None)
            if len(self._whole) > MAX_REMEMBERED:
                self._whole.clear()
            self._whole[signature] = found
        return self._whole[signature]

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

    def may_be_measured(self, weight_bytes: int, outlined: Callable[[], str], known: int) -> bool:
        """Whether a network may have been measured whole: False only where that is certain.

        ``known`` is the present count of ``networks``; the outline is only asked for where one
        with weights of that size has been measured.
        """
        if self.near:
            return True  # on another version of the engine, perhaps
        if not known:
            return False
        if self._outlines is None or self._outlines[0] != known:
            self._seen += 1
            if self._seen <= FEW_NETWORKS:
                return True  # to sign so few takes less than to read what was measured
            self._seen, self._outlines = 0, (known, self._measured_outlines())
        outlines = self._outlines[1]
        return outlines is None or outlines.may_hold(weight_bytes, outlined)

    def _measured_outlines(self) -> MeasuredOutlines | None:
        """Outlines of the networks on record; None where one is unknown."""
        found: list[str] = []
        sources: list[tuple[Store | PackLookup, list[str]]] = [
            (self.store, self.store.signatures(self.target, "network"))
        ]
        packs = [pack for pack in self._packs if pack.target == self.target]
        sources += [(pack, pack.signatures("network")) for pack in packs]
        for source, hashes in sources:
            texts = source.signature_texts(hashes)
            if len(texts) < len(set(hashes)):
                return None
            found += texts.values()
        try:
            return MeasuredOutlines(found)
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
        if self._entry_cost_us is None:
            signature = _entry_cost_signature()
            known = self.known([signature])
            self._entry_cost_us = (
                (known[signature].latency_us or 0.0) if signature in known else 0.0
            )
        return self._entry_cost_us

    @property
    def composition(self) -> Composition:
        """The target's composition, else what its whole networks say beside one that is borrowed.

        The machine's own wandering is in it. Both are known from its first measurement on: ask
        again after one.
        """
        if self._composition is None:
            found = self._own_composition or self._kin_composition or self._machine_composition()
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
        if self._wandering is None:
            self._wandering = wandering.from_json(
                self._of_this_revision("wandering", self._newest_wandering)
            )
        return self._wandering

    def _newest_wandering(self) -> Mapping[str, object]:
        paces = wandering.paces_of(self.store.recent(self.target))
        return wandering.to_json(wandering.wandering_of(paces.found(), paces.median_ratio))

    @property
    def _kin_composition(self) -> Composition | None:
        """What the same machine and engine are known by at another precision of the file."""
        if self.borrowed is None or self.borrowed[0] not in map(str, self.kin):
            return None
        return self.borrowed[1]

    def _machine_composition(self) -> Composition:
        lent = None if self.borrowed is None else self.borrowed[1]

        def fitted() -> Mapping[str, object]:
            overhead_us = self.dispatch_overhead_us
            networks = undisturbed(self.summed_networks(), overhead_us, lent)
            return machine.machine_composition(networks, overhead_us, lent).to_json()

        found = Composition.from_json(self._of_this_revision("composition", fitted))
        trained = self._trained_composition
        return found if trained is None else replace(found, correlation=trained.correlation)

    def _of_this_revision(
        self, what: str, work_out: Callable[[], Mapping[str, object]]
    ) -> Mapping[str, Any]:
        """What follows from the store's records, worked out once for each state of the store."""
        count, last = self.store.revision(self.target)
        if not count:
            return work_out()
        key = f"{what}/{_MACHINE_VERSION}/{self.target}/{count}-{last}"
        kept = self.store.cache_get(key)
        if kept is not None:
            body: Mapping[str, Any] = json.loads(kept)
            return body
        found = work_out()
        with contextlib.suppress(StoreError):  # a store that takes nothing: worked out again
            self.store.cache_put(key, json.dumps(found))
        return found

    def summed_networks(self) -> list[machine.SummedNetwork]:
        """Networks in the store that were measured whole and with every cell, 200 at most."""
        breakdowns = {b.signature: b for b in self.store.breakdowns(self.target)}
        whole = self.store.latencies(self.target, breakdowns, "network")
        chosen = [breakdowns[h] for h in sorted(whole) if whole[h].latency_us is not None]
        cells = self.known({h for b in chosen[:_MOST_NETWORKS] for h, _ in b.cells})
        found = []
        for breakdown in chosen[:_MOST_NETWORKS]:
            uses = [(cells[h].latency_us, n) for h, n in breakdown.cells if h in cells]
            latency = self.whole(breakdown.signature)
            if latency is None or not latency.is_exact or len(uses) < len(breakdown.cells):
                continue
            if latency.noise_share > machine.MOST_NOISE_SHARE:
                continue
            if all(us is not None for us, _ in uses):
                sum_us = sum((us or 0.0) * n for us, n in uses)
                found.append(machine.SummedNetwork(latency.latency_us, sum_us))
        return found

    @property
    def is_calibrating(self) -> bool:
        """Whether whole networks are wanted: the machine has too few to compose by its own."""
        return not self.has_composition and self.composition.networks < machine.CALIBRATING

    @property
    def _folders(self) -> Sequence[Path]:
        return model_folders(self.target) if self._models is None else self._models

    @cached_property
    def _trained_composition(self) -> Composition | None:
        return _first(read_composition, self._folders, self.warnings)

    @property
    def _own_composition(self) -> Composition | None:
        """The trained one, unless training had too few networks: those of the store tell more.

        They hold all that are measured afterwards.
        """
        found = self._trained_composition
        return None if found is None or found.networks < machine.CALIBRATING else found

    @property
    def has_composition(self) -> bool:
        """Whether training fitted constants and width to enough networks of this very target."""
        return self._own_composition is not None

    @cached_property
    def near(self) -> tuple[NearTarget, ...]:
        """The same device and engine at other versions and precisions, the surest first."""
        from hybridlat.estimate.near_targets import near_targets

        return near_targets(self.target, self.store)

    @cached_property
    def fallback(self) -> Fallback | None:
        """What answers for cells that the target's own model does not know; see `fallback_for`."""
        from hybridlat.estimate.fallback import fallback_for

        return fallback_for(self.target, self.store, self.model, self.near)

    @cached_property
    def borrowed(self) -> tuple[str, Composition] | None:
        """Whose interval is used where this target has no composition: the same engine's.

        How far the sum of measured cells is from the network depends on the engine and on how
        cells are measured more than on the device, so a sibling's error is the best guess there
        is. Its constants are taken over from files of another precision on the same machine only.
        """
        if self._own_composition is not None:
            return None
        for target in self.kin:
            found = _first(read_composition, model_folders(target), self.warnings)
            if found is not None and found.networks:
                return str(target), found
        for folder in model_folders(None):
            sibling = readable(read_target, folder)
            if sibling is not None and sibling.engine == self.target.engine:
                composition = readable(read_composition, folder)
                if composition is not None and composition.networks:
                    return str(sibling), composition
        return None

    @cached_property
    def model(self) -> CellModel | None:
        """The target's model of unseen cells, the user's own before the one shipped.

        Where it has none, that of files of another precision: it knows the cells that both have,
        and says of the others that it has never seen such operators.
        """
        folders = [self._folders, *(model_folders(target) for target in self.kin)]
        return _first(read_model, [folder for each in folders for folder in each], self.warnings)


@cache
def _entry_cost_signature() -> str:
    """Under which the cost of entering the engine is kept."""
    from hybridlat.graph.reference_networks import null_network
    from hybridlat.graph.signature import sign

    return sign(null_network(1)).hash


def _first(
    read: Callable[[Path], T | None], folders: Sequence[Path], warnings: list[str]
) -> T | None:
    """What is read from the first folder that has it, those that are damaged passed over."""
    for folder in folders:
        value = readable(read, folder, warnings)
        if value is not None:
            return value
    return None
