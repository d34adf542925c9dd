"""The two ways into a store's database: Python's own SQLite to read plain files, else SQLAlchemy.

Each is opened when first needed, so who only reads a SQLite file never loads SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybridlat.store.database import Database
    from hybridlat.store.place import StorePlace
    from hybridlat.store.sqlite_reader import SqliteReader


class Connections:
    """What is open of the database at ``place``."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._database: Database | None = None
        self._reader: SqliteReader | None = None
        self._is_odd = False  # what the reader leaves to SQLAlchemy

    def ask(self, sql: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """The rows of a question of ``queries``."""
        if self._reader is not None and self._reader.is_inherited:
            self._close_reader()
        if self._reader is None and not self._is_odd:
            file = self._place.plain_file
            if file is not None:
                from hybridlat.store.sqlite_reader import SqliteReader

                self._reader = SqliteReader.of(file)
                self._is_odd = self._reader is None
        rows = None if self._reader is None else self._reader.rows(sql, values)
        return self.database.rows(sql, values) if rows is None else rows

    @property
    def database(self) -> Database:
        """The way by SQLAlchemy, which also writes."""
        if self._database is None:
            from hybridlat.store.database import Database

            self._database = Database(self._place.url)
        return self._database

    def close(self) -> None:
        """Give the connections back; they are opened again when used."""
        self._close_reader()
        self._is_odd = False
        if self._database is not None:
            self._database.close()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
