"""The store: what goes in comes out, once, and a damaged one says so."""

import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hybridlat.errors import StoreError
from hybridlat.schema.measurement import Breakdown, Measurement, Visit
from hybridlat.store import LatencyStats, Store, default_url
from hybridlat.store.database import TABLES
from hybridlat.store.place import without_password
from tests.store.conftest import Execute
from tests.store.records import HASHES, OTHER, TARGET, TEXTS, filled, measured
from tests.strategies import breakdowns, measurements


@given(records=st.lists(measurements(), max_size=6), items=st.lists(breakdowns, max_size=3))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(
    url: str, execute: Execute, records: list[Measurement], items: list[Breakdown]
) -> None:
    with Store(url) as store:
        store.cache_put({"made": "0"})
        for name in TABLES[1:]:
            execute(f"DELETE FROM {name}")
        assert store.add([*records, *records]) == len({r.id for r in records})
        assert store.add(records) == 0
        store.add_breakdowns(items)
        store.add_breakdowns(items)
        by_id = {r.id: r for r in records}
        assert {r.id: r for r in store.measurements()} == by_id
        assert {b.id: b for b in store.breakdowns()} == {b.id: b for b in items}
        for target in store.targets():
            mine = [r.id for r in store.measurements(target)]
            assert sorted(mine) == sorted(r.id for r in by_id.values() if r.target == target)
        for r in records:
            known = store.latencies(r.target, [r.signature], r.kind)[r.signature]
            assert (known.latency_us is None) == (known.failure is not None)
            assert [m.signature for m in store.measurements(r.target, r.kind, r.signature)]
        orphans = [f for f in store.check() if "without text" in f.problem]
        has_hashes = any(r.kind != "network" for r in records)
        assert bool(orphans) == (has_hashes or any(b.cells or b.layers for b in items))


def test_a_file_store_is_made_by_the_first_write(path: Path) -> None:
    store = Store(path)
    assert store.place.file == path
    assert store.latencies(TARGET, HASHES) == {}
    assert not any([store.targets(), store.stats(), store.check(), list(store.measurements())])
    assert store.signature_texts(HASHES) == {}
    assert store.cache_read("k", str) is None
    assert not path.exists()
    store.add([measured()])
    assert path.exists()
    with Store(f"sqlite:///{path}") as again:
        assert again.latencies(TARGET, HASHES) == {HASHES[0]: LatencyStats(10.0, 0.01, 1)}


def test_the_median_of_good_records_wins_else_the_newest_failure(store: Store) -> None:
    store.add([measured(latency_us=v, spread_share=0.001) for v in (10.0, 30.0, 11.0)])
    store.add([measured(latency_us=None, failure="crashed")])
    known = store.latencies(TARGET, [HASHES[0]])[HASHES[0]]
    assert (known.latency_us, known.records, known.failure) == (11.0, 3, None)
    assert known.spread_share == pytest.approx(11.2694 / 11.0 / 3**0.5, rel=1e-3)
    for day in (1, 5, 3, 2, 4):
        at = f"2026-01-0{day}T00:00:00Z"
        store.add([measured(HASHES[1], None, failure=f"day {day}", measured_at=at)])
    assert store.latencies(TARGET, HASHES[1:]) == {HASHES[1]: LatencyStats(None, 0.0, 0, "day 5")}


def test_targets_and_kinds_are_apart(store: Store) -> None:
    filled(store)
    assert store.targets() == [TARGET, OTHER]
    known = store.latencies(TARGET, HASHES)
    assert [known.pop(h).latency_us for h in HASHES[:3]] == [10.5, 20.0, None] and not known
    assert store.latencies(TARGET, HASHES, "network")[HASHES[3]].latency_us == 40.0
    assert store.latencies(TARGET, HASHES, "layer")[HASHES[0]].latency_us == 12.0
    assert store.latencies(OTHER, HASHES)[HASHES[0]].latency_us == 5.0
    assert store.signature_texts(["0" * 32, *HASHES]) == TEXTS
    first, second = store.stats()
    assert (first.target, first.cells, first.networks, first.layers) == (TARGET, 2, 1, 1)
    assert (first.records, first.failures) == (6, 1)
    assert (first.first, first.last) == ("2026-01-02T03:04:05Z", "2026-02-02T00:00:00Z")
    assert (second.target, second.cells, second.records) == (OTHER, 1, 1)
    assert store.revision(TARGET)[:2] == (6, first.last) and store.count(OTHER, "layer") == 0


