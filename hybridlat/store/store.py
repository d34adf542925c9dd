"""The store: append-only measurements behind an SQLAlchemy URL, SQLite by default.

Records are never edited, and removed only by ``forget``; the same record added twice is stored
once. Several processes may write at once; each call of an ``add`` is one short transaction, so a
process that is killed loses at most the call it was in. SQLAlchemy is loaded when a store is first
used, and a SQLite file that does not exist yet reads as an empty store and is made by the first
write.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from hybridlat.errors import StoreError
from hybridlat.schema.measurement import Breakdown, Kind, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import codec
from hybridlat.store.cached_texts import CachedTexts
from hybridlat.store.connections import Connections
from hybridlat.store.latencies import LatencyStats, TargetStats, aggregate
from hybridlat.store.place import StorePlace, default_url

if TYPE_CHECKING:
    from hybridlat.store.cache import CacheSweep
    from hybridlat.store.integrity import IntegrityProblem
    from hybridlat.store.pack_io import ImportCounts
    from hybridlat.store.removal import Removal

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Store:
    """Measurements, breakdowns and signature texts at ``url``.

    ``url`` is an SQLAlchemy URL or the path of a SQLite file; without one, ``default_url()``.
    Every method raises StoreError, in one sentence, where the database cannot be used.
    """

    def __init__(self, url: str | Path | None = None) -> None:
        self._place = StorePlace(default_url() if url is None else url)
        self.url = self._place.url
        self._connections = Connections(self._place)
        self._cached = CachedTexts(self._place, self._connections.ask)

    # ---- writing -------------------------------------------------------------------------------

    def add_signatures(self, texts: Mapping[str, str]) -> int:
        """Keep the texts that hashes stand for; how many were new. Those there stay as they are."""
        if not texts:
            return 0
        from hybridlat.store import inserts

        return inserts.add_signatures(self._connections.database, texts)

    def add(self, measurements: Iterable[Measurement]) -> int:
        """Append records in one transaction; how many were new. StoreError for an unsound one."""
        records = list(measurements)
        if not records:
            return 0
        from hybridlat.store import inserts

        return inserts.add_measurements(self._connections.database, records)

    def add_breakdowns(self, breakdowns: Iterable[Breakdown]) -> int:
        """Append breakdowns in one transaction; how many were new."""
        items = list(breakdowns)
        if not items:
            return 0
        from hybridlat.store import inserts

        return inserts.add_breakdowns(self._connections.database, items)

    def cache_put(self, key: str, text: str) -> None:
        """Keep ``text`` under ``key`` for later processes; what is there already stays."""
        from hybridlat.store import cache

        cache.put(self._connections.database, key, text)

    def cache_remove(self, keys: Iterable[str]) -> int:
        """Drop the texts under ``keys``; how many there were."""
        if not self._place.exists:
            return 0
        from hybridlat.store import cache

        return cache.remove(self._connections.database, keys)

    def cache_sweep(
        self,
        *,
        older_than_s: float | None = None,
        max_bytes: int | None = None,
        is_outdated: Callable[[str], bool] = lambda _: False,
        dry_run: bool = False,
    ) -> CacheSweep:
        """Drop cached texts that nobody will miss, and give their space back; records all stay.

        Dropped are those older than ``older_than_s``, those of whose scope (their key without its
        last part) ``is_outdated`` says so, and the oldest over ``max_bytes``. With ``dry_run``
        nothing is, and the answer says what would be.
        """
        from hybridlat.store import cache

        if not self._place.exists:
            return cache.CacheSweep()
        return cache.sweep(
            self._connections.database,
            older_than_s=older_than_s,
            max_bytes=max_bytes,
            is_outdated=is_outdated,
            dry_run=dry_run,
        )

    def forget(
        self,
        target: Target | None = None,
        since: datetime.datetime | None = None,
        until: datetime.datetime | None = None,
        *,
        dry_run: bool = False,
    ) -> Removal:
        """Remove records of a target, or of all, measured from ``since`` to before ``until``.

        What was cached of these targets goes too. With ``dry_run`` nothing does, and the answer
        says what would.
        """
        from hybridlat.store import removal

        if not self._place.exists:
            return removal.Removal()
        targets = self.targets() if target is None else [target]
        return removal.remove(self._connections.database, targets, since, until, dry_run)

    # ---- reading -------------------------------------------------------------------------------

    def latencies(
        self, target: Target, hashes: Iterable[str], kind: Kind = "cell"
    ) -> dict[str, LatencyStats]:
        """What is known of each hash; a hash without a record is left out."""
        return self.latencies_by_target([target], hashes, kind)[target]

    def latencies_by_target(
        self, targets: Sequence[Target], hashes: Iterable[str], kind: Kind = "cell"
    ) -> dict[Target, dict[str, LatencyStats]]:
        """The same for several targets, asked for at once."""
        keys = {codec.key(h): h for h in hashes}
        if not keys or not self._place.exists:
            return {target: {} for target in targets}
        from hybridlat.store import queries

        found = queries.look_up(self._connections.ask, targets, kind, list(keys))
        return {
            target: {keys[key]: aggregate(rows) for key, rows in rows_of.items()}
            for target, rows_of in found.items()
        }

    def measurements(
        self,
        target: Target | None = None,
        kind: Kind | None = None,
        signature: str | None = None,
    ) -> Iterator[Measurement]:
        """The records, in an order that depends on nothing but themselves."""
        if self._place.exists:
            from hybridlat.store import queries

            key = None if signature is None else codec.key(signature)
            for body in queries.measurement_bodies(self._connections.ask, target, kind, key):
                yield codec.decoded(Measurement.from_json, body, self.url)

    def recent(self, target: Target, runs: int = 60, each: int = 12) -> list[Measurement]:
        """Good records of the newest ``runs`` minutes in which there are any, ``each`` of one."""
        if not self._place.exists:
            return []
        from hybridlat.store import queries

        bodies = queries.recent_bodies(self._connections.ask, target, runs, each)
        return [codec.decoded(Measurement.from_json, body, self.url) for body in bodies]

    def count(self, target: Target, kind: Kind) -> int:
        """How many records of this kind there are of a target."""
        if not self._place.exists:
            return 0
        from hybridlat.store import queries

        return queries.count(self._connections.ask, target, kind)

    def signatures(self, target: Target, kind: Kind) -> list[str]:
        """The hashes that there are records of this kind of."""
        if not self._place.exists:
            return []
        from hybridlat.store import queries

        return queries.signatures(self._connections.ask, target, kind)

    def revision(self, target: Target) -> tuple[int, str]:
        """How many records there are of a target, and the time of the newest."""
        if not self._place.exists:
            return 0, ""
        from hybridlat.store import queries

        return queries.revision(self._connections.ask, target)

    def breakdowns(self, target: Target | None = None) -> Iterator[Breakdown]:
        """The breakdowns, in an order that depends on nothing but themselves."""
        if self._place.exists:
            from hybridlat.store import queries

            for body in queries.breakdown_bodies(self._connections.ask, target):
                yield codec.decoded(Breakdown.from_json, body, self.url)

    def signature_texts(self, hashes: Iterable[str]) -> dict[str, str]:
        """The texts of those hashes whose text is kept."""
        keys = [codec.key(h) for h in hashes]
        if not self._place.exists:
            return {}
        from hybridlat.store import queries

        return queries.signature_texts(self._connections.ask, keys)

    def cache_get(self, key: str) -> str | None:
        """The text kept under ``key`` by ``cache_put``, else None."""
        return self._cached.get(key)

    def cache_read(self, key: str, read: Callable[[str], T | None]) -> T | None:
        """What ``read`` makes of the text kept under ``key``; None where there is none.

        One of which it makes None is damaged, and is removed so that it can be made again.
        """
        text = self.cache_get(key)
        document = None if text is None else read(text)
        if text is not None and document is None:
            _log.warning("a damaged entry of the cache is made again: %s", key)
            with contextlib.suppress(StoreError):  # a store that takes nothing
                self.cache_remove([key])
        return document

    def targets(self) -> list[Target]:
        """Targets with records or breakdowns, sorted."""
        if not self._place.exists:
            return []
        from hybridlat.store import queries

        return queries.targets(self._connections.ask)

    def stats(self) -> list[TargetStats]:
        """What the store holds of each target."""
        if not self._place.exists:
            return []
        from hybridlat.store import queries

        return queries.stats(self._connections.ask)

    def check(self) -> list[IntegrityProblem]:
        """Everything that is wrong with the store; an empty list when it is sound."""
        if not self._place.exists:
            return []
        from hybridlat.store import integrity

        return integrity.check_database(self._connections.database)

    # ---- packs ---------------------------------------------------------------------------------

    def export(
        self,
        folder: str | Path,
        target: Target | None = None,
        *,
        format: Literal["jsonl", "parquet"] = "jsonl",
        source: str = "",
        licence: str = "",
    ) -> list[Path]:
        """Write one pack per target (or of ``target``) below ``folder``; the packs' folders.

        ``source`` and ``licence`` say where the records come from. Parquet needs pyarrow
        (MissingExtra).
        """
        from hybridlat.store import pack_io

        held = self.targets()
        if target is not None and target not in held:
            known = ", ".join(map(str, held)) or "none at all"
            raise StoreError(f"the store has no records of {target}: it has {known}")
        return [
            pack_io.write_pack(
                self, item, Path(folder) / item.folder, format, source=source, licence=licence
            )
            for item in ([target] if target is not None else held)
        ]

    def import_(self, path: str | Path) -> ImportCounts:
        """Add all records of a pack folder, a .jsonl[.gz] or a .parquet file, once each."""
        from hybridlat.store import pack_io

        return pack_io.import_into(self, Path(path))

    # ---- plumbing ------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the connections back; the store opens itself again when used."""
        self._connections.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The URL as it may be shown and kept: without a password."""
        return self._place.address

    @property
    def is_in_memory(self) -> bool:
        """Whether no other process sees what is kept here."""
        return self._place.is_in_memory

    @property
    def file(self) -> Path | None:
        """The SQLite file, absolute; None for a database server, and for one in memory."""
        return self._place.file

    @property
    def exists(self) -> bool:
        """False for a SQLite file that nobody made yet."""
        return self._place.exists

    @property
    def stamp(self) -> object:
        """Equal as long as nothing is written, by whatever process; None where only asking tells.

        That is so on a server, and just after a write: files do not tell two of one moment apart.
        """
        return self._place.stamp
