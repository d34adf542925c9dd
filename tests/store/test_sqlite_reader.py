"""A store in a SQLite file is read without SQLAlchemy, and says the same as with it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hybridlat.errors import StoreError
from hybridlat.store import Store
from tests.store.records import HASHES, OTHER, TARGET, filled, measured

READS: dict[str, Callable[[Store], object]] = {
    "latencies": lambda store: store.latencies_by_target([TARGET, OTHER], HASHES),
    "networks": lambda store: store.latencies(TARGET, HASHES, "network"),
    "nothing": lambda store: (store.latencies(TARGET, []), store.signature_texts([])),
    "measurements": lambda store: list(store.measurements()),
    "some": lambda store: list(store.measurements(TARGET, "cell", HASHES[0])),
    "recent": lambda store: (store.recent(TARGET), store.recent(TARGET, 1, 1)),
    "count": lambda store: (store.count(TARGET, "cell"), store.count(OTHER, "network")),
    "signatures": lambda store: sorted(store.signatures(TARGET, "cell")),
    "revision": lambda store: (store.revision(TARGET), store.revision(OTHER)),
    "breakdowns": lambda store: list(store.breakdowns()),
    "texts": lambda store: store.signature_texts(["0" * 32, *HASHES]),
    "cache": lambda store: (store.cache_get("key"), store.cache_get("no")),
    "targets": Store.targets,
    "stats": Store.stats,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "it's 100%.db"
    with filled(Store(path)) as store:
        store.cache_put("key", "text")
    return path


@pytest.mark.parametrize("name", READS)
def test_both_ways_give_the_same(path: Path, name: str) -> None:
    with Store(path) as plain, Store(f"sqlite:///{path}?timeout=5") as through_sqlalchemy:
        found = READS[name](plain)
        assert found == READS[name](through_sqlalchemy)
        assert name == "nothing" or found
        assert plain._connections._database is None
        assert through_sqlalchemy._connections._reader is None


def test_reading_loads_no_sqlalchemy(path: Path) -> None:
    code = (
        "import sys\nfrom hybridlat.store import Store\n"
        "from tests.store.test_sqlite_reader import READS\n"
        "for name in [m for m in sys.modules if m.partition('.')[0] == 'sqlalchemy']:\n"
        "    del sys.modules[name]\n"
        f"with Store({str(path)!r}) as store:\n"
        "    for read in READS.values(): read(store)\n"
        "print('sqlalchemy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=dict(os.environ), cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.strip() == "False"


def test_what_is_written_meanwhile_is_read(path: Path) -> None:
    with Store(path) as store, Store(path) as other:
        before = store.count(TARGET, "cell")
        other.add([measured(latency_us=77.0)])
        assert store.count(TARGET, "cell") == before + 1
        store.add([measured(latency_us=78.0)])  # by SQLAlchemy, and read here
        assert store.count(TARGET, "cell") == before + 2


def test_what_is_out_of_order_is_said_as_ever(path: Path) -> None:
    with Store(path) as store:
        assert store.targets()
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE target")
        connection.close()
        with pytest.raises(StoreError, match="no such table"):
            store.targets()
    path.write_bytes(b"this is text, not a database " * 50)
    with Store(path) as store, pytest.raises(StoreError, match="cannot be used"):
        store.targets()


def test_threads_share_a_store(path: Path) -> None:
    found: list[object] = []
    with Store(path) as store:
        expected = store.latencies(TARGET, HASHES)
        threads = [
            threading.Thread(target=lambda: found.append(store.latencies(TARGET, HASHES)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [expected] * 8


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_reads_by_itself(path: Path) -> None:
    with Store(path) as store:
        expected = store.latencies(TARGET, HASHES)
        child = os.fork()
        if child == 0:
            same = store.latencies(TARGET, HASHES) == expected
            os._exit(0 if same and not store._connections._reader.is_inherited else 1)  # type: ignore[union-attr]
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.latencies(TARGET, HASHES) == expected