def test_of_a_minute_the_networks_are_recent(store: Store) -> None:
    of_second = "2026-01-02T03:04:{:02d}Z".format
    store.add(measured(latency_us=float(s), measured_at=of_second(s)) for s in range(20, 40))
    store.add([measured(HASHES[3], 40.0, kind="network", measured_at=of_second(5))])
    kinds = [record.kind for record in store.recent(TARGET, each=3)]
    assert sorted(kinds) == ["cell", "cell", "network"]


def test_the_cache_keeps_the_first_text(url: str) -> None:
    with Store(url) as store:
        store.cache_put({"key": '"text"'})
        store.cache_put({"key": '"other"', "": "[]"})
    with Store(url) as store:
        assert [store.cache_read(k, str) for k in ("key", "", "no")] == ['"text"', "[]", None]
        assert store.check() == []


def test_unsound_records_are_refused(store: Store) -> None:
    for us in (-1.0, float("nan"), None):
        with pytest.raises(StoreError, match="takes no measurement"):
            store.add([measured(), measured(latency_us=us)])
    with pytest.raises(StoreError, match="takes no measurement"):
        store.add([measured(), measured("xyz")])
    for odd in ({"labels": {"batch": 8}}, {"environment": {"clock": 1.5}}, {"measured_at": None}):
        change: dict[str, Any] = odd
        with pytest.raises(StoreError, match=r"in which (labels|environment|measured_at)\S*: exp"):
            store.add([measured(), replace(measured(), **change)])
    with pytest.raises(StoreError, match="takes no breakdown"):
        store.add_breakdowns([Breakdown(TARGET, "n", HASHES[0], ((HASHES[0], 0),))])
    with pytest.raises(StoreError, match="'xyz' is not a signature hash"):
        store.latencies(TARGET, ["xyz"])
    assert list(store.measurements()) == []


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("nonsense://", "nonsense"),
        ("sqlite:///{folder}", "cannot be used"),
        ("sqlite:///{folder}/file.txt/store.db", "file.txt"),
        ("sqlite:///{folder}/file.txt", "file.txt"),
        ("sqlite:///{folder}/no/store.db", "and no folder {folder}/no to make it in"),
        ("{folder}/no/store.db", "and no folder {folder}/no to make it in"),
        ("sqlite:///{folder}/foreign.db", "something else"),
        ("postgresql+nodriver://u:secret@h/db", "no address of a store"),
        ("mysql+mysqldb://u:secret@h/db", "no address of a store"),
        ("/dev/zero", "no regular file"),
        ("a\0b.db", "no address"),
        ("", "'' is no address"),
        *((other, "no address of a store: write a path") for other in (7, b"s.db", ["s.db"])),
    ],
)
def test_what_is_no_store_is_one_sentence(tmp_path: Path, url: Any, named: str) -> None:
    (tmp_path / "file.txt").write_text("this is text, not a database " * 50)
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as connection:
        connection.execute("CREATE TABLE mine (a)")
    with pytest.raises(StoreError) as caught:
        Store(url.format(folder=tmp_path) if isinstance(url, str) else url).add([measured()])
    assert named.format(folder=tmp_path) in str(caught.value)
    assert not (tmp_path / "no").exists()
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_removed_folder_holds_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreError, match=r"store s\.db lay in a folder that was removed"):
        Store("s.db")


@pytest.mark.parametrize(("schema", "words"), [(7, "upgrade hybridlat"), (1, "measure anew")])
def test_another_schema_is_refused(url: str, execute: Execute, schema: int, words: str) -> None:
    filled(Store(url)).close()
    execute(f"UPDATE hybridlat_meta SET value = '{schema}' WHERE name = 'schema'")
    with pytest.raises(StoreError, match=f"schema '{schema}', not 2 as here.*{words}"):
        Store(url).latencies(TARGET, HASHES)


def test_default_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("HYBRIDLAT_STORE", raising=False)
    assert default_url().startswith("sqlite:///")
    if sys.platform == "linux":
        assert Path(default_url().removeprefix("sqlite:///")).parent == tmp_path / "hybridlat"
        assert filled(Store()).targets() and (tmp_path / "hybridlat").is_dir()  # made for it
    monkeypatch.setenv("HYBRIDLAT_STORE", "postgresql+psycopg://h/db")
    assert default_url() == Store().url == "postgresql+psycopg://h/db"


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_opens_its_own_connection(store: Store) -> None:
    filled(store)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.add([measured(latency_us=99.0)])
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.latencies(TARGET, HASHES)[HASHES[0]].records == 3


