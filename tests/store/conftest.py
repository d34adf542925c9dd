"""Empty stores, on every kind of database that a store is promised to run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hybridlat.store import Store
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
        return f"sqlite:///{tmp_path / 'folder' / 'store.db'}"
    server: postgres.Server = request.getfixturevalue("server")
    return server.database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """The store behind ``url``, empty."""
    with Store(url) as opened:
        yield opened


@pytest.fixture
def execute(url: str) -> Execute:
    """Runs a statement on the database behind ``url``, past the store; the rows that it gives."""

    def run(sql: str, **values: object) -> Sequence[tuple[Any, ...]]:
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            result = connection.execute(sa.text(sql), values)
            rows = [tuple(row) for row in result] if result.returns_rows else []
        engine.dispose()
        return rows

    return run
