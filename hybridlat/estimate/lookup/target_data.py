"""The look-ups of one target: its records in the store and in shipped packs, its models."""

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.estimate.lookup import models as folders
from hybridlat.estimate.lookup import whole_networks
from hybridlat.estimate.lookup.named_target import recorded
from hybridlat.graph.builder import null_network
from hybridlat.graph.signature import sign
from hybridlat.graph.signature import text_outline as outline
from hybridlat.model.cell_model import CellModel
from hybridlat.model.model_files import user_models_folder
from hybridlat.schema.files import all_readable, decode_or_none
from hybridlat.schema.measurement import BUSY_SPREAD_SHARE, Kind
from hybridlat.schema.target import Target, version_key
from hybridlat.store import LatencyStats, Store, packs
from hybridlat.store.packs import PackLookup

MAX_REMEMBERED = 200_000
RecordSource = Store | PackLookup
T = TypeVar("T")
_CACHED_VERSION = 7
_ENTRY_COST = sign(null_network(1)).hash
_OWN_CELLS = 50  # so many measured here tell more than a pack
READS_NETWORKS_AT = 32
"""Networks that are signed to be looked up before all that is on record is read. That takes as long
as to sign 50 or so, and whoever has 32 candidates has hundreds."""


class TargetData:
    """Look-ups for one target, remembered until ``refresh`` finds other records in the store.

    With ``models``, folders of its model, nothing that is installed counts, no packs either.
    Another machine of this name may have measured what is shipped: that is ``elsewhere`` then.
    """

    def __init__(self, target: Target, store: Store, models: Sequence[Path] | None = None) -> None:
        self.target, self.store = target, store
        self.elsewhere: TargetData | None = None
        self.related = registry.same_cell_targets(target)
        """Targets that share this one's cells: files of another precision."""
        self._is_installed = models is None
        self.model_folders = folders.model_folders(target) if models is None else models
        self.model_warnings: list[str] = []
        """Sentences about models that cannot be used."""
        self.user_networks: Mapping[str, whole_networks.MeasuredNetwork] = {}
        """Networks by hash whose latency the user gave: they go before all records."""
        self.is_replayed = False
        """Whether a CUDA graph launches the kernels, whatever was measured."""
        self._at_state: dict[object, object] = {}
        self._state: tuple[list[Target], Sequence[object]] | None = None
        self._stamp: object = None
        self._neighbours: dict[Target, TargetData] = {}

    def refresh(self) -> None:
        """Forget all look-ups if the store has other records of the targets now."""
        stamp = self.store.stamp
        if stamp is None or stamp != self._stamp:
            targets = (self.target, *self.related, *self._neighbours)
            state = self.store.targets(), [self.store.revision(target) for target in targets]
            if state != self._state:
                self._at_state.clear()
            self._stamp, self._state = stamp, state
            for neighbour in self._neighbours.values():
                neighbour.refresh()

    @property
    def model(self) -> CellModel | None:
        """The model of unseen cells: the target's own, else that of a related target."""
        return self._model[1] if self._model else None

    @property
    def model_is_related(self) -> bool:
        """Whether it learned from files of another precision."""
        return self._model is not None and self._model[0] not in self.model_folders

    @cached_property
    def model_hash(self) -> str:
        return folders.model_hash(self._model[0]) if self._model else ""

    @cached_property
    def _model(self) -> tuple[Path, CellModel] | None:
        peers = self.related if self._is_installed else ()
        related = [folder for target in peers for folder in folders.model_folders(target)]

        def read(folder: Path) -> tuple[Path, CellModel]:
            return folder, folders.read_model(folder)

        return next(all_readable(read, [*self.model_folders, *related], self.model_warnings), None)

    @cached_property
    def _packs(self) -> list[PackLookup]:
        if not self._is_installed:
            return []
        return [pack for target in (self.target, *self.related) for pack in packs.packs_for(target)]

    def known(self, hashes: Iterable[str]) -> dict[str, LatencyStats]:
        known = self.at_this_state("known", dict[str, LatencyStats | None])
        if len(known) > MAX_REMEMBERED:
            known.clear()
        distinct = dict.fromkeys(hashes)
        if missing := [h for h in distinct if h not in known]:
            known |= self._look_up(missing)
        return {h: stats for h in distinct if (stats := known[h]) is not None}

    def _look_up(self, hashes: Sequence[str]) -> dict[str, LatencyStats | None]:
        targets, held = (self.target, *self.related), self._state[0] if self._state else []
        stored: Mapping[Target, Mapping[str, LatencyStats]] = {}
        if not set(targets).isdisjoint(held):
            stored = self.store.latencies_by_target(targets, hashes)
        stats: dict[str, LatencyStats] = {}
        for target in targets:
            shipped = [pack.latencies(target, hashes) for pack in self._packs]
            for new in (stored.get(target, {}), *shipped):
                stats |= {h: s for h, s in new.items() if _outweighs(s, stats.get(h))}
        return {h: stats.get(h) for h in hashes}

    def whole(self, signature: str) -> whole_networks.WholeLatency | None:
        """The network as it was measured on this very target, or as the user gave it."""
        if (one := self.user_networks.get(signature)) and one.target == self.target:
            noise = whole_networks.UNSTATED_NOISE_SHARE
            return whole_networks.WholeLatency(one.latency_us, noise, True, "as given")
        return self.recorded(signature)

    def recorded(self, signature: str) -> whole_networks.WholeLatency | None:
        """The same by records alone."""
        return self.at_this_state(
            ("network", signature),
            lambda: whole_networks.whole_latency(self.target, signature, self.store, self._packs),
        )

    def of_cells(self, cells: Iterable[tuple[str, int]]) -> whole_networks.WholeLatency | None:
        """A network of the same cells, each as often, as it was measured: another export of one."""
        key = frozenset(cells)
        for signature, one in self.user_networks.items():
            if key == frozenset(zip(one.cells, one.counts, strict=True)):
                return self.whole(signature)
        alike = self.at_this_state("cells", self._by_cells).get(key, ())
        each = filter(None, map(self.recorded, alike))
        surest = min(each, key=lambda one: (not one.is_exact, one.noise_share), default=None)
        return surest and replace(surest, basis=f"{surest.basis}, in another export")

    def _by_cells(self) -> Mapping[object, Sequence[str]]:
        """The networks that are kept of the target, measured or not, by their cells."""
        sources: list[RecordSource] = [self.store, *self._packs]
        index: dict[object, list[str]] = {}
        for one in itertools.chain(*[source.breakdowns(self.target) for source in sources]):
            index.setdefault(frozenset(one.cells), []).append(one.signature)
        return index

    def may_record(self, outline_: str) -> bool:
        """Whether a network of this outline may be on record. From some on what is gets read."""
        if self.user_networks or not self.networks:
            return bool(self.user_networks)
        look_ups = self.at_this_state("look-ups", itertools.count)
        if next(look_ups) < READS_NETWORKS_AT:
            return True
        outlines = self.at_this_state("outlines", self._outlines)
        return outlines is None or not outline_ or outline_ in outlines

    def _outlines(self) -> frozenset[str] | None:
        """Outlines of the networks on record; None where not all of their texts can be read."""
        shipped = [p.signatures("network") for p in self._packs if p.target == self.target]
        hashes = set(self.store.signatures(self.target, "network")).union(*shipped)
        texts = signature_texts((self.store, *self._packs), hashes)
        try:
            return frozenset(map(outline, texts.values())) if len(texts) == len(hashes) else None
        except ValueError:
            return None

    @property
    def networks(self) -> int:
        shipped = sum(p.counts()["network"] for p in self._packs if p.target == self.target)
        return shipped + self._count("network")

    @property
    def is_of_another_machine(self) -> bool:
        """Whether what is shipped of the target outweighs what this machine has measured."""
        return bool(self._packs) and self._count("cell") < _OWN_CELLS

    def _count(self, kind: Kind) -> int:
        return self.at_this_state(kind, lambda: self.store.count(self.target, kind))

    @property
    def dispatch_overhead_us(self) -> float:
        """The cost of entering the engine, once per inference; 0 where it was never measured."""
        known = self.known([_ENTRY_COST]).values()
        return next((entry.latency_us or 0.0 for entry in known), 0.0)

    def at_this_state(self, name: object, work_out: Callable[[], T]) -> T:
        """A value that follows from the store's records, worked out once until they change."""
        if self._state is None:
            self.refresh()
        if name not in self._at_state:
            if len(self._at_state) > MAX_REMEMBERED:
                self._at_state.clear()
            self._at_state[name] = work_out()
        return cast(T, self._at_state[name])

    def doubted(self) -> "TargetData | None":
        """The look-ups if packs are of another machine; None without packs."""
        if not self._packs:
            return None
        own = [f for f in self.model_folders if f.is_relative_to(user_models_folder())]
        data = TargetData(self.target, self.store, own)
        data.elsewhere = TargetData(self.target, Store("sqlite://"))
        return data

    def neighbour(self, target: Target) -> "TargetData":
        if target not in self._neighbours:
            self._neighbours[target] = TargetData(target, self.store)
        return self._neighbours[target]

    @property
    def other_versions(self) -> "list[TargetData]":
        """The look-ups of another machine of this name, then of other versions, nearest first."""
        others = [o for o in relatives_of(self) if o.precision in self.precisions]
        nearest = {other.runtime: other for other in reversed(others)}
        each = sorted(nearest.values(), key=others.index)
        return [*filter(None, [self.elsewhere]), *map(self.neighbour, each)]

    @property
    def precisions(self) -> set[str]:
        """Those under which the engine runs the same cells, the target's own among them."""
        return {target.precision for target in (self.target, *self.related)}

    def cached(
        self, what: str, form: type[T], work_out: Callable[[], T], besides: object = None
    ) -> T:
        """A value that follows from the target's records, cached in the store for their state.

        ``besides`` is all else that it depends on, but for the records of related targets.
        """
        revisions = [self.store.revision(target) for target in (self.target, *self.related)]
        count, last, *_ = revisions[0]
        if not count:
            return work_out()
        packs = [(str(pack.folder), pack.info) for pack in self._packs]
        depends = hashlib.sha256(repr((besides, revisions, packs)).encode()).hexdigest()[:16]
        key = f"{what}/{_CACHED_VERSION}/{self.target}/{count}-{last}-{depends}"
        known = self.store.cache_read(key, partial(decode_or_none, form=form))
        if known is not None:
            return known
        made = work_out()
        with contextlib.suppress(StoreError):  # a store that takes nothing: worked out again
            self.store.cache_put({key: msgspec.json.encode(made).decode()})
        return made


