"""The differential in this process and by a plan: the same cells, the same latencies."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hybridlat.graph.cells import cut
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.measurer import BackendMeasurer, MeasureRequest
from hybridlat.measuring.pairs import parts_of
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.measuring.statistics import FLOOR_US
from hybridlat.schema.measurement import Measurement
from hybridlat.store import Store
from tests.fakes.fake_backend import FakeBackend, Machine
from tests.fakes.plan_backend import LayoutBackend, PlanBackend
from tests.networks import classifier, residual_block

QUIET = Machine(noise_share=0.0, session_us=0.0)
SETTINGS = MeasurementConfig(network_visit_ms=1.0, differential_rounds=2)
BOTH = [LayoutBackend, PlanBackend]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def measured(backend: FakeBackend, network: Network, *, whole: bool = True) -> list[Measurement]:
    cells = {sign(cell.network).hash: cell.network for cell in cut(backend.lower(network), network)}
    with Store("sqlite://") as store:
        request = MeasureRequest("net", network, cells, whole)
        return BackendMeasurer(backend, {}).measure([request], store, SETTINGS)


@pytest.mark.parametrize("kind", BOTH)
def test_no_cell_pays_for_the_layout_of_what_leaves_the_engine(kind: type[LayoutBackend]) -> None:
    backend = kind(QUIET)
    network = classifier(16)
    ideal_us = {}  # with the taps in place of feature maps that are handed out
    for part, _ in parts_of("net", network, backend.lower(network)):
        timed_us, *taken_off_us = map(backend.ideal_us, part.networks)
        ideal_us[part.signature.hash] = timed_us - sum(taken_off_us)
    conversions_us = [t.elements / backend.elements_per_us for t in network.types.values()]
    assert max(conversions_us) > 5 * max(ideal_us.values())  # it would be seen
    result = {r.signature: r for r in measured(backend, network) if r.kind == "cell"}
    assert result.keys() == ideal_us.keys()
    for hash_, record in result.items():
        wanted_us = max(ideal_us[hash_], FLOOR_US)
        assert record.latency_us == pytest.approx(wanted_us, rel=0.005, abs=0.01)


@pytest.mark.parametrize("kind", BOTH)
def test_cells_add_up_to_the_network(kind: type[LayoutBackend]) -> None:
    backend = kind(QUIET)
    network = classifier(16)
    records = measured(backend, network)
    uses = [sign(cell.network).hash for cell in cut(backend.lower(network), network)]
    cells = {r.signature: r.latency_us or math.nan for r in records if r.kind == "cell"}
    [whole] = [r.latency_us for r in records if r.kind == "network"]
    assert math.fsum(cells[hash_] for hash_ in uses) == pytest.approx(whole, rel=0.01)


def test_both_executors_say_the_same_of_every_cell() -> None:
    network = residual_block(blocks=3)
    here, there = (
        {(r.kind, r.signature): r for r in measured(kind(QUIET), network)} for kind in BOTH
    )
    assert here.keys() == there.keys()
    for thing, record in here.items():
        assert record.latency_us == pytest.approx(there[thing].latency_us, rel=0.01, abs=0.02)
        assert record.spread_share == pytest.approx(there[thing].spread_share, abs=0.01)
        assert len(record.visits) == len(there[thing].visits) == 2


def test_drift_between_the_rounds_of_a_plan_is_divided_out_of_pairs() -> None:
    steady, drifting = PlanBackend(QUIET), PlanBackend(QUIET)
    drifting.slowness_of = lambda round_: 1.0 + 0.2 * round_
    network = residual_block(blocks=2)
    wanted = {r.signature: r.latency_us for r in measured(steady, network)}
    for record in measured(drifting, network):
        slow = {visit.drift for visit in record.visits}
        assert max(slow) / min(slow) == pytest.approx(1.2, rel=0.01)
        assert record.spread_share < 0.01
        # The run's usual speed is the quicker round's, or next to it.
        assert record.latency_us == pytest.approx(wanted[record.signature], rel=0.005)
