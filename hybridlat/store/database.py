"""The way to a store's database: its tables, one connection, questions and short transactions.

A look-up must not touch raw samples. So each record is two rows: a compact one in ``measurement``,
clustered by (target, kind, signature), and its whole JSON, compressed, in ``payload``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec

from hybridlat.errors import StoreError
from hybridlat.schema import wire
from hybridlat.store import postgres, sqlite
from hybridlat.store.connection import Connection, Row, Values
from hybridlat.store.place import StorePlace

T = TypeVar("T")

BUSY_S = 60
"""How long a call waits for other writers, and for a server that restarts."""
MANY = 10_000
"""New rows after which a server that has not counted them plans badly."""
SCHEMA = 1
TABLES: Final = (
    "hybridlat_meta", "target", "signature", "measurement", "payload", "breakdown", "cache",
)  # fmt: skip
_DEFINITIONS = """
CREATE TABLE hybridlat_meta (name VARCHAR(64) PRIMARY KEY, value VARCHAR(255) NOT NULL);
CREATE TABLE target (id {number} PRIMARY KEY, name VARCHAR(255) NOT NULL UNIQUE);
CREATE TABLE signature (hash {bytes} NOT NULL PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE measurement (
    target_id INTEGER NOT NULL, kind SMALLINT NOT NULL, signature {bytes} NOT NULL,
    id {bytes} NOT NULL, latency_us DOUBLE PRECISION, spread_share DOUBLE PRECISION NOT NULL,
    measured_at VARCHAR(40) NOT NULL, failure TEXT,
    PRIMARY KEY (target_id, kind, signature, id)
) {clustered};
CREATE TABLE payload (id {bytes} NOT NULL PRIMARY KEY, body {bytes} NOT NULL);
CREATE TABLE breakdown (
    id {bytes} NOT NULL PRIMARY KEY, target_id INTEGER NOT NULL, network VARCHAR(255) NOT NULL,
    body {bytes} NOT NULL
);
CREATE INDEX ix_breakdown_target_id ON breakdown (target_id);
CREATE TABLE cache (
    key {bytes} NOT NULL PRIMARY KEY, text TEXT NOT NULL, scope VARCHAR(255) DEFAULT '' NOT NULL,
    made_at_s BIGINT DEFAULT 0 NOT NULL, size_bytes BIGINT DEFAULT 0 NOT NULL
);
CREATE INDEX cache_age ON cache (made_at_s, size_bytes);
INSERT INTO hybridlat_meta (name, value) VALUES ('schema', '{schema}')
"""
_inherited: list[object] = []


class Database:
    """The database at ``place``, opened when first used and anew after a fork.

    Threads take turns. Errors of the driver come out as StoreError.
    """

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._driver = postgres if place.is_server else sqlite
        self._connection: Connection | None = None
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._was_reached = False
        self._grown = self._counted = 0

    @property
    def shown(self) -> str:
        """What errors call it."""
        return self._place.shown

    @property
    def exists(self) -> bool:
        """False for a SQLite file that is not there yet."""
        return self._place.exists

    def rows(self, sql: str, values: Values | None = None) -> list[Row]:
        """The rows of a question; none where the SQLite file does not exist yet."""
        if not self.exists:
            return []
        return self._run(lambda connection: connection.rows(sql, values or {}))

    def read(self, form: type[T], sql: str, values: Values | None = None) -> list[T]:
        """The rows of a question, each of this form; StoreError where a damaged file has others."""
        try:
            return msgspec.convert(self.rows(sql, values), list[form])  # type: ignore[valid-type]
        except msgspec.ValidationError as error:
            raise StoreError(
                f"the store {self.shown} is damaged: {wire.phrase_of(error)} "
                "(`hybridlat store check` lists all damage)"
            ) from error

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work`` in one transaction, tried again if others got in its way.

        Also if the server went away, even during the commit: ``work`` may find its rows there, and
        must then add nothing.
        """

        def once(connection: Connection) -> T:
            with connection.transaction():
                return work(connection)

        return self._run(once)

    @property
    def stamp(self) -> object:
        """Equal as long as no process writes; None on a server, where only a query tells."""
        return self._run(lambda connection: connection.stamp) if self.exists else "absent"

    def has_grown(self, rows: int) -> None:
        """Have the rows counted after many new ones, and whenever there are twice as many.

        PostgreSQL does so by itself, but a minute or more after a large import; until then it reads
        all records of a target to find three hundred.
        """
        self._grown += rows
        if self._grown >= max(MANY, self._counted):
            self._counted, self._grown = self._counted + self._grown, 0
            self._run(lambda connection: connection.count_rows(TABLES))

    def damage(self) -> list[str]:
        """What is wrong with the database's file."""
        return self._run(lambda connection: connection.damage()) if self.exists else []

    def shrink(self) -> int | None:
        """Give a SQLite file's empty pages back: how many bytes; None where others use it."""
        return self._run(lambda connection: connection.shrink())

    def close(self) -> None:
        """Give the connection back; it is opened again when used."""
        self._leave_to_parent()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _run(self, work: Callable[[Connection], T]) -> T:
        """Run ``work``, again while what keeps it from running may pass."""
        deadline_s = time.monotonic() + BUSY_S
        pause_s = 0.005
        self._leave_to_parent()
        with self._lock, self._store_errors():
            while True:
                try:
                    return work(self._opened())
                except self._driver.errors() as error:
                    passes = self._driver.may_pass(error, self._was_reached)
                    broken = passes and self._driver.breaks_connection(error)
                    if self._connection is not None and (broken or self._connection.is_closed):
                        self._connection.close()
                        self._connection = None
                    if not passes or time.monotonic() > deadline_s:
                        raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.5)

    def _leave_to_parent(self) -> None:
        """After a fork: SQLite's rule is that what was inherited is not even closed."""
        if self._process != os.getpid():
            _inherited.append(self._connection)
            self._connection, self._lock = None, threading.RLock()
            self._process = os.getpid()

    def _opened(self) -> Connection:
        if self._connection is None:
            connection: Connection = self._driver.connect(self._place, BUSY_S)
            self._was_reached = True
            try:
                _make_tables(connection, self._place.shown)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            yield
        except self._driver.errors() as error:
            first = str(error).strip().split("\n")[0]
            if isinstance(error, UnicodeDecodeError):
                first = "it is damaged"
            raise StoreError(
                f"the store {self._place.shown} cannot be used: {first} (give another one with "
                "--store or HYBRIDLAT_STORE, or restore this one from a copy)"
            ) from error


def _make_tables(connection: Connection, store: str) -> None:
    """Make the tables where there are none.

    StoreError, which names ``store``, where the database holds something else or a newer schema.
    """
    if _has_tables(connection, store):
        return
    with connection.transaction():
        connection.lock_tables()
        if not _has_tables(connection, store):  # another process may have been faster
            for statement in _DEFINITIONS.format(**connection.types, schema=SCHEMA).split(";"):
                connection.define(statement)


def _has_tables(connection: Connection, store: str) -> bool:
    names = connection.table_names()
    if TABLES[0] not in names:
        if names:
            raise StoreError(
                f"{store} is a database of something else (it holds "
                f"{', '.join(sorted(names)[:5])}): give a store of its own"
            )
        return False
    rows = connection.rows("SELECT value FROM hybridlat_meta WHERE name = 'schema'", {})
    value = str(rows[0][0]) if rows else ""
    if not value.isdecimal() or int(value) < 1:
        raise StoreError(f"the store {store} is damaged: its schema reads {value!r}")
    if int(value) > SCHEMA:
        raise StoreError(
            f"the store {store} has schema {value}, newer than schema {SCHEMA} that this "
            "version of hybridlat knows: upgrade hybridlat"
        )
    return True
