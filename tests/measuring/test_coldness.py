"""How cold cells are on a machine: found from sums against wholes, written down, and kept to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring import coldness, isolated
from hybridlat.measuring.coldness import (
    FACTORS,
    LEAST_NETWORKS,
    Coldness,
    Sample,
    best_factor,
    find_coldness,
    judged,
    known_coldness,
)
from hybridlat.measuring.isolated import Job, MeasurementConfig
from hybridlat.measuring.messages import VisitTask
from hybridlat.measuring.process import MeasuringProcess
from hybridlat.measuring.schedule import replicas_for
from hybridlat.store import Store
from tests.fakes.fake_backend import FakeBackend, Machine
from tests.networks import Builder

QUICK = MeasurementConfig(
    rounds=1, processes=1, max_processes=1, visit_ms=1.0, network_visit_ms=1.0
)


def conv(channels: int) -> Network:
    net = Builder(f"conv{channels}")
    return net.network(net.conv(net.input((1, channels, 14, 14)), channels))


def sample(channels: int) -> Sample:
    network = conv(channels)
    return Sample(f"conv{channels}", network, ((network, 1),))


SAMPLES = [sample(8 * (1 + i)) for i in range(LEAST_NETWORKS)]


def visits(off_by: tuple[float, float, float]) -> dict[str, list[tuple[float, float]]]:
    """Networks of 1000 µs whose single cell is off by so much at each factor; pace 2."""
    reports: dict[str, list[tuple[float, float]]] = {}
    for each in SAMPLES:
        hash_ = sign(each.network).hash
        reports[f"network/{hash_}"] = [(2000.0, 20.0), (1000.0, 10.0), (1000.0, 10.0)]
        for factor, off in zip(FACTORS, off_by, strict=True):
            reports[f"cell at {factor:g}/{hash_}"] = [(1000.0 * (1 + off), 10.0)]
    return reports


def test_the_factor_is_where_sums_come_closest_to_their_networks() -> None:
    found = judged(SAMPLES, visits((-0.05, 0.05, 0.15)))
    assert found.factor == pytest.approx(2**-0.5, rel=0.05)
    assert found.networks == tuple(s.name for s in SAMPLES)
    assert found.rmspe(0.5) == pytest.approx(5.0) and found.rmspe(2.0) == pytest.approx(15.0)
    assert "5 networks are off by 5.0 % with the usual number" in str(found)


def test_few_networks_or_missing_visits_leave_it_as_it_is() -> None:
    reports = visits((-0.05, 0.05, 0.15))
    assert judged(SAMPLES[1:], reports) == Coldness(1.0)
    del reports[f"cell at 2/{sign(SAMPLES[0].network).hash}"]
    assert judged(SAMPLES, reports) == Coldness(1.0)
    assert judged(SAMPLES, {}) == Coldness(1.0)


@given(st.lists(st.tuples(*[st.floats(-0.3, 0.3)] * 3), min_size=1, max_size=12))
def test_the_factor_stays_within_what_was_tried(errors: list[tuple[float, ...]]) -> None:
    table = np.array(errors)
    factor = best_factor(table)
    assert FACTORS[0] <= factor <= FACTORS[-1]
    assert best_factor(table[::-1]) == pytest.approx(factor, rel=0.1)
    assert best_factor(np.zeros_like(table)) == 1.0


def test_replicas_follow_it_where_caches_decide() -> None:
    for channels in (16, 64, 256):
        cell = conv(channels)
        counts = [replicas_for(cell, factor) for factor in (0.5, 1.0, 2.0)]
        assert counts[0] < counts[1] < counts[2] and counts[1] == replicas_for(cell)
        assert counts[0] >= 2
    heavy = conv(2600)
    assert replicas_for(heavy, 0.5) == replicas_for(heavy, 2.0) == 3


def test_it_is_found_in_a_measuring_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[VisitTask] = []

    class Listening(MeasuringProcess):
        def ask(self, task: VisitTask):  # type: ignore[no-untyped-def]
            asked.append(task)
            return super().ask(task)

    monkeypatch.setattr(coldness, "MeasuringProcess", Listening)
    monkeypatch.setattr(coldness, "_VISIT_MS", 1.0)
    monkeypatch.setattr(coldness, "_NETWORK_VISIT_MS", 1.0)
    told: list[int] = []
    found = find_coldness(
        FakeBackend(Machine(noise_share=0.0)), {}, SAMPLES, 60.0, lambda p: told.append(p.done)
    )
    assert found.factor == 1.0 and len(found.networks) == len(SAMPLES)
    assert found.rmspe(1.0) < 5.0  # the fake's caches are alike
    assert told == [1, 2, 3, 4, 5]
    cell = SAMPLES[0].network
    mine = [t for t in asked if t.network == cell and t.lowered]
    assert sorted(t.replicas for t in mine) == [replicas_for(cell, f) for f in FACTORS]


def test_no_time_leaves_it_as_it_is() -> None:
    assert find_coldness(FakeBackend(), {}, SAMPLES, 0.0) == Coldness(1.0)


def test_records_tell_it_and_later_ones_keep_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    backend = FakeBackend()
    jobs = [Job(sign(conv(c)).hash, conv(c)) for c in (16, 32)]
    assert known_coldness(store, backend.target) == 1.0
    settings = MeasurementConfig(
        rounds=1, processes=1, max_processes=1, visit_ms=1.0, coldness=0.62
    )
    [first] = isolated.measure(backend, {}, jobs[:1], store, settings)
    assert first.environment["coldness"] == "0.62"
    assert known_coldness(store, backend.target) == 0.62
    counts: list[int] = []
    monkeypatch.setattr(MeasuringProcess, "ask", lambda _, task: counts.append(task.replicas))
    isolated.measure(backend, {}, jobs[1:], store, QUICK)
    assert replicas_for(conv(32), 0.62) in counts


@pytest.mark.parametrize(
    ("told", "meant"), [("0.62", 0.62), ("cold", 1.0), ("nan", 1.0), ("1e9", 2.0), ("-1", 0.5)]
)
def test_what_others_wrote_is_read_with_care(told: str, meant: float, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    [record] = isolated.measure(
        FakeBackend(), {}, [Job(sign(conv(16)).hash, conv(16))], store, QUICK
    )
    other = Store(f"sqlite:///{tmp_path / 'other.db'}")
    other.add_signatures({record.signature: sign(conv(16)).text})
    environment = {**record.environment, "coldness": told}
    other.add([replace(record, environment=environment)])
    assert known_coldness(other, record.target) == meant


def test_records_of_usual_cells_do_not_mention_it(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    [record] = isolated.measure(
        FakeBackend(), {}, [Job(sign(conv(16)).hash, conv(16))], store, QUICK
    )
    assert "coldness" not in record.environment
