"""The store: append-only measurements behind an SQLAlchemy URL, SQLite by default.

Records are never edited or removed, and the same record added twice is stored once. Several
processes may write at once; each call of an ``add`` is one short transaction, so a process that is
killed loses at most the call it was in. SQLAlchemy is loaded when a store is first used, and a
SQLite file that does not exist yet reads as an empty store and is made by the first write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hybridlat.errors import StoreError
from hybridlat.schema.address import without_password
from hybridlat.schema.measurement import Breakdown, Kind, Measurement, id_of
from hybridlat.schema.target import Target
from hybridlat.store import codec
from hybridlat.store.latencies import LatencyStats, TargetStats, aggregate

if TYPE_CHECKING:
    import sqlalchemy as sa

    from hybridlat.store.cache import CacheSweep
    from hybridlat.store.database import Database
    from hybridlat.store.integrity import IntegrityProblem
    from hybridlat.store.pack_io import ImportCounts
    from hybridlat.store.sqlite_reader import SqliteReader


_SETTLED_NS = 200_000_000
_ASKED_UNTIL_LISTED = 16  # look-ups in a cache that does not change, until all its keys are read


def default_url() -> str:
    """``HYBRIDLAT_STORE``, else a SQLite file in the user's data folder."""
    given = os.environ.get("HYBRIDLAT_STORE", "").strip()
    if given:
        return given
    import platformdirs

    folder = platformdirs.user_data_path("hybridlat", appauthor=False)
    return f"sqlite:///{folder / 'store.db'}"


