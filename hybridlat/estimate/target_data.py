"""Everything that is known of one target: its records, its shipped packs, its model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.estimate.composition import Composition
from hybridlat.estimate.model_folders import (
    model_folders,
    read_composition,
    read_model,
    read_target,
    readable,
)
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.estimate.fallback import Fallback
    from hybridlat.estimate.partition import Partition
    from hybridlat.model.cell_model import CellModel
    from hybridlat.store import LatencyStats, Store
    from hybridlat.store.packs import PackLookup

MAX_REMEMBERED = 200_000
T = TypeVar("T")


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
        self._entry_cost_us: float | None = None
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
        missing = [h for h in wanted if h not in stats]
        sources: list[Store | PackLookup] = [self.store, *self._packs] if missing else []
        for target in (self.target, *self.kin):
            for source in sources if missing else []:
                new = source.latencies(target, missing)
                stats.update(new)
                missing = [h for h in missing if h not in new]
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered.update(stats)
        return stats

    def forget(self, hashes: Iterable[str]) -> None:
        """These were measured just now, and the entry cost perhaps: ask the store again."""
        for hash_ in (*hashes, _entry_cost_signature()):
            self._remembered.pop(hash_, None)
        self._entry_cost_us = None

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
        """The target's composition, else one borrowed, else the plain sum and its entry cost.

        The entry cost of a machine is known from its first measurement on: ask again after one.
        """
        if self._own_composition is not None:
            return self._own_composition
        plain = Composition(overhead_us=self.dispatch_overhead_us)
        if self.borrowed is None:
            return plain
        lender, lent = self.borrowed
        if lender in map(str, self.kin):
            return lent
        return replace(plain, residual_share=lent.residual_share, networks=lent.networks,
                       quantiles=lent.quantiles, levels=lent.levels,
                       confidence=lent.confidence)  # fmt: skip

    @property
    def _folders(self) -> Sequence[Path]:
        return model_folders(self.target) if self._models is None else self._models

    @cached_property
    def _own_composition(self) -> Composition | None:
        return _first(read_composition, self._folders, self.warnings)

    @property
    def has_composition(self) -> bool:
        """Whether constants and width were fitted to whole networks of this very target."""
        return self._own_composition is not None

    @cached_property
    def fallback(self) -> Fallback | None:
        """What answers for cells that the target's own model does not know; see `fallback_for`."""
        from hybridlat.estimate.fallback import fallback_for

        return fallback_for(self.target, self.store, self.model)

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
