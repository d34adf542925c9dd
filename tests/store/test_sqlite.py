"""What only a SQLite file does: changes are noticed, and threads share a store."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hybridlat.errors import StoreError
from hybridlat.store import Store
from tests.store.records import HASHES, TARGET, filled, measured


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "it's 100%?.db"
    filled(Store(path)).close()
    return path


@pytest.mark.parametrize("clock_s", [0.0, 4e9])
def test_the_stamp_changes_with_every_write_and_with_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock_s: float
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: int(clock_s * 1e9))  # the file's clock is another
    path = tmp_path / "store.db"
    with Store(path) as one, Store(path) as other:
        stamps = [one.stamp, one.stamp]
        for writer in (one, other, one, other):
            writer.add([measured(latency_us=float(len(stamps)))])
            stamps += [one.stamp, one.stamp]
        with Store(path) as third:
            third.targets()
        assert one.stamp == stamps[-1] is not None
        assert stamps[::2] == stamps[1::2]
        assert len(set(stamps)) == 5


def test_what_is_out_of_order_is_said(path: Path) -> None:
    with Store(path) as store:
        assert store.targets()
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE target")
        connection.close()
        with pytest.raises(StoreError, match="no such table"):
            store.targets()


def test_threads_share_a_store(path: Path) -> None:
    with Store(path) as store:
        expected = store.latencies(TARGET, HASHES)
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: store.latencies(TARGET, HASHES), range(8)))
    assert found == [expected] * 8


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("UPDATE payload SET body = 3", lambda store: list(store.measurements())),
        ("UPDATE breakdown SET id = 3.5", lambda store: list(store.breakdowns())),
        ("UPDATE signature SET text = x'01'", lambda store: store.signature_texts(HASHES)),
        ("UPDATE measurement SET measured_at = x'01'", lambda store: store.recent(TARGET)),
        ("UPDATE measurement SET spread_share = 'x'", lambda s: s.latencies(TARGET, HASHES)),
    ],
)
def test_a_value_of_another_type_is_damage(
    path: Path, sql: str, read: Callable[[Store], object]
) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(sql)
    connection.close()
    with Store(path) as store, pytest.raises(StoreError, match="is damaged"):
        read(store)