def signature_texts(sources: Sequence[RecordSource], hashes: set[str]) -> dict[str, str]:
    """Signature texts by hash, from the first source that keeps each."""
    texts: dict[str, str] = {}
    for source in sources:
        if missing := hashes.difference(texts):
            texts.update(source.signature_texts(missing))
    return texts


def per_state(work_out: Callable[[TargetData], T]) -> Callable[[TargetData], T]:
    """Decorates a function of a target's records: it runs once until there are others."""

    @wraps(work_out)
    def remembered(data: TargetData) -> T:
        return data.at_this_state(work_out, lambda: work_out(data))

    return remembered


@per_state
def relatives_of(data: TargetData) -> tuple[Target, ...]:
    """Recorded versions and precisions of a target's engine on its device, the nearest first.

    Precisions that share its cells are none of them.
    """
    here, known = data.target, sorted(recorded(data.store) - {data.target, *data.related})
    place = here.device, here.engine, here.threads
    alike = [o for o in known if (o.device, o.engine, o.threads) == place]
    alike.sort(key=lambda o: (o.precision != here.precision, version_gap(o, here)))
    return tuple(alike)


def version_gap(one: Target, other: Target) -> tuple[int, ...]:
    """The distance of two targets' versions, by each of their numbers."""
    numbers = itertools.zip_longest(*map(version_key, (one.version, other.version)), fillvalue=0)
    return tuple(abs(a - b) for a, b in numbers)


def _outweighs(new: LatencyStats, known: LatencyStats | None) -> bool:
    """Whether a later source answers: before it there is nothing, a failure, or a busy machine."""
    if known is None or new.latency_us is None:
        return known is None
    is_steadier = new.spread_share < BUSY_SPREAD_SHARE <= known.spread_share
    return is_steadier or known.latency_us is None
