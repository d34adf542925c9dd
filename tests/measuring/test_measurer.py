"""Cells measured behind their predecessors, into a store, and what a prediction makes of them."""

import importlib.util
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import hybridlat
from hybridlat.graph.builder import null_network
from hybridlat.graph.cells import cut
from hybridlat.graph.signature import sign
from hybridlat.measuring.differential import PROTOCOL
from hybridlat.measuring.measurer import BackendMeasurer, MeasureRequest
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.progress import Progress
from hybridlat.store import Store
from tests.fakes.fake_backend import FakeDifferentialBackend, Machine
from tests.networks import classifier, residual_block

QUICK = MeasurementConfig(differential_rounds=2, network_visit_ms=1.0)
NEEDS_OPENVINO = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="the extra openvino is not installed"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(str(tmp_path / "store.sqlite")) as opened:
        yield opened


def test_wanted_cells_and_the_network_are_kept_with_the_entry_cost(store: Store) -> None:
    backend = FakeDifferentialBackend(Machine(noise_share=0.0))
    network = classifier()
    hashes = [sign(cell.network).hash for cell in cut(backend.lower(network))]
    told: list[Progress] = []
    request = MeasureRequest("net", network, dict.fromkeys(hashes, network), whole=True)
    records = BackendMeasurer(backend, {}).measure([request], store, QUICK, told.append)
    assert {r.kind for r in records} == {"cell", "network"}
    assert all(r.protocol == PROTOCOL for r in records)
    known = store.latencies(backend.target, [*hashes, sign(null_network(1)).hash])
    total = math.fsum(known[h].latency_us or math.nan for h in hashes)  # each use of a cell
    entry = known[sign(null_network(1)).hash].latency_us
    assert entry is not None
    whole = store.latencies(backend.target, [sign(network).hash], "network")
    assert total + entry == pytest.approx(whole[sign(network).hash].latency_us, rel=0.02)
    assert told and told[-1].done <= told[-1].total
    assert not any(problem for record in records for problem in record.problems())


def test_only_what_is_wanted_is_measured(store: Store) -> None:
    backend = FakeDifferentialBackend(Machine(noise_share=0.0))
    network = residual_block(blocks=3)
    first = sign(cut(backend.lower(network))[0].network).hash
    request = MeasureRequest("net", network, {first: network})
    nothing = MeasureRequest("other", network)
    [record] = BackendMeasurer(backend, {}).measure([request, nothing], store, QUICK)
    assert record.signature == first


@NEEDS_OPENVINO
def test_a_prediction_for_openvino_measures_cells_behind_their_predecessors(tmp_path: Path) -> None:
    from hybridlat.engines.registry import open_backend

    backend = open_backend("openvino")
    network = residual_block(channels=16)
    url = str(tmp_path / "store.sqlite")
    with hybridlat.Predictor(str(backend.target), store=url, measure="always") as predictor:
        estimate = predictor.predict(to_onnx(network, seed=1), name="net")
        report = predictor.measure(to_onnx(network, seed=1), what="network")
    assert {cell.source for cell in estimate.cells} == {"measured"}
    assert report.latency_us is not None and report.latency_us > 0
    with Store(url) as kept:
        protocols = {r.protocol for r in kept.measurements(backend.target)}
    assert protocols == {PROTOCOL, "reference-1"}
