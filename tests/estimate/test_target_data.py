"""What is remembered of a store holds until somebody writes to it, and no longer."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hybridlat.estimate.composition import Composition
from hybridlat.estimate.target_data import TargetData
from hybridlat.estimate.trained import Trained
from hybridlat.schema.measurement import Visit
from hybridlat.store import Store, cached_texts, place
from tests.store.records import HASHES, TARGET, measured

KNOWN, LATER = HASHES[:2]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(place, "_SETTLED_NS", -1)  # as if every write were long ago
    return Store(str(tmp_path / "store.db"))


def test_what_another_writes_is_seen_at_once(reader: Store) -> None:
    data = TargetData(TARGET, reader)
    assert data.known([KNOWN, LATER]) == {} and data.networks == 0
    with Store(reader.url) as writer, reader:
        writer.add([measured(KNOWN)])
        assert set(data.known([KNOWN, LATER])) == {KNOWN} and data.networks == 0
        writer.add([measured(LATER), measured(HASHES[2], kind="network")])
        assert set(data.known([KNOWN, LATER])) == {KNOWN, LATER} and data.networks == 1


def test_a_network_that_another_process_records_is_seen(reader: Store) -> None:
    data = TargetData(TARGET, reader)
    assert data.whole(KNOWN) is None and data.wandering.processes == 0
    with Store(reader.url) as writer, reader:
        writer.add([measured(KNOWN, 500.0, kind="network")])
        whole = data.whole(KNOWN)
        assert whole is not None and whole.latency_us == 500.0
        runs = [
            replace(
                measured(LATER, measured_at=f"2026-03-0{day}"), visits=(Visit((9.0,), 1.2),) * 4
            )
            for day in (1, 2)
        ]
        writer.add(runs)
        assert data.wandering.processes == 2


def test_a_machines_composition_follows_what_is_lent_to_it(
    reader: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reader:
        reader.add([measured(KNOWN), measured(LATER, 25.0, kind="network")])
        shares = []
        for lent in (0.01, 0.2):
            borrowed = "other", Composition(residual_share=lent, networks=9)
            monkeypatch.setattr(Trained, "borrowed", borrowed)
            shares.append(TargetData(TARGET, reader).composition.residual_share)
    assert shares[0] < 0.1 < shares[1]


def test_a_store_that_does_not_change_is_asked_once(
    reader: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("latencies_by_target", "count", "targets"):
        plain = getattr(Store, name)

        def counted(*given: object, name: str = name, plain: object = plain) -> object:
            asked.append(name)
            assert callable(plain)
            return plain(*given)

        monkeypatch.setattr(Store, name, counted)
    with reader:
        reader.add([measured(KNOWN)])
        data = TargetData(TARGET, reader)
        for _ in range(3):
            assert set(data.known([KNOWN, LATER])) == {KNOWN} and data.networks == 0
    assert asked == ["targets", "latencies_by_target", "count"]


def test_a_fresh_write_is_no_moment_to_remember(tmp_path: Path) -> None:
    with Store(str(tmp_path / "store.db")) as fresh, Store("sqlite://") as in_memory:
        assert fresh.stamp is not None  # not there yet
        fresh.add([measured(KNOWN)])
        assert fresh.stamp is None and in_memory.stamp is None


def test_whoever_opens_a_store_has_not_written_to_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(str(path)) as writer:
        writer.add([measured(KNOWN)])
    long_ago = time.time_ns() - 60_000_000_000
    os.utime(path, ns=(long_ago, long_ago))
    with Store(str(path)) as one, Store(str(path)) as other:
        before = one.stamp
        assert before is not None
        path.with_name("store.db-wal").write_bytes(b"")  # as SQLite does for the first who reads
        assert one.stamp == other.stamp == before
        other.add([measured(LATER)])
        assert one.stamp != before


def test_what_another_caches_is_found_after_many_look_ups(reader: Store) -> None:
    with Store(reader.url) as writer, reader:
        writer.cache_put("scope/0", "zero")
        for number in range(2 * cached_texts.ASKED_UNTIL_LISTED):
            assert reader.cache_get(f"scope/{number + 1}") is None
            assert reader.cache_get("scope/0") == "zero"
        writer.cache_put("scope/1", "one")
        assert reader.cache_get("scope/1") == "one"