class Store:
    """Measurements, breakdowns and signature texts at ``url``.

    ``url`` is an SQLAlchemy URL or the path of a SQLite file; without one, ``default_url()``.
    Every method raises StoreError, in one sentence, where the database cannot be used.
    """

    def __init__(self, url: str | Path | None = None) -> None:
        text = str(url) if url is not None else default_url()
        self.url = text if ":" in text[2:] else f"sqlite:///{Path(text).expanduser()}"
        self._database: Database | None = None
        self._reader: SqliteReader | None = None
        self._is_odd = False  # what the reader leaves to SQLAlchemy
        self._cache_stamp: object = None
        self._cache_asked = 0
        self._cached: frozenset[bytes] | None = None

    # ---- writing -------------------------------------------------------------------------------

    def add_signatures(self, texts: Mapping[str, str]) -> int:
        """Keep the texts that hashes stand for; how many were new. Those there stay as they are."""
        rows: dict[bytes, dict[str, object]] = {
            codec.key(h): {"hash": codec.key(h), "text": text} for h, text in texts.items()
        }
        return self._insert("SIGNATURE", "hash", rows) if rows else 0

    def add(self, measurements: Iterable[Measurement]) -> int:
        """Append records in one transaction; how many were new. StoreError for an unsound one."""
        records: dict[bytes, Measurement] = {}
        bodies: dict[bytes, dict[str, object]] = {}
        for record in measurements:
            codec.refuse(record.problems(), "measurement")
            text = record.text
            key = codec.key(id_of(text))
            records[key] = record
            bodies[key] = {"id": key, "body": codec.packed(text)}
        if not records:
            return 0
        from hybridlat.store import tables as t
        from hybridlat.store.database import insert_missing

        database = self._opened()

        def work(connection: sa.Connection) -> int:
            new = insert_missing(connection, t.PAYLOAD, "id", bodies)
            targets = sorted({records[key].target for key in new}, key=str)
            ids = {target: database.made_target_id(connection, target) for target in targets}
            rows = [
                {
                    "target_id": ids[m.target],
                    "kind": codec.KIND_CODES[m.kind],
                    "signature": codec.key(m.signature),
                    "id": key,
                    "latency_us": m.latency_us,
                    "spread_share": m.spread_share,
                    "measured_at": m.measured_at[:40],
                    "failure": None if m.failure is None else codec.plain(m.failure),
                }
                for key, m in ((key, records[key]) for key in new)
            ]
            if rows:
                connection.execute(t.MEASUREMENT.insert(), rows)
            return len(rows)

        new = database.write(work)
        database.has_grown(new)
        return new

    def add_breakdowns(self, breakdowns: Iterable[Breakdown]) -> int:
        """Append breakdowns in one transaction; how many were new."""
        by_key = {codec.key(b.id): b for b in breakdowns}
        for item in by_key.values():
            codec.refuse(item.problems(), "breakdown")
        if not by_key:
            return 0
        from hybridlat.store import tables as t
        from hybridlat.store.database import insert_missing

        database = self._opened()
        bodies = {key: codec.packed(b.text) for key, b in by_key.items()}

        def work(connection: sa.Connection) -> int:
            targets = sorted({b.target for b in by_key.values()}, key=str)
            ids = {target: database.made_target_id(connection, target) for target in targets}
            rows: dict[bytes, dict[str, object]] = {
                key: {
                    "id": key,
                    "target_id": ids[b.target],
                    "network": codec.plain(b.network[:255]),
                    "body": bodies[key],
                }
                for key, b in by_key.items()
            }
            return len(insert_missing(connection, t.BREAKDOWN, "id", rows))

        return database.write(work)

    def cache_put(self, key: str, text: str) -> None:
        """Keep ``text`` under ``key`` for later processes; what is there already stays."""
        from hybridlat.store import cache

        cache.put(self._opened(), key, text)

    def cache_remove(self, keys: Iterable[str]) -> int:
        """Drop the texts under ``keys``; how many there were."""
        if self._absent():
            return 0
        from hybridlat.store import cache

        return cache.remove(self._opened(), keys)

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

        if self._absent():
            return cache.CacheSweep()
        return cache.sweep(
            self._opened(),
            older_than_s=older_than_s,
            max_bytes=max_bytes,
            is_outdated=is_outdated,
            dry_run=dry_run,
        )

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
        if not keys or self._absent():
            return {target: {} for target in targets}
        from hybridlat.store import queries

        found = queries.look_up(self._ask, targets, kind, list(keys))
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
        if not self._absent():
            from hybridlat.store import queries

            key = None if signature is None else codec.key(signature)
            for body in queries.measurement_bodies(self._ask, target, kind, key):
                yield codec.decoded(Measurement.from_json, body, self.url)

    def recent(self, target: Target, runs: int = 60, each: int = 12) -> list[Measurement]:
        """Good records of the newest ``runs`` minutes in which there are any, ``each`` of one."""
        if self._absent():
            return []
        from hybridlat.store import queries

        bodies = queries.recent_bodies(self._ask, target, runs, each)
        return [codec.decoded(Measurement.from_json, body, self.url) for body in bodies]

    def count(self, target: Target, kind: Kind) -> int:
        """How many records of this kind there are of a target."""
        if self._absent():
            return 0
        from hybridlat.store import queries

        return queries.count(self._ask, target, kind)

    def signatures(self, target: Target, kind: Kind) -> list[str]:
        """The hashes that there are records of this kind of."""
        if self._absent():
            return []
        from hybridlat.store import queries

        return queries.signatures(self._ask, target, kind)

    def revision(self, target: Target) -> tuple[int, str]:
        """How many records there are of a target, and the time of the newest."""
        if self._absent():
            return 0, ""
        from hybridlat.store import queries

        return queries.revision(self._ask, target)

    def breakdowns(self, target: Target | None = None) -> Iterator[Breakdown]:
        """The breakdowns, in an order that depends on nothing but themselves."""
        if not self._absent():
            from hybridlat.store import queries

            for body in queries.breakdown_bodies(self._ask, target):
                yield codec.decoded(Breakdown.from_json, body, self.url)

    def signature_texts(self, hashes: Iterable[str]) -> dict[str, str]:
        """The texts of those hashes whose text is kept."""
        keys = [codec.key(h) for h in hashes]
        if self._absent():
            return {}
        from hybridlat.store import queries

        return queries.signature_texts(self._ask, keys)

    def cache_get(self, key: str) -> str | None:
        """The text kept under ``key`` by ``cache_put``, else None."""
        if self._absent():
            return None
        from hybridlat.store import queries

        stamp = self.stamp
        if stamp is None or stamp != self._cache_stamp:
            self._cache_stamp, self._cache_asked, self._cached = stamp, 0, None
        if stamp is not None:
            self._cache_asked += 1
            if self._cache_asked == _ASKED_UNTIL_LISTED:
                self._cached = queries.cached_digests(self._ask)
            if self._cached is not None and codec.digest(key) not in self._cached:
                return None
        return queries.cached(self._ask, key)

    def targets(self) -> list[Target]:
        """Targets with records or breakdowns, sorted."""
        if self._absent():
            return []
        from hybridlat.store import queries

        return queries.targets(self._ask)

    def stats(self) -> list[TargetStats]:
        """What the store holds of each target."""
        if self._absent():
            return []
        from hybridlat.store import queries

        return queries.stats(self._ask)

    def check(self) -> list[IntegrityProblem]:
        """Everything that is wrong with the store; an empty list when it is sound."""
        if self._absent():
            return []
        from hybridlat.store import integrity

        return integrity.check_database(self._opened())

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
        self._close_reader()
        self._is_odd = False
        if self._database is not None:
            self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The URL as it may be shown and kept: without a password."""
        return without_password(self.url)

    @property
    def is_in_memory(self) -> bool:
        """Whether no other process sees what is kept here."""
        return self._is_sqlite and self._path in ("", ":memory:")

    @property
    def file(self) -> Path | None:
        """The SQLite file, absolute; None for a database server, and for one in memory."""
        return None if self._named_file is None else self._named_file.absolute()

    @property
    def exists(self) -> bool:
        """False for a SQLite file that nobody made yet."""
        return not self._absent()

    @property
    def stamp(self) -> object:
        """Equal as long as nothing is written, by whatever process; None where only asking tells.

        That is so on a server, and just after a write: files do not tell two of one moment apart.
        """
        if self._named_file is None:
            return None
        found: list[tuple[int, int]] = []
        for path in (self._named_file, self._journal):
            try:
                status = path.stat()
            except OSError:
                found.append((0, 0))
            else:
                # An empty journal holds nothing, though whoever opens the store makes it anew.
                found.append((status.st_mtime_ns, status.st_size) if status.st_size else (0, 0))
        settled = time.time_ns() - max(found)[0] > _SETTLED_NS
        return tuple(found) if settled else None

    @cached_property
    def _journal(self) -> Path:
        """Where SQLite writes first."""
        return Path(f"{self._named_file}-wal")

    def _absent(self) -> bool:
        """True for a SQLite file that nobody made yet: told without loading SQLAlchemy."""
        return self._named_file is not None and not self._named_file.exists()

    @cached_property
    def _named_file(self) -> Path | None:
        """The SQLite file as the URL names it; None where there is none."""
        is_file = self._is_sqlite and not self.is_in_memory and not self._path.startswith("file:")
        return Path(self._path) if is_file else None

    @property
    def _is_sqlite(self) -> bool:
        return self.url.partition(":")[0].partition("+")[0] == "sqlite"

    @property
    def _path(self) -> str:
        return self.url.partition(":///")[2].partition("?")[0]

    def _ask(self, sql: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """The rows of a question of ``queries``."""
        if self._reader is not None and self._reader.is_inherited:
            self._close_reader()
        if self._reader is None and not self._is_odd and self._is_plain_file:
            from hybridlat.store.sqlite_reader import SqliteReader

            self._reader = SqliteReader.of(Path(self._path))
            self._is_odd = self._reader is None
        rows = None if self._reader is None else self._reader.rows(sql, values)
        return self._opened().rows(sql, values) if rows is None else rows

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @property
    def _is_plain_file(self) -> bool:
        """A SQLite file by Python's own driver, without settings of its own."""
        driver, _, path = self.url.partition("://")
        return driver in ("sqlite", "sqlite+pysqlite") and "?" not in path and self.file is not None

    def _opened(self) -> Database:
        if self._database is None:
            from hybridlat.store.database import Database

            self._database = Database(self.url)
        return self._database

    def _insert(self, table: str, key: str, rows: dict[bytes, dict[str, object]]) -> int:
        from hybridlat.store import tables
        from hybridlat.store.database import insert_missing

        chosen = getattr(tables, table)
        return len(self._opened().write(lambda c: insert_missing(c, chosen, key, rows)))
