"""A store on a PostgreSQL server, by psycopg, which the extra ``postgres`` brings."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final

from hybridlat.errors import StoreError
from hybridlat.store.connection import Row, Values, with_lists
from hybridlat.store.place import StorePlace

#: SQL's own states: gone away, collided, restarting, full.
_STATES = ("08", "40", "57P", "53300")
_STARTING = ("starting up", "shutting down", "not yet accepting", "too many clients")
CONNECT_S = 10
_MAKING_TABLES = 0x4C4154  # any number that all of hybridlat takes for this lock


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:  # also a driver that lacks its library
        raise StoreError(
            "a store on PostgreSQL needs the driver package 'psycopg': install it with "
            '`pip install "hybridlat[postgres]"`'
        ) from error
    # What it warns of while a server restarts is tried again, and is no news for a terminal.
    log = logging.getLogger("psycopg")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    return psycopg


def errors() -> tuple[type[Exception], ...]:
    """What the driver raises; StoreError where it is not installed."""
    return (_psycopg().Error,)


def may_pass(error: Exception, was_reached: bool) -> bool:
    """Whether the server restarts, or another process is in the way.

    A server that never answered (not ``was_reached``) is not waited for.
    """
    state: str = getattr(error, "sqlstate", None) or ""
    if was_reached and not state and isinstance(error, _psycopg().OperationalError):
        return True  # no connection to be had, or it broke
    return state.startswith(_STATES) or any(sign in str(error).lower() for sign in _STARTING)


def breaks_connection(error: Exception) -> bool:
    """Whether the connection is of no use any more: all but another process in the way.

    A transaction that a restart interrupts leaves a connection that is not closed, and in which
    no other transaction begins.
    """
    return not (getattr(error, "sqlstate", None) or "").startswith("40")


def connect(place: StorePlace, busy_s: float) -> PostgresConnection:
    """A connection to the server; StoreError where the address is none."""
    psycopg = _psycopg()
    address = re.sub(r"^[a-z+]+://", "postgresql://", place.url)
    # The driver's own limit is over two minutes: a restart takes seconds.
    limit = {} if "connect_timeout" in address else {"connect_timeout": CONNECT_S}
    try:
        return PostgresConnection(psycopg.connect(address, autocommit=True, **limit))
    except psycopg.ProgrammingError as error:  # it quotes the address, which may hold a password
        raise StoreError(
            f"{place.shown!r} is no address of a store: write it like postgresql://user@host/name"
        ) from error


class PostgresConnection:
    """A connection that commits each statement outside of ``transaction``."""

    types: Final = {"number": "SERIAL", "bytes": "BYTEA", "clustered": ""}
    stamp: Final = None

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    @property
    def is_closed(self) -> bool:
        return bool(self._raw.closed)

    def rows(self, sql: str, values: Values) -> list[Row]:
        sql, single = with_lists(sql, values)
        rows: list[Row] = self._raw.execute(_translated(sql), single).fetchall()
        return rows

    def change(self, sql: str, rows: Sequence[Values]) -> int:
        if not rows:
            return 0
        with self._raw.cursor() as cursor:
            cursor.executemany(_translated(sql), rows)
            return int(cursor.rowcount)

    def define(self, sql: str) -> None:
        self._raw.execute(sql)

    def transaction(self) -> AbstractContextManager[object]:
        transaction: AbstractContextManager[object] = self._raw.transaction()
        return transaction

    def lock_tables(self) -> None:
        self._raw.execute(f"SELECT pg_advisory_xact_lock({_MAKING_TABLES})")

    def table_names(self) -> list[str]:
        mine = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        return [str(name) for (name,) in self._raw.execute(mine)]

    def damage(self) -> list[str]:
        """The server says so at every read."""
        return []

    def count_rows(self, names: Sequence[str]) -> None:
        """PostgreSQL skips the tables that the user does not own."""
        self._raw.execute(f"ANALYZE {', '.join(names)}")

    def shrink(self) -> int | None:
        """The server does so by itself."""
        return None

    def close(self) -> None:
        self._raw.close()

    def __del__(self) -> None:
        self._raw.close()  # the driver warns of connections that are left open


@cache
def _translated(sql: str) -> str:
    """The statement with psycopg's names of parameters."""
    return re.sub(r":([a-z_][a-z_0-9]*)", r"%(\1)s", sql)
