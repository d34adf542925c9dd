"""The way to a store's database: opening, waiting for others, transactions. Loads SQLAlchemy."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc

from hybridlat.errors import StoreError
from hybridlat.schema.target import Target
from hybridlat.store.codec import SCHEMA, chunks
from hybridlat.store.sqlite_reader import CACHE_KIB
from hybridlat.store.tables import META, METADATA, MIGRATIONS, TARGET

T = TypeVar("T")

#: How long one waits for the others, and for a server that restarts, before one gives up.
BUSY_S = 60
MANY = 10_000  # rows, after which a server that has not counted them plans badly
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_EXTRAS = {"psycopg": '"hybridlat[postgres]"'}
_IN_THE_WAY = ("locked", "busy", "already exists")  # SQLite's words
#: SQL's own: gone away, collided, restarting, full, and a table that another process has just made.
_STATES = ("08", "40", "57P", "53300", "42P07")
_STARTING = ("starting up", "shutting down", "not yet accepting", "too many clients")


class Database:
    """Short transactions on one database, opened when first used and anew after a fork."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine: sa.Engine | None = None
        self._process = 0
        self._target_ids: dict[Target, int] = {}
        self.cache_is_dated = False
        self._grown = self._counted = 0

    def opened(self) -> sa.Engine:
        """The engine of this process."""
        if self._engine is None or self._process != os.getpid():
            if self._engine is not None:
                self._engine.dispose(close=False)  # its connections are the parent's
            self._engine = open_engine(self.url)
            self._process = os.getpid()
            self._target_ids = {}
        return self._engine

    def close(self) -> None:
        """Give the connections back."""
        if self._engine is not None and self._process == os.getpid():
            self._engine.dispose()
        self._engine = None

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection for one long look; errors of the database come out as StoreError."""
        engine = self.opened()
        with store_errors(self.url), engine.connect() as connection:
            yield connection

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """The result of ``work``, which only reads; tried again if the server went away."""
        engine = self.opened()

        def once() -> T:
            with engine.connect() as connection:
                return work(connection)

        with store_errors(self.url):
            return _with_patience(once, was_there=True)

    def rows(self, sql: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """The rows of a question of ``queries``."""
        lists = tuple(name for name, value in values.items() if isinstance(value, list))
        statement = _statement(sql, lists)
        return self.read(
            lambda connection: [tuple(row) for row in connection.execute(statement, values)]
        )

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """The result of ``work`` in one transaction, tried again if others got in its way.

        Also if the server went away, even as it was told to commit: ``work`` may find that it has
        been done, and must then do nothing.
        """
        engine = self.opened()

        def once() -> T:
            with (
                engine.connect().execution_options(hybridlat_write=True) as connection,
                connection.begin(),
            ):
                return work(connection)

        with store_errors(self.url):
            return _with_patience(once, was_there=True)

    def has_grown(self, rows: int) -> None:
        """Take note of new rows; after many, and whenever there are twice as many, count them."""
        self._grown += rows
        if self._grown >= max(MANY, self._counted):
            self._counted, self._grown = self._counted + self._grown, 0
            self.count_rows()

    def count_rows(self) -> None:
        """Let a server count what its tables hold: until it has, it may plan as if for a few rows.

        PostgreSQL does so by itself, but a minute or more behind a large import; until then it
        reads all records of a target to find three hundred. It skips what the user does not own.
        """
        if self.opened().dialect.name == "postgresql":  # SQLite takes the index in any case
            names = ", ".join(METADATA.tables)
            self.write(lambda connection: connection.exec_driver_sql(f"ANALYZE {names}"))

    def target_id(self, connection: sa.Connection, target: Target) -> int | None:
        """The number of a target; None where the database does not know it."""
        if target not in self._target_ids:
            number = connection.scalar(sa.select(TARGET.c.id).where(TARGET.c.name == str(target)))
            if number is None:
                return None
            self._target_ids[target] = number
        return self._target_ids[target]

    def made_target_id(self, connection: sa.Connection, target: Target) -> int:
        """The number of a target, given now if it has none. Not remembered: it may roll back."""
        number = self.target_id(connection, target)
        if number is None:
            made = connection.execute(sa.insert(TARGET).values(name=str(target)))
            number = None if made.inserted_primary_key is None else made.inserted_primary_key[0]
            if number is None:
                raise StoreError(f"the store {shown(self.url)} gave the target {target} no number")
        return number


@cache
def _statement(sql: str, lists: tuple[str, ...]) -> sa.TextClause:
    """Made once: building a statement takes longer than asking it."""
    return sa.text(sql).bindparams(*(sa.bindparam(name, expanding=True) for name in lists))


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Turn what SQLAlchemy and drivers raise into a StoreError that names the store."""
    try:
        yield
    except exc.DBAPIError as error:
        first = str(error.orig).strip().split("\n")[0]
        raise StoreError(
            f"the store {shown(url)} cannot be used: {first} (give another one with --store or "
            "HYBRIDLAT_STORE, or restore this one from a copy)"
        ) from error
    except UnicodeDecodeError as error:  # SQLite quotes a damaged schema in its message
        raise StoreError(
            f"the store {shown(url)} cannot be used: it is damaged (give another one with --store "
            "or HYBRIDLAT_STORE, or restore this one from a copy)"
        ) from error
    except exc.SQLAlchemyError as error:
        raise StoreError(
            f"{shown(url)!r} cannot be used as a store: {str(error).splitlines()[0]}"
        ) from error


