"""The cache in a store's database: texts that can be made again, so old ones may go.

Stores written before entries had an age get the columns with the first write; what lies in them
counts as oldest. The table's number stays: older versions read and write the cache as before.
Loads SQLAlchemy.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from hybridlat.store import codec
from hybridlat.store.codec import chunks
from hybridlat.store.database import Database, insert_missing, store_errors
from hybridlat.store.tables import CACHE, CACHE_AGE, CACHE_SCOPE_LENGTH

MAX_ENTRIES = 50_000
MAX_BYTES = 200_000_000
_ROOM = 0.9  # of the bound is what is left when it was passed, so that it is not passed at once


@dataclass(frozen=True, slots=True)
class CacheSweep:
    """What a sweep dropped and what it left; ``file_bytes`` is by how much the file shrank.

    Bytes are those of the texts. Where the space is given back later, or is no file's,
    ``file_bytes`` is None.
    """

    dropped: int = 0
    dropped_bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0
    file_bytes: int | None = None


def scope_of(key: str) -> str:
    """What keys of one kind share: all but the last of the parts between slashes."""
    return key.rpartition("/")[0][:CACHE_SCOPE_LENGTH]


def put(database: Database, key: str, text: str) -> None:
    """Keep a text, dated now; what is there already stays."""
    digest = codec.digest(key)
    size = len(text.encode())
    row: dict[str, object] = {
        "key": digest, "text": text, "scope": scope_of(key), "made_at_s": int(time.time()),
        "size_bytes": size,
    }  # fmt: skip

    def work(connection: sa.Connection) -> None:
        _date(connection, database)
        new = insert_missing(connection, CACHE, "key", {digest: row})
        if new and digest[0] == 0:  # one write in 256 looks, so it may be passed by a little
            _bound(connection)

    database.write(work)


def remove(database: Database, keys: Iterable[str]) -> int:
    """Drop the entries of these keys; how many there were."""
    digests = [codec.digest(key) for key in keys]
    return database.write(lambda connection: _delete(connection, digests)) if digests else 0


def drop_of(connection: sa.Connection, database: Database, target: str, dry_run: bool) -> int:
    """Drop what was cached of a target, in a transaction under way; how many texts."""
    _date(connection, database)
    named = CACHE.c.scope.contains(target, autoescape=True)
    if dry_run:
        count = sa.select(sa.func.count()).select_from(CACHE).where(named)
        return connection.scalar(count) or 0
    return connection.execute(sa.delete(CACHE).where(named)).rowcount


def sweep(
    database: Database,
    *,
    older_than_s: float | None = None,
    max_bytes: int | None = None,
    is_outdated: Callable[[str], bool] = lambda _: False,
    dry_run: bool = False,
) -> CacheSweep:
    """Drop what is older, what ``is_outdated`` says of its scope, and the oldest over a size."""
    before_s = -1 if older_than_s is None else int(time.time() - older_than_s)
    verdicts: dict[str, bool] = {}

    def drops(scope: str, made_at_s: int) -> bool:
        if scope not in verdicts:
            verdicts[scope] = is_outdated(scope)
        return made_at_s < before_s or verdicts[scope]

    def work(connection: sa.Connection) -> CacheSweep:
        _date(connection, database)
        return _drop(connection, drops, max_bytes, None, dry_run)

    done = database.write(work)
    if not done.dropped or dry_run:
        return done
    shrunk = _shrink(database)
    return replace(done, file_bytes=shrunk)


def _date(connection: sa.Connection, database: Database) -> None:
    """Give the columns of an entry's age to a table that was made without them."""
    if database.cache_is_dated:
        return
    there = {column["name"] for column in sa.inspect(connection).get_columns(CACHE.name)}
    missing = [column for column in CACHE.columns if column.name not in there]
    for column in missing:
        clause = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {CACHE.name} ADD COLUMN {clause}")
    if not missing:
        database.cache_is_dated = True
    else:
        connection.execute(sa.update(CACHE).values(size_bytes=sa.func.length(CACHE.c.text)))
        CACHE_AGE.create(connection, checkfirst=True)


def _bound(connection: sa.Connection) -> None:
    held = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(CACHE.c.size_bytes), 0))
    entries, size = connection.execute(held.select_from(CACHE)).one()
    if entries > MAX_ENTRIES or size > MAX_BYTES:
        room = int(_ROOM * MAX_BYTES), int(_ROOM * MAX_ENTRIES)
        _drop(connection, lambda *_: False, *room, dry_run=False)


def _drop(
    connection: sa.Connection,
    drops: Callable[[str, int], bool],
    max_bytes: int | None,
    max_entries: int | None,
    dry_run: bool,
) -> CacheSweep:
    column = CACHE.c
    newest_first = sa.select(column.key, column.scope, column.made_at_s, column.size_bytes)
    newest_first = newest_first.order_by(column.made_at_s.desc(), column.key)
    dropped: list[bytes] = []
    dropped_bytes = kept = kept_bytes = 0
    for key, scope, made_at_s, size in connection.execute(newest_first):
        over = max_bytes is not None and kept_bytes + size > max_bytes
        over = over or (max_entries is not None and kept >= max_entries)
        if over or drops(scope, made_at_s):
            dropped.append(bytes(key))
            dropped_bytes += size
        else:
            kept, kept_bytes = kept + 1, kept_bytes + size
    if not dry_run:
        _delete(connection, dropped)
    return CacheSweep(len(dropped), dropped_bytes, kept, kept_bytes)


def _delete(connection: sa.Connection, digests: list[bytes]) -> int:
    statements = (sa.delete(CACHE).where(CACHE.c.key.in_(part)) for part in chunks(digests))
    return sum(connection.execute(statement).rowcount for statement in statements)


def _shrink(database: Database) -> int | None:
    """Give a SQLite file's empty pages back: by how many bytes; None where others are using it."""
    with store_errors(database.url):
        engine = database.opened()
        if engine.dialect.name != "sqlite" or not engine.url.database:
            return None
        file = Path(engine.url.database)
        if not file.is_file():
            return None
        checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"  # from the journal into the file itself
        raw = engine.raw_connection()
        try:
            cursor = raw.cursor()
            cursor.execute("PRAGMA busy_timeout = 2000")
            cursor.execute(checkpoint)
            before = file.stat().st_size
            cursor.execute("VACUUM")
            (busy, _, _) = cursor.execute(checkpoint).fetchone()
            cursor.close()
            return None if busy else before - file.stat().st_size
        except sqlite3.OperationalError:
            return None
        finally:
            raw.invalidate()  # its waiting time is not that of the others
