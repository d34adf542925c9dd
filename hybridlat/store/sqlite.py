"""A store in a SQLite file, or in memory, by Python's own driver."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from hybridlat.errors import StoreError
from hybridlat.store.connection import Row, Values, with_lists
from hybridlat.store.place import StorePlace

CACHE_KIB = 65_536
"""Of a connection. Hashes come in any order: what a large store's index cannot keep here is read
for each."""
_SHRINKING_WAITS_MS = 2000
_numbers = itertools.count()


def errors() -> tuple[type[Exception], ...]:
    """What the driver raises; it quotes a damaged schema, which then is no text."""
    return sqlite3.Error, UnicodeDecodeError


def may_pass(error: Exception, was_reached: bool) -> bool:
    """Whether another process is in the way: SQLite answers some collisions without waiting."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def breaks_connection(error: Exception) -> bool:
    """Whether the connection is of no use any more: a file's never is."""
    del error
    return False


def connect(place: StorePlace, busy_s: float) -> SqliteConnection:
    """A connection to the file, which is made where it does not exist yet."""
    if place.file is not None:
        try:
            place.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the folder of the store {place.shown} cannot be made: {error.strerror}"
            ) from error
    raw = sqlite3.connect(
        place.file or ":memory:", timeout=busy_s, isolation_level=None, check_same_thread=False
    )
    try:
        return SqliteConnection(raw, place.file, busy_s)
    except BaseException:
        raw.close()
        raise


class SqliteConnection:
    """A connection that begins transactions itself.

    A writer takes its lock at once and waits its turn: SQLite gives up without waiting when a
    reader turns into a writer.
    """

    types: Final = {"number": "INTEGER", "bytes": "BLOB", "clustered": "WITHOUT ROWID"}
    is_closed: Final = False

    def __init__(self, raw: sqlite3.Connection, file: Path | None, busy_s: float) -> None:
        self._raw, self._file, self._busy_ms = raw, file, round(busy_s * 1000)
        self._number = next(_numbers)
        raw.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        with suppress(sqlite3.DatabaseError):  # what cannot be written can still be read
            raw.execute("PRAGMA journal_mode = WAL")
        # With WAL this survives a killed process; only a power cut may take the last commits.
        raw.execute("PRAGMA synchronous = NORMAL")

    @property
    def stamp(self) -> object:
        """The version that others' writes change, and the number of own ones."""
        ((version,),) = self._raw.execute("PRAGMA data_version").fetchall()
        return self._number, version, self._raw.total_changes

    def rows(self, sql: str, values: Values) -> list[Row]:
        return self._raw.execute(*with_lists(sql, values)).fetchall()

    def change(self, sql: str, rows: Sequence[Values]) -> int:
        return self._raw.executemany(sql, rows).rowcount if rows else 0

    def define(self, sql: str) -> None:
        self._raw.execute(sql)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._raw.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._raw.execute("COMMIT")
        except BaseException:
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
            raise

    def lock_tables(self) -> None:
        """The transaction has the whole file."""

    def table_names(self) -> list[str]:
        named = self._raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return [name for (name,) in named if not name.startswith("sqlite_")]

    def damage(self) -> list[str]:
        lines = [str(line) for (line,) in self._raw.execute("PRAGMA integrity_check")]
        return [line for line in lines if line != "ok"]

    def count_rows(self, names: Sequence[str]) -> None:
        """SQLite takes the index in any case."""

    def shrink(self) -> int | None:
        if self._file is None:
            return None
        checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"  # from the journal into the file itself
        try:
            self._raw.execute(f"PRAGMA busy_timeout = {_SHRINKING_WAITS_MS}")
            self._raw.execute(checkpoint).fetchall()
            before = self._file.stat().st_size
            self._raw.execute("VACUUM")
            ((busy, _, _),) = self._raw.execute(checkpoint).fetchall()
            return None if busy else before - self._file.stat().st_size
        except sqlite3.OperationalError:
            return None
        finally:
            self._raw.execute(f"PRAGMA busy_timeout = {self._busy_ms}")

    def close(self) -> None:
        self._raw.close()

    def __del__(self) -> None:
        self._raw.close()  # the driver warns of connections that are left open