@pytest.mark.parametrize(
    ("sql", "where", "problem"),
    [
        ("UPDATE signature SET text = text || 'x'", "signature", "hashes to"),
        ("UPDATE signature SET text = 'x'", "signature", "cannot be read"),
        ("DELETE FROM signature", "cell records", "without text"),
        ("UPDATE payload SET body = :zeros", "record", "cannot be unpacked"),
        ("UPDATE measurement SET latency_us = 1", "record", "differs from the record"),
        ("UPDATE measurement SET measured_at = '1999'", "record", "differs from the record"),
        ("UPDATE measurement SET target_id = 77", "record", "differs from the record"),
        ("DELETE FROM measurement", "record", "look-up would find"),
        ("DELETE FROM payload", "record", "raw samples are missing"),
        ("UPDATE breakdown SET body = :zeros", "breakdown", "cannot be unpacked"),
        ("UPDATE breakdown SET id = :zeros", "breakdown", "hashes to"),
    ],
)
def test_check_finds_damage(url: str, execute: Execute, sql: str, where: str, problem: str) -> None:
    with filled(Store(url)) as store:
        assert store.check() == []
    execute(sql, **({"zeros": bytes(16)} if ":zeros" in sql else {}))
    with Store(url) as store:
        problems = store.check()
    assert any(f.where.startswith(where) and problem in f.problem for f in problems), problems


def test_check_doubts_impossible_samples(store: Store) -> None:
    filled(store)
    store.add([replace(measured(), visits=(Visit((-1.0, 20.0)),))])
    store.add([replace(measured(), visits=(Visit((5.0, 6.0)),))])
    store.add([replace(measured(), visits=(Visit((11.0, 12.0)),), overhead_us=500.0)])
    store.add([replace(measured(), measured_at="2199-01-01T00:00:00+00:00")])
    assert {f.problem for f in store.check()} == {
        "a sample is not positive",
        "latency_us 10 is above its slowest sample 6",
        "overhead_us 500 is above its samples, 12",
        "measured_at 2199-01-01T00:00:00+00:00 is ahead of this clock",
    }


def test_a_lasting_error_is_told_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(Store(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON payload BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    monkeypatch.setattr(time, "sleep", pytest.fail)
    with (
        Store(path) as store,
        pytest.raises(StoreError, match=r"cannot be used: full .*from a copy"),
    ):
        store.add([measured(latency_us=77.0)])


def errors(path: Path) -> list[str]:
    """What all reads and a write of a damaged file come to: sentences, and no other error."""
    said = []
    with Store(path) as store:
        for read in (
            lambda: store.latencies(TARGET, HASHES),
            lambda: list(store.measurements()),
            lambda: list(store.breakdowns()),
            lambda: store.signature_texts(HASHES),
            lambda: store.recent(TARGET),
            store.targets,
            store.stats,
            store.check,
            lambda: store.add([measured(latency_us=77.0)]),
        ):
            try:
                read()
            except StoreError as error:
                said.append(str(error))
    return said


@pytest.mark.parametrize(
    "change",
    [
        *("payload SET body = 3", "breakdown SET id = 3.5", "signature SET text = x'01'"),
        *("measurement SET measured_at = x'01'", "measurement SET spread_share = 'x'"),
        *(f"measurement SET latency_us = {us}" for us in ("-5", "0", "1e308", "9e999", "1e11")),
        *(f"measurement SET spread_share = {share}" for share in ("-1", "1e308", "9e999")),
    ],
)
def test_a_value_that_cannot_be_is_damage(path: Path, change: str) -> None:
    filled(Store(path)).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {change}")
    assert any("is damaged" in sentence for sentence in errors(path))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cr@t@host/db", "postgresql://ann@host/db"),
        ("https://ann:secret@tracking:5000", "https://ann@tracking:5000"),
        ("postgresql://h/db?password=secret&user=ann", "postgresql://h/db?password=***&user=ann"),
        ("postgresql://h/db?a=b&sslpassword=secret", "postgresql://h/db?a=b&sslpassword=***"),
        *[(url, url) for url in ("postgresql://ann@host/db?host=/tmp", "sqlite:////da:ta/a@b.db")],
    ],
)
def test_a_password_is_left_out(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_the_stamp_changes_with_every_write_and_with_nothing_else(path: Path) -> None:
    with Store(path) as one, Store(path) as other:
        stamps = [one.stamp, one.stamp]
        for writer in (one, other, one, other):
            writer.add([measured(latency_us=float(len(stamps)))])
            stamps += [one.stamp, one.stamp]
        with Store(path) as third:
            third.targets()
        assert one.stamp == stamps[-1] is not None and stamps[::2] == stamps[1::2]
        assert len(set(stamps)) == 5
