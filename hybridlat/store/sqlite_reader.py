"""Reading a store in a SQLite file through Python's own module: what most answers need.

SQLAlchemy takes a quarter of a second to load, which is longer than looking a network up. It
opens, migrates and writes; it also reads whatever is not in order, and says what is wrong.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hybridlat.store.codec import SCHEMA

CACHE_KIB = 65_536
"""Of a connection. Hashes come in any order: what a large store's index cannot keep here is read
for each."""
_PATIENCE_S = 1.0  # with who changes the file; who waits longer does so through SQLAlchemy
_inherited: list[SqliteReader] = []


class SqliteReader:
    """A connection to a store's file that only reads, each question by itself."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._process = os.getpid()

    @classmethod
    def of(cls, file: Path) -> SqliteReader | None:
        """The reader of a store of the present schema; None for anything else."""
        connection = None
        try:
            connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=_PATIENCE_S,
                isolation_level=None, check_same_thread=False,
            )  # fmt: skip
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            schema = "SELECT value FROM hybridlat_meta WHERE name = 'schema'"
            if connection.execute(schema).fetchall() == [(str(SCHEMA),)]:
                return cls(connection)
        except (sqlite3.Error, UnicodeDecodeError):
            pass
        if connection is not None:
            connection.close()
        return None

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the one that opened it, which alone may use it."""
        return self._process != os.getpid()

    def rows(self, sql: str, values: Mapping[str, object]) -> list[tuple[Any, ...]] | None:
        """The rows of a question of ``queries``; None where SQLite cannot answer it."""
        asked: dict[str, object] = {}
        for name, value in values.items():
            if isinstance(value, list):
                items = {f"{name}_{number}": item for number, item in enumerate(value)}
                sql = sql.replace(f"IN :{name}", f"IN ({', '.join(f':{item}' for item in items)})")
                asked.update(items)
            else:
                asked[name] = value
        try:
            with self._lock:
                return self._connection.execute(sql, asked).fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            return None

    def close(self) -> None:
        """Give the connection back, or leave it to the process that opened it."""
        if self.is_inherited:
            _inherited.append(self)  # SQLite's rule: what was forked is not even closed
        else:
            self._connection.close()
