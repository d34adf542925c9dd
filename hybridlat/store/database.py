"""The way to a store's database: its tables, one connection, questions and short transactions.

A look-up must not touch raw samples. So each record is two rows: a compact one in ``measurement``,
clustered by (target, kind, signature), and its whole JSON, compressed, in ``payload``.
"""

import contextlib
import logging
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from hybridlat.errors import StoreError
from hybridlat.schema.files import decode
from hybridlat.schema.measurement import Kind
from hybridlat.schema.shown import phrase_of
from hybridlat.store.connection import IMMUTABLE, Connection, PostgresConnection, Values
from hybridlat.store.place import StorePlace

T = TypeVar("T")
R = TypeVar("R", bound=tuple[object, ...])

BUSY_S = 60
"""How long a call waits for other writers, and for a server that restarts."""
PAGE = 500
"""Keys of one question: every database takes so many as the values of one ``IN``."""
SCHEMA = 2
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
TABLES: Final = tuple(re.findall(r"CREATE TABLE (\w+)", _DEFINITIONS))
KIND_CODES: Final[dict[Kind, int]] = {"cell": 0, "network": 1, "layer": 2}
_RECORD_BYTES = 64 << 20  # unpacked; the longest are of some 10 kB
_inherited: list[object] = []
_log = logging.getLogger(__name__)


class Database:
    """The database at ``place``, opened when first used and anew after a fork.

    Threads take turns. Errors of the driver come out as StoreError.
    """

    def __init__(self, place: StorePlace) -> None:
        self.place = place
        self._driver = PostgresConnection if place.is_server else Connection
        self._connection: Connection | None = None
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._was_reached = False

    def read(self, form: type[T], sql: str, values: Values | None = None) -> list[T]:
        """The rows of a question, each of this form; none where there is no SQLite file yet."""
        if not self.place.exists:
            return []
        rows = self.run(lambda connection: connection.rows(sql, values or {}))
        try:
            return msgspec.convert(rows, list[form])  # type: ignore[valid-type]
        except msgspec.ValidationError as error:
            raise StoreError(
                f"the store {self.place.shown} is damaged: {phrase_of(error)} "
                "(`hybridlat store check` lists all damage)"
            ) from error

    def keys(self, sql: str, values: Values | None = None) -> list[bytes]:
        return [key for (key,) in self.read(tuple[bytes], sql, values)]

    def paged(self, form: type[R], sql: str, keys: list[bytes]) -> Iterator[R]:
        """The rows that ``sql`` gives for ``:keys``, which stand first in them and order them."""
        for part in batches(keys, PAGE):  # a slow reader, or one that writes, holds up no other
            rows = {row[0]: row for row in self.read(form, sql, {"keys": part})}
            yield from (rows[key] for key in part if key in rows)

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work`` in one transaction, tried again if others got in its way.

        After a lost connection ``work`` may find its rows there, and must then add nothing.
        """

        def once(connection: Connection) -> T:
            if connection.is_read_only:
                raise StoreError(f"{self._unwritable('see above')}: give another one with --store")
            with connection.transaction():
                return work(connection)

        return self.run(once)

    def keep(self, work: Callable[[Connection], int]) -> int:
        """The same, for what can be made again: 0 where the store can only be read."""
        return 0 if self.run(lambda connection: connection.is_read_only) else self.write(work)

    def close(self) -> None:
        self._leave_to_parent()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                if not self.place.exists:
                    words = "the store %s was removed meanwhile, with all that was kept in it"
                    _log.warning(words, self.place.shown)
            self._connection = None

    def run(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``, run again while what keeps it from running may pass."""
        deadline_s = time.monotonic() + BUSY_S
        pause_s = 0.005
        self._leave_to_parent()
        with self._lock:
            while True:
                try:
                    return work(self._opened())
                except self._driver.errors() as error:
                    passes = self._driver.may_pass(error, self._was_reached)
                    # A transaction that a restart interrupts leaves a connection that is not
                    # closed, and in which no other transaction begins.
                    if self.place.is_server and self._connection is not None:
                        self._connection.close()
                        self._connection = None
                    if not passes or time.monotonic() > deadline_s:
                        raise self._unusable(error) from error
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.5)

    def _unusable(self, error: Exception) -> StoreError:
        is_text = not isinstance(error, UnicodeDecodeError)
        first = str(error).strip().split("\n")[0] if is_text else "it is damaged"
        restore = "" if self.place.is_server else ", or restore this one from a copy"
        return StoreError(
            f"the store {self.place.shown} cannot be used: {first} (give another one with "
            f"--store or HYBRIDLAT_STORE{restore})"
        )

    def _leave_to_parent(self) -> None:
        """After a fork: SQLite's rule is that what was inherited is not even closed."""
        if self._process != os.getpid():
            _inherited.append(self._connection)
            self._connection, self._lock = None, threading.RLock()
            self._process = os.getpid()

    def _opened(self) -> Connection:
        """The connection; one that only reads, where that is all that is possible."""
        if self._connection is not None:
            return self._connection
        try:
            self._connection = self._with_tables()
        except self._driver.errors() as error:
            for way in self._driver.ways_to_read(self.place, error):
                with contextlib.suppress(*self._driver.errors()):
                    self._connection = self._with_tables(way)
                    newest = Path(f"{self.place.file}-wal")
                    cut = f"; {newest} is not read" if way == IMMUTABLE and newest.exists() else ""
                    _log.warning("%s: nothing is kept in it%s", self._unwritable(error), cut)
                    return self._connection
            raise
        return self._connection

    def _with_tables(self, read_only: str = "") -> Connection:
        connection = self._driver(self.place, BUSY_S, read_only)
        self._was_reached = True
        try:
            _make_tables(connection, self.place.shown)
        except BaseException:
            connection.close()
            raise
        return connection

    def _unwritable(self, error: object) -> str:
        return f"the store {self.place.shown} can be read and not written ({error})"


