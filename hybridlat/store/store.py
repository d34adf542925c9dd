"""The store: append-only measurements in a SQLite file, or on a PostgreSQL server.

Records are never edited, and removed only by ``forget``; the same record added twice is stored
once. Several processes may write at once; each call of an ``add`` is one short transaction, so a
process that is killed loses at most the call it was in. A SQLite file that does not exist yet reads
as an empty store and is made by the first write.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from hybridlat.errors import StoreError
from hybridlat.schema.measurement import Breakdown, Kind, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import cache, changes, codec, exchange, integrity, queries
from hybridlat.store.cache import CacheSweep
from hybridlat.store.changes import Removal
from hybridlat.store.database import Database
from hybridlat.store.exchange import ImportCounts
from hybridlat.store.integrity import IntegrityProblem
from hybridlat.store.latencies import LatencyStats, TargetStats, aggregate
from hybridlat.store.place import StorePlace, default_url

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Store:
    """Measurements, breakdowns and signature texts at ``url``.

    ``url`` is the path of a SQLite file, ``sqlite:///PATH`` or ``postgresql://USER@HOST/NAME``;
    without one, ``default_url()``. StoreError for another URL, and from every method, in one
    sentence, where the database cannot be used.
    """

    def __init__(self, url: str | Path | None = None) -> None:
        self._place = StorePlace(default_url() if url is None else url)
        self.url = self._place.url
        self._database = Database(self._place)

    # ---- writing -------------------------------------------------------------------------------

    def add_signatures(self, texts: Mapping[str, str]) -> int:
        """Keep the texts that hashes stand for; how many were new. Those there stay as they are."""
        return changes.add_signatures(self._database, texts)

    def add(self, measurements: Iterable[Measurement]) -> int:
        """Append records in one transaction; how many were new. StoreError for an unsound one."""
        return changes.add_measurements(self._database, measurements)

    def add_breakdowns(self, breakdowns: Iterable[Breakdown]) -> int:
        """Append breakdowns in one transaction; how many were new."""
        return changes.add_breakdowns(self._database, breakdowns)

    def cache_put(self, key: str, text: str) -> None:
        """Keep a JSON document under ``key`` for later processes; what is there already stays."""
        cache.put(self._database, key, text)

    def cache_remove(self, keys: Iterable[str]) -> int:
        """Drop the documents under ``keys``; how many there were."""
        return cache.remove(self._database, keys) if self.exists else 0

    def cache_sweep(
        self,
        *,
        older_than_s: float | None = None,
        max_bytes: int | None = None,
        is_outdated: Callable[[str], bool] = lambda _: False,
        dry_run: bool = False,
    ) -> CacheSweep:
        """Drop cached documents that are no longer useful, and give their space back.

        Dropped are damaged ones, those older than ``older_than_s``, those of whose scope (their key
        without its last part) ``is_outdated`` says so, and the oldest over ``max_bytes``. With
        ``dry_run`` nothing is, and the answer says what would be. Records all stay.
        """
        if not self.exists:
            return CacheSweep()
        return cache.sweep(
            self._database,
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
        if not self.exists:
            return Removal()
        targets = self.targets() if target is None else [target]
        return changes.remove_records(self._database, targets, since, until, dry_run)

    # ---- reading -------------------------------------------------------------------------------

    def latencies(
        self, target: Target, hashes: Iterable[str], kind: Kind = "cell"
    ) -> dict[str, LatencyStats]:
        """What is known of each hash; a hash without a record is left out."""
        return self.latencies_by_target([target], hashes, kind)[target]

    def latencies_by_target(
        self, targets: Sequence[Target], hashes: Iterable[str], kind: Kind = "cell"
    ) -> dict[Target, dict[str, LatencyStats]]:
        """The same for several targets at once."""
        keys = {codec.key(h): h for h in hashes}
        rows = queries.look_up(self._database, targets, kind, list(keys))
        return {
            target: {keys[key]: aggregate(rows_of_key) for key, rows_of_key in rows_of.items()}
            for target, rows_of in rows.items()
        }

    def measurements(
        self,
        target: Target | None = None,
        kind: Kind | None = None,
        signature: str | None = None,
    ) -> Iterator[Measurement]:
        """The records, in an order that depends on nothing but themselves."""
        return queries.measurements(self._database, target, kind, signature)

    def recent(self, target: Target, runs: int = 60, each: int = 12) -> list[Measurement]:
        """Good records of the newest ``runs`` minutes in which there are any, ``each`` of one."""
        return queries.recent(self._database, target, runs, each)

    def count(self, target: Target, kind: Kind) -> int:
        """How many records of this kind there are of a target."""
        values = {"target": str(target), "kind": codec.KIND_CODES[kind]}
        rows = self._database.rows(f"SELECT count(*) {queries.OF_TARGET} AND kind = :kind", values)
        return int(rows[0][0]) if rows else 0

    def signatures(self, target: Target, kind: Kind) -> list[str]:
        """The hashes that there are records of this kind of."""
        values = {"target": str(target), "kind": codec.KIND_CODES[kind]}
        sql = f"SELECT DISTINCT signature {queries.OF_TARGET} AND kind = :kind"
        return [key.hex() for (key,) in self._database.read(tuple[bytes], sql, values)]

    def revision(self, target: Target) -> tuple[int, str]:
        """How many records there are of a target, and the time of the newest."""
        sql = f"SELECT count(*), max(measured_at) {queries.OF_TARGET}"
        rows = self._database.rows(sql, {"target": str(target)})
        return (int(rows[0][0]), str(rows[0][1] or "")) if rows else (0, "")

    def breakdowns(self, target: Target | None = None) -> Iterator[Breakdown]:
        """The breakdowns, in an order that depends on nothing but themselves."""
        return queries.breakdowns(self._database, target)

    def signature_texts(self, hashes: Iterable[str]) -> dict[str, str]:
        """The texts of those hashes that have one."""
        return queries.signature_texts(self._database, [codec.key(h) for h in hashes])

    def cache_get(self, key: str) -> str | None:
        """The document that ``cache_put`` stored under ``key``, else None.

        It may be damaged: ``wire.decode_or_none`` reads it.
        """
        return cache.get(self._database, key)

    def cache_read(self, key: str, read: Callable[[str], T | None]) -> T | None:
        """What ``read`` makes of the document under ``key``; None where there is none.

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
        return queries.targets(self._database)

    def stats(self) -> list[TargetStats]:
        """What the store holds of each target."""
        return queries.stats(self._database)

    def check(self) -> list[IntegrityProblem]:
        """Everything that is wrong with the store; an empty list when it is sound."""
        return integrity.check_database(self._database)

    # ---- packs ---------------------------------------------------------------------------------

    def export(
        self,
        folder: str | Path,
        target: Target | None = None,
        *,
        format: exchange.Form = "jsonl",
        source: str = "",
        licence: str = "",
    ) -> list[Path]:
        """Write one pack per target (or of ``target``) below ``folder``; the packs' folders.

        ``source`` and ``licence`` say where the records come from. Parquet needs pyarrow
        (MissingExtra).
        """
        return exchange.export(
            self._database, Path(folder), target, format, source=source, licence=licence
        )

    def import_(self, path: str | Path) -> ImportCounts:
        """Add all records of a pack folder, a .jsonl[.gz] or a .parquet file, once each."""
        return exchange.import_into(self._database, Path(path))

    # ---- plumbing ------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the connection back; the store opens itself again when used."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The URL without its password, as it may be shown."""
        return self._place.address

    @property
    def is_in_memory(self) -> bool:
        """Whether the store lives in memory, which no other process sees."""
        return self._place.is_in_memory

    @property
    def file(self) -> Path | None:
        """The SQLite file, absolute; None for a database server, and for one in memory."""
        return self._place.file

    @property
    def exists(self) -> bool:
        """False for a SQLite file that is not there yet."""
        return self._place.exists

    @property
    def stamp(self) -> object:
        """Equal as long as no process writes; None on a server, where only a query tells."""
        return self._database.stamp
