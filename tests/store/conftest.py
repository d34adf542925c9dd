"""Empty stores, on every kind of database that a store is promised to run on."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hybridlat.store import Store
from hybridlat.store.connection import Connection
from hybridlat.store.database import Database
from hybridlat.store.place import StorePlace
from tests import postgres

Execute = Callable[..., Sequence[tuple[Any, ...]]]


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that is not there yet."""
    if request.param == "sqlite":
        (tmp_path / "folder").mkdir()
        return f"sqlite:///{tmp_path / 'folder' / 'store.db'}"
    server: postgres.Server = request.getfixturevalue("server")
    return server.database()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store's file that is not there yet, in a folder of an odd name."""
    (tmp_path / "a:b").mkdir()
    return tmp_path / "a:b" / "12:30:00.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """The store behind ``url``, empty."""
    with Store(url) as opened:
        yield opened


@pytest.fixture
def execute(url: str) -> Execute:
    """Runs a statement on the database behind ``url``, past the store; the rows that it gives."""

    def run(sql: str, **values: object) -> Sequence[tuple[Any, ...]]:
        def work(connection: Connection) -> Sequence[tuple[Any, ...]]:
            if sql.startswith("SELECT"):
                return connection.rows(sql, values)
            connection.change(sql, [values])
            return []

        database = Database(StorePlace(url))
        try:
            return database.write(work)
        finally:
            database.close()

    return run
