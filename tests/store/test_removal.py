"""What a store lets go: cached texts by age and size, records of a target or a time, whole."""

import datetime
import json
import sqlite3
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlat.cli.store import store as command
from hybridlat.schema.measurement import Breakdown
from hybridlat.store import Store, cache
from tests.store.conftest import Execute
from tests.store.records import HASHES, OTHER, TARGET, filled, measured


def cached(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM cache").fetchone()
    connection.close()
    return int(count)


def test_writing_keeps_the_cache_in_bounds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_BYTES", 100)
    most = 0
    with filled(Store(path)) as store:
        for number in range(1500):
            monkeypatch.setattr(time, "time", lambda now=1e9 + number: now)
            store.cache_put({f"a/{number}": "1"})
            most = max(most, cached(path)) if number % 50 == 0 else most
        assert store.cache_read("a/1499", str) == "1"
        assert store.cache_read("a/0", str) is None
        assert len(list(store.measurements())) == 7
    assert 100 <= most < 1300


@given(
    sizes=st.lists(st.integers(1, 50), max_size=12),
    ages=st.lists(st.integers(0, 20), min_size=12, max_size=12),
    limit=st.integers(0, 200),
    age=st.integers(0, 20),
)
@settings(max_examples=50)
def test_sweeps_keep_the_newest(sizes: list[int], ages: list[int], limit: int, age: int) -> None:
    with Store("sqlite://") as store, pytest.MonkeyPatch.context() as patch:
        for number, size in enumerate(sizes):
            patch.setattr(time, "time", lambda made=1000 - ages[number]: made)
            store.cache_put({f"a/{number}": "1" * size})
        patch.setattr(time, "time", lambda: 1000)
        swept = store.cache_sweep(older_than_s=age, max_bytes=limit)
        kept = [n for n in range(len(sizes)) if store.cache_read(f"a/{n}", str) is not None]
    assert all(ages[n] <= age for n in kept)
    assert sum(sizes[n] for n in kept) == swept.kept_bytes <= limit
    assert swept.dropped + swept.kept == len(sizes)


def test_what_is_damaged_goes(path: Path) -> None:
    with filled(Store(path)) as store:
        store.cache_put({f"a/{number}": f'{{"number":{number}}}' for number in range(3)})
        assert store.check() == []
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE cache SET text = '{' WHERE text LIKE '%1}'")
            connection.execute("UPDATE cache SET text = '{\"number\":2]' WHERE text LIKE '%2}'")
        connection.close()
        assert [str(problem).partition(":")[0] for problem in store.check()] == ["cache a"] * 2
        assert store.cache_sweep(dry_run=True).dropped == store.cache_sweep().dropped == 2
        assert store.check() == []
        assert store.cache_read("a/0", str) == '{"number":0}'


def test_the_command(path: Path) -> None:
    with filled(Store(path)) as store:
        store.cache_put({"split/0/key": "1" * 1_000_000, "visit/1/key": "1"})
    before = path.stat().st_size

    def gc(*words: str) -> Result:
        return CliRunner().invoke(command, ["gc", "--store", str(path), *words])

    swept = {"dropped": 2, "dropped_bytes": 1_000_001, "kept": 0, "kept_bytes": 0, "dry_run": True}
    assert json.loads(gc("--max-mb", "0", "--dry-run", "--json").stdout) == swept
    assert cached(path) == 2
    assert "2 cached texts (1.0 MB) dropped, 0 (0.0 MB) kept" in gc("--max-mb", "0").stdout
    assert cached(path) == 0
    assert path.stat().st_size < before - 900_000
    assert "not a duration" in gc("--older-than", "x").stderr


FEBRUARY = datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC)


def test_a_target_is_forgotten_with_what_was_cached_of_it(store: Store, execute: Execute) -> None:
    filled(store)
    store.cache_put({f"wandering/4/{TARGET}/6-2026": "{}", f"wandering/4/{OTHER}/1-2026": "{}"})
    planned = store.forget(TARGET, dry_run=True)
    assert (planned.cells, planned.networks, planned.layers, planned.cached) == (4, 1, 1, 1)
    assert len(list(store.measurements(TARGET))) == planned.records == 6
    assert store.forget(TARGET) == planned
    assert not list(store.measurements(TARGET)) and not list(store.breakdowns(TARGET))
    assert store.targets() == [OTHER] == [row.target for row in store.stats()]
    assert store.cache_read(f"wandering/4/{TARGET}/6-2026", str) is None
    assert store.cache_read(f"wandering/4/{OTHER}/1-2026", str) == "{}"
    assert store.check() == []
    assert [tuple(row) for row in execute("SELECT count(*) FROM payload")] == [(1,)]
    # A network that was never measured whole leaves no more than how it falls into cells.
    store.add_breakdowns([Breakdown(TARGET, "tiny", HASHES[3], ((HASHES[0], 2),))])
    store.forget(TARGET, since=FEBRUARY)
    assert TARGET in store.targets()
    store.forget(TARGET)
    assert TARGET not in store.targets()
    # The same records may come back.
    assert store.add([measured(HASHES[0], 10.0)]) == 1 and TARGET in store.targets()


def test_a_time_is_forgotten_of_all_targets(store: Store) -> None:
    filled(store)
    store.add([measured(HASHES[1], 30.0, measured_at="")])
    dated = {r.id for r in store.measurements() if r.measured_at >= "2026-02"}
    assert store.forget(since=FEBRUARY).records == len(dated) == 1
    assert not dated & {r.id for r in store.measurements()}
    assert len(list(store.breakdowns(TARGET))) == 1
    assert store.forget(until=FEBRUARY).records == 6
    # What has no date goes with its target alone.
    assert [r.measured_at for r in store.measurements()] == [""]
    assert store.forget(OTHER).records == 0


def test_the_command_says_how_many_and_asks(path: Path) -> None:
    filled(Store(path)).close()

    def forget(*words: str, typed: str = "") -> Result:
        return CliRunner().invoke(command, ["forget", "--store", str(path), *words], input=typed)

    assert "say which records" in forget().stderr
    assert "not a time" in forget("--since", "noon").stderr
    assert "no such records" in str(forget("--since", "2030-01-01").exception)
    assert forget("--target", str(TARGET), "--json").exit_code == 2
    asked = forget("--target", str(TARGET))
    assert "6 records (1 of networks, 4 of cells, 1 of layers)" in asked.stdout
    assert asked.exit_code != 0  # without an answer nothing is removed
    assert "nothing was removed" in forget("--target", str(TARGET), typed="n\n").stderr
    done = forget("--target", str(TARGET), "--since", "2026-02-01", "--yes", "--json")
    counts = {"cells": 1, "networks": 0, "layers": 0, "cached": 0, "records": 1}
    assert json.loads(done.stdout) == counts
    done = forget("--target", str(TARGET), "--yes")
    assert done.exit_code == 0 and "5 records" in done.stdout
    with Store(path) as store:
        assert store.targets() == [OTHER]