def _make_tables(connection: Connection, store: str) -> None:
    if _has_tables(connection, store):
        return
    with connection.transaction():
        connection.rows(connection.lock, {})
        if not _has_tables(connection, store):  # another process may have been faster
            for statement in _DEFINITIONS.format(**connection.types, schema=SCHEMA).split(";"):
                connection.rows(statement, {})


def _has_tables(connection: Connection, store: str) -> bool:
    """Whether a store's tables are there; StoreError for those of something else."""
    names = [str(name) for (name,) in connection.rows(connection.tables, {})]
    if TABLES[0] not in names:
        if names:
            raise StoreError(
                f"{store} is a database of something else (it holds "
                f"{', '.join(sorted(names)[:5])}): give a store of its own"
            )
        return False
    rows = connection.rows("SELECT value FROM hybridlat_meta WHERE name = 'schema'", {})
    value = str(rows[0][0]) if rows else ""
    if value != str(SCHEMA):
        is_newer = value.isdecimal() and int(value) > SCHEMA
        fix = "upgrade hybridlat" if is_newer else "give another one with --store, and measure anew"
        raise StoreError(f"the store {store} has schema {value!r}, not {SCHEMA} as here: {fix}")
    return True


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of up to ``size`` items."""
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part


def key_of(hash_: str) -> bytes:
    """The 16 bytes that a hash is stored as; StoreError for what is no hash."""
    try:
        key = bytes.fromhex(hash_)
    except ValueError:
        key = b""
    if len(key) != 16:
        raise StoreError(f"{hash_[:60]!r} is not a signature hash: it has 32 hex digits")
    return key


def unpacked(body: bytes) -> object:
    """The JSON of a stored record; ValueError where it is damaged."""
    packed = zlib.decompressobj()
    try:
        text = packed.decompress(body, _RECORD_BYTES)
    except zlib.error as error:
        raise ValueError(f"a record cannot be unpacked ({error})") from error
    if not packed.eof:
        raise ValueError(f"a record cannot be unpacked: it is cut, or above {_RECORD_BYTES} bytes")
    return decode(text, object)


def plain(text: str) -> str:
    """A text as every database takes it: PostgreSQL keeps no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
