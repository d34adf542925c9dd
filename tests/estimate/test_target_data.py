"""What is remembered of a store holds until others have written records to it, and no longer."""

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybridlat.estimate.compose import target_composition
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.lookup.target_data import READS_NETWORKS_AT, TargetData
from hybridlat.graph.signature import outline, sign
from hybridlat.schema.measurement import Breakdown, Visit
from hybridlat.store import Store
from tests.networks import conv_relu, residual_block
from tests.store.records import HASHES, TARGET, measured

KNOWN, LATER = HASHES[:2]


@pytest.fixture
def reader(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store.db"))


def test_what_another_writes_is_seen_at_once(reader: Store) -> None:
    data = TargetData(TARGET, reader)
    assert data.known([KNOWN, LATER]) == {} and data.networks == 0
    assert data.whole(KNOWN) is None and target_composition.pace_drift(data).processes == 0
    with Store(reader.url) as writer, reader:
        writer.add([measured(KNOWN)])
        data.refresh()
        assert set(data.known([KNOWN, LATER])) == {KNOWN} and data.networks == 0
        writer.add([measured(LATER), measured(KNOWN, 500.0, kind="network")])
        data.refresh()
        assert set(data.known([KNOWN, LATER])) == {KNOWN, LATER} and data.networks == 1
        whole = data.whole(KNOWN)
        assert whole is not None and whole.latency_us == 500.0
        assert target_composition.pace_drift(data).processes == 1
        visits = (Visit((9.0,), 1.2),) * 4
        runs = [measured(LATER, measured_at=f"2026-03-0{day}") for day in (1, 2)]
        writer.add([replace(run, visits=visits) for run in runs])
        data.refresh()
        assert target_composition.pace_drift(data).processes == 3


def test_breakdowns_that_come_behind_their_records_count(reader: Store) -> None:
    """Those of another process, which is still measuring or importing."""
    data = TargetData(TARGET, reader)
    with Store(reader.url) as writer, reader:
        writer.add([measured(KNOWN), measured(LATER, 11.0, kind="network")])
        data.refresh()
        assert target_composition.composition_of(data).networks == 0
        writer.add_breakdowns([Breakdown(TARGET, "net", LATER, ((KNOWN, 1),))])
        data.refresh()
        assert target_composition.composition_of(data).networks == 1
        assert target_composition.composition_of(TargetData(TARGET, reader)).networks == 1


def test_as_many_other_records_are_seen(reader: Store) -> None:
    """A table without dates in the wrong unit, the mended one, and one that mends a row of it."""
    data = TargetData(TARGET, reader)
    with Store(reader.url) as writer, reader:
        for latency_us in (1e4, 10.0, 12.0):
            writer.forget(TARGET)
            rows = ((KNOWN, latency_us), (LATER, 9.0), (LATER, 13.0))
            writer.add([measured(hash_, us, measured_at="") for hash_, us in rows])
            data.refresh()
            assert data.known([KNOWN])[KNOWN].latency_us == latency_us


def test_of_exports_with_the_same_cells_the_measured_one_answers(reader: Store) -> None:
    """Of the other one only cells were measured; which comes first, their hashes decide."""
    with reader:
        cells = ((KNOWN, 2),)
        for first, second in (HASHES[1:3], HASHES[2:0:-1]):
            target = dataclasses.replace(TARGET, device=f"of-{first[:8]}")
            reader.add([measured(first, 40.0, target=target, kind="network")])
            both = [Breakdown(target, "net", one, cells) for one in (first, second)]
            reader.add_breakdowns(both)
            whole = TargetData(target, reader).of_cells(cells)
            assert whole is not None and whole.latency_us == 40.0


def test_after_some_look_ups_networks_that_are_not_on_record_are_not_signed(reader: Store) -> None:
    known, other = residual_block(), conv_relu()
    data, signature = TargetData(TARGET, reader), sign(known)
    assert not data.may_record(outline(known))
    with reader:
        reader.add_signatures({signature.hash: signature.text})
        reader.add([measured(signature.hash, kind="network")])
        data.refresh()
        for _ in range(READS_NETWORKS_AT):
            assert data.may_record(outline(other))
        assert data.may_record(outline(known)) and not data.may_record(outline(other))
        reader.add([measured(KNOWN, kind="network")])  # of a network whose text no one keeps
        data.refresh()
        for _ in range(READS_NETWORKS_AT + 1):
            assert data.may_record(outline(other))


def test_compositions_follow_what_is_lent(reader: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with reader:
        reader.add([measured(KNOWN), measured(LATER, 25.0, kind="network")])
        shares = []
        for share in (0.01, 0.2):
            lent = Composition(residual_share=share, networks=9)
            pair = "other", lent
            monkeypatch.setattr(target_composition, "lent_composition", lambda _, pair=pair: pair)
            data = TargetData(TARGET, reader)
            shares.append(target_composition.composition_of(data).residual_share)
    assert shares[0] < 0.1 < shares[1]