def shown(url: str) -> str:
    """The address without its password, and a SQLite one as the plain path."""
    try:
        parsed = sa.make_url(url)
    except exc.ArgumentError:
        return re.sub(r"//[^@/]*@", "//***@", url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        return parsed.database
    return parsed.render_as_string(hide_password=True)


def open_engine(url: str) -> sa.Engine:
    """An engine whose database has the tables of this schema; StoreError where that cannot be."""
    with store_errors(url):
        try:
            address = sa.make_url(url)
            name = address.drivername
            engine = sa.create_engine(address.set(drivername=_DRIVERS.get(name, name)))
        except exc.ArgumentError as error:
            raise StoreError(
                f"{shown(url)!r} is no address of a store: write a path, or an SQLAlchemy URL like "
                "sqlite:////data/latency.db or postgresql://user@host/name"
            ) from error
        except ImportError as error:  # also a driver that lacks its library
            package = (error.name or "psycopg").partition(".")[0]
            raise StoreError(
                f"the store {shown(url)} needs the driver package {package!r}: "
                f"install it with `pip install {_EXTRAS.get(package, package)}`"
            ) from error
        if engine.dialect.name == "sqlite":
            _prepare_sqlite(engine)
        try:
            _with_patience(lambda: _prepare(engine, url))
        except BaseException:
            engine.dispose()
            raise
    return engine


def _prepare_sqlite(engine: sa.Engine) -> None:
    database = engine.url.database
    if database and database != ":memory:" and not database.startswith("file:"):
        try:
            Path(database).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the folder of the store {database} cannot be made: {error.strerror}"
            ) from error

    @event.listens_for(engine, "connect")
    def _connect(connection, _record):  # type: ignore[no-untyped-def]
        # Transactions are begun by us (below), so that a writer takes its lock at once and waits
        # its turn: SQLite gives up without waiting when a reader turns into a writer.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")
        cursor.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        with suppress(sqlite3.DatabaseError):  # what cannot be written can still be read
            cursor.execute("PRAGMA journal_mode = WAL")
        # With WAL this survives a killed process; only a power cut may take the last commits.
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("hybridlat_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _prepare(engine: sa.Engine, url: str) -> None:
    """Make the tables, or bring them up from an older schema."""
    with engine.connect() as connection:
        version = _version(connection, url)
    if version == SCHEMA:
        return
    with engine.connect().execution_options(hybridlat_write=True) as connection, connection.begin():
        version = _version(connection, url)  # another process may have been faster
        if version is None:
            METADATA.create_all(connection)
            connection.execute(sa.insert(META).values(name="schema", value=str(SCHEMA)))
            return
        for step in MIGRATIONS[version - 1 : SCHEMA - 1]:
            step(connection)
        connection.execute(sa.update(META).where(META.c.name == "schema").values(value=str(SCHEMA)))


def _version(connection: sa.Connection, url: str) -> int | None:
    """The schema of the database; None where it has none of our tables."""
    names = set(sa.inspect(connection).get_table_names())
    if META.name not in names:
        if names:
            raise StoreError(
                f"{shown(url)} is a database of something else (it holds "
                f"{', '.join(sorted(names)[:5])}): give a store of its own"
            )
        return None
    value = connection.scalar(sa.select(META.c.value).where(META.c.name == "schema"))
    if value is None or not value.isdecimal() or int(value) < 1:
        raise StoreError(f"the store {shown(url)} is damaged: its schema reads {value!r}")
    if int(value) > SCHEMA:
        raise StoreError(
            f"the store {shown(url)} has schema {value}, newer than schema {SCHEMA} that this "
            "version of hybridlat knows: upgrade hybridlat"
        )
    return int(value)


def _with_patience(work: Callable[[], T], was_there: bool = False) -> T:
    """Run ``work`` again while other processes hold the database or make the same rows.

    SQLite answers some collisions (switching to WAL, making the tables) at once instead of waiting,
    and two processes may insert the same record; both are over when tried again. So is the restart
    of a server, but one that never answered (``was_there``) is told of at once.
    """
    deadline = time.monotonic() + BUSY_S
    pause = 0.005
    while True:
        try:
            return work()
        except exc.DBAPIError as error:
            if not _passing(error, was_there) or time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 0.5)


def _passing(error: exc.DBAPIError, was_there: bool) -> bool:
    """Whether trying again may help."""
    if isinstance(error, exc.IntegrityError) or error.connection_invalidated:
        return True
    is_file = isinstance(error.orig, sqlite3.Error)
    if was_there and not is_file and error.statement is None:
        return True  # no connection to be had
    signs: tuple[str, ...] = _IN_THE_WAY if is_file else _STARTING
    words, state = str(error.orig).lower(), getattr(error.orig, "sqlstate", None) or ""
    return state.startswith(_STATES) or any(sign in words for sign in signs)


def insert_missing(
    connection: sa.Connection, table: sa.Table, key: str, rows: dict[bytes, dict[str, object]]
) -> list[bytes]:
    """Insert the rows whose ``key`` is not there yet; the keys that were new.

    In the order of the keys: writers of the same rows then wait for each other in one order, and
    neighbours in an index are written together.
    """
    column = table.c[key]
    ordered = sorted(rows)
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        statement = postgresql.insert(table).on_conflict_do_nothing().returning(column)
        given = [rows[k] for k in ordered]
        return [bytes(k) for k in connection.scalars(statement, given)] if given else []
    known: set[bytes] = set()
    for part in chunks(ordered):
        query = sa.select(column).where(column.in_(part))
        known.update(bytes(k) for k in connection.scalars(query))
    new = [k for k in ordered if k not in known]
    if new:
        connection.execute(sa.insert(table), [rows[k] for k in new])
    return new
