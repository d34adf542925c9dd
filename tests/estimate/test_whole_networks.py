"""A network that was measured whole: the answer for itself, and evidence on its cells."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hybridlat import Predictor, predict
from hybridlat.cli import main as cli
from hybridlat.errors import StoreError
from hybridlat.estimate import partition
from hybridlat.estimate.compose import target_composition
from hybridlat.estimate.compose.composition import Composition, machine_composition
from hybridlat.estimate.compose.target_composition import composition_of, is_calibrating
from hybridlat.estimate.lookup import whole_networks
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import MeasuredNetwork, tells_latency
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.model.model_files import hash_of
from hybridlat.onnx_io import load, to_onnx
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.measurement import Breakdown, MachineLoad, Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store import Store, packs
from tests.engines.texts import model_of
from tests.estimate.known import ends
from tests.fakes.fake_backend import FAKE, QUICK
from tests.networks import NETS, Builder, encoder_decoder

TARGET = Target.parse(FAKE)


def network_of(channels: int = 8, depth: int = 3) -> Network:
    net = Builder("net")
    x = net.op("Relu", [net.conv(net.input((1, 3, 16, 16)), channels)], (1, channels, 16, 16))
    for _ in range(depth):
        x = net.op("Relu", [net.conv(x, channels)], (1, channels, 16, 16))
    return net.network(x)


def keep(store: Store, data: bytes, **changes: Any) -> None:
    """A record of the whole network, as an import makes it."""
    hash_ = sign(load(data).network(None, None)).hash
    record = Measurement(TARGET, hash_, "network", 500.0, 0.01)
    store.add([replace(record, **changes)])


def asked(store: str, data: bytes | Path, batch: int | None = None, target: str = FAKE) -> Estimate:
    return predict(data, target, store=store, measure="never", batch=batch)


def test_a_measured_network_is_the_answer_for_itself(store: str) -> None:
    data = to_onnx(network_of(), seed=1)
    with Store(store) as opened:
        keep(opened, data, measured_at="2026-11-01T00:00:00+00:00")
    estimate = asked(store, data)
    assert estimate.latency_us == 500.0 and estimate.source == "measured"
    assert estimate.measured_share == 1.0 and "2026-11-01" in estimate.reason
    assert estimate.within_tolerance and estimate.trusted and estimate.to_measure == ()
    assert ends(estimate)[0] < 500.0 < ends(estimate)[2]
    # Its cells are listed, and sum up to it although nobody measured them.
    assert {cell.source for cell in estimate.cells} == {"predicted"}
    assert estimate.sum_of_cells_us == pytest.approx(500.0, rel=0.01)
    assert all("apportioned" in cell.reason for cell in estimate.cells)


def test_only_the_same_structure_shapes_and_batch_are_answered(store: str) -> None:
    data = to_onnx(network_of(), seed=1)
    with Store(store) as opened:
        keep(opened, data)
    assert asked(store, to_onnx(network_of(), seed=7)).source == "measured"  # other weights
    for other in (to_onnx(network_of(depth=4), seed=1), to_onnx(network_of(16), seed=1)):
        assert asked(store, other).source == "composed"
    assert asked(store, data, batch=2).source == "composed"


def test_what_records_say_together() -> None:
    record = Measurement(TARGET, "0" * 32, "network", 100.0, 0.02, (Visit((100.0,)),))
    dated = [
        replace(record, latency_us=us, measured_at=f"{year}-06-01T00:00:00+00:00")
        for us, year in ((100.0, 2024), (104.0, 2025))
    ]
    found = whole_networks.from_records(dated)
    assert found is not None and found.latency_us == 102.0 and found.is_exact
    assert found.basis == "2 runs, last on 2025-06-01"
    undated = [replace(record, latency_us=us) for us in (100.0, 104.0, 1e6)]
    found = whole_networks.from_records(undated)
    assert found is not None and found.is_contradictory and found.noise_share == 2.0
    assert found.basis == "3 runs, without a date"
    bare = whole_networks.from_records([replace(record, spread_share=0.0, visits=())])
    assert bare is not None and bare.noise_share == 0.05  # a figure without samples
    assert whole_networks.from_records([]) is None
    graph, copied = replace(record, launch="graph"), replace(record, copies=True, latency_us=9e3)
    nhwc = replace(record, labels={"layout": "nhwc"}, latency_us=10.0)
    plain = whole_networks.from_records([copied, nhwc, graph, replace(record, launch="stream")])
    assert plain is not None and plain == whole_networks.from_records([graph])
    assert plain.basis == "1 run, without a date, replayed as a CUDA graph"
    with_copies = whole_networks.from_records([copied])
    assert with_copies is not None and with_copies.basis.endswith(", with host copies")


def test_doubtful_records_do_not_count_nor_those_of_another_version() -> None:
    target = Target.parse("x/onnxruntime-1.31/fp32/1t")
    record = Measurement(target, "0" * 32, "network", 100.0, 0.02)
    for engine in ("onnxruntime 1.31.1", "", "onnxruntime"):
        assert tells_latency(replace(record, environment={"engine": engine})), engine
    for engine in ("onnxruntime 1.32.0", "onnxruntime 1.3"):
        assert not tells_latency(replace(record, environment={"engine": engine})), engine
    assert not tells_latency(replace(record, suspect=True))
    assert not tells_latency(replace(record, latency_us=None, failure="refused"))
    unstated = replace(record, target=Target.parse("x/onnxruntime/fp32/1t"))
    assert tells_latency(replace(unstated, environment={"engine": "onnxruntime 1.9"}))


def test_the_first_networks_of_a_machine_are_measured_whole_with_their_cells(
    fake: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_composition, "CALIBRATING", 2)
    first = fake.predict(to_onnx(network_of(8), seed=1))
    assert first.network_measured_now and first.source == "measured"
    assert first.measured_now == len(first.cells)
    assert {cell.source for cell in first.cells} == {"measured"}
    data = TargetData(TARGET, fake.store)
    assert composition_of(data).networks == 1 and is_calibrating(data)
    [network] = target_composition.summed_networks(data)
    shown_us = composition_of(data).shown_ratio * network.latency_us
    assert shown_us == pytest.approx(first.latency_us)
    # A record that a busy machine made says nothing of how cells sum up.
    noisy = replace(next(fake.store.measurements(TARGET, "network")), spread_share=0.5)
    monkeypatch.setattr(Store, "measurements", lambda *_: iter([noisy]))
    assert target_composition.summed_networks(TargetData(TARGET, fake.store)) == []
    monkeypatch.undo()
    monkeypatch.setattr(target_composition, "CALIBRATING", 2)
    fake.predict(to_onnx(network_of(12), seed=1))
    assert not is_calibrating(TargetData(TARGET, fake.store))
    assert composition_of(TargetData(TARGET, fake.store)).networks == 2


def test_what_a_user_gives_leaves_no_trace_in_the_store(fake: Predictor) -> None:
    fake.predict(to_onnx(network_of(8), seed=1))
    [record] = fake.store.measurements(TARGET, "network")
    assert record.latency_us is not None
    fake.store.add([Measurement(TARGET, "0" * 32, "cell", 1.0)])  # nothing of now is cached
    told, plain = TargetData(TARGET, fake.store), TargetData(TARGET, fake.store)
    of_user = MeasuredNetwork(
        TARGET, (), (), 0.0, 1.1 * record.latency_us, record.signature, "", True
    )
    told.user_networks = {record.signature: of_user}
    assert composition_of(told) == composition_of(plain)
    [network] = target_composition.summed_networks(plain)
    assert composition_of(plain).scale == pytest.approx(
        machine_composition([network], plain.dispatch_overhead_us).scale
    )
    told.user_networks = {}  # nor does it stay in what is remembered of a state
    assert target_composition.summed_networks(told) == [network]


def test_a_busy_run_of_a_network_does_not_brand_its_cells(fake: Predictor, tmp_path: Path) -> None:
    file = to_onnx(network_of(8), seed=1)
    fake.predict(file)
    busy = MachineLoad(9.7, 0.0, 2).environment()
    with Store(tmp_path / "s.db") as opened:
        for record in fake.store.measurements(TARGET):
            is_cell = record.kind == "cell"
            opened.add([record if is_cell else replace(record, environment=busy, visits=())])
    with Predictor(FAKE, store=str(tmp_path / "s.db"), measure="never") as predictor:
        estimate = predictor.predict(file)
    assert estimate.source == "composed" and estimate.measured_share == 1
    assert not estimate.busy
    assert not any("busy" in warning for warning in map(str, estimate.warnings))


def test_measuring_always_takes_the_network_too(store: str) -> None:
    data = to_onnx(network_of(), seed=1)
    with Predictor(FAKE, store=store, settings=QUICK, measure="always") as predictor:
        predictor.predict(data)
        estimate = predictor.predict(data)
    assert estimate.network_measured_now and estimate.measured_now == len(estimate.cells)
    assert "2 runs" in estimate.reason


@pytest.mark.parametrize("target", ["h200/tensorrt-8.6/fp16", "h200/tensorrt-8.6/fp32"])
def test_networks_of_a_shipped_pack_tell_of_others_as_those_of_a_store(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were replayed from a CUDA graph, and so is what the answers are about."""
    path, empty = NETS / "resnet34.onnx", str(tmp_path / "none.db")
    told = asked(empty, path, target=target)
    assert "5 networks" in told.rests_on and "--useCudaGraph" in told.check
    assert "no H200" not in told.rests_on
    monkeypatch.setattr(packs, "shipped_packs", lambda *_: [])
    alone = asked(empty, path, target=target)
    assert "5 networks" not in alone.rests_on and "--useCudaGraph" not in alone.check
    assert ends(told)[1] < ends(alone)[1]


def test_a_full_store_answers_all_the_same(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = to_onnx(network_of(), seed=1)
    with Store(store) as opened:
        keep(opened, data)

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "cache_put", full)
    assert asked(store, data).latency_us == 500.0


@pytest.mark.parametrize(("trained_on", "is_own"), [(0, False), (4, False), (5, True)])
def test_a_machine_trained_on_few_networks_goes_on_learning_from_its_own(
    trained_on: int, is_own: bool, store: str, tmp_path: Path
) -> None:
    trained = Composition(scale=2.0, networks=trained_on)
    body = json.dumps(trained.to_json())
    (tmp_path / "composition.json").write_text(body)
    hashes = {"composition.json": hash_of(body.encode())}
    (tmp_path / "card.json").write_text(json.dumps({"files": hashes}))
    with Store(store) as opened:
        data = TargetData(TARGET, opened, [tmp_path])
        assert (target_composition.own_composition(data) is not None) is is_own and is_calibrating(
            data
        ) is not is_own
        for i in range(6):  # measured since, each of one cell
            network, cell = f"{i:032x}", f"{i + 16:032x}"
            opened.add([Measurement(TARGET, cell, "cell", 100.0 * 2**i, 0.01)])
            opened.add([Measurement(TARGET, network, "network", 110.0 * 2**i, 0.01)])
            opened.add_breakdowns([Breakdown(TARGET, f"net{i}", network, ((cell, 1),))])
        data = TargetData(TARGET, opened, [tmp_path])
        found = composition_of(data)
        assert found.networks == (trained_on if is_own else 6)
        assert found.scale == pytest.approx(2.0 if is_own else 1.1, rel=0.03)
        assert not is_calibrating(data)


def test_a_run_that_was_one_cell_before_is_evidence_on_the_sum_of_its_cells(store: str) -> None:
    epyc = Target.parse("epyc-26-2/onnxruntime-1.31/fp32/1t")
    data = to_onnx(encoder_decoder(24, 64, stages=3), seed=1)
    before = asked(store, data, target=str(epyc))
    with Store(store) as opened:
        found = partition.Partitioner(epyc, opened).partition(load(data))
        again = partition.Partition.from_text(found.to_text())
        assert again is not None and (again.uses, again.runs) == (found.uses, found.runs)
        [(run, cells)] = found.runs
        known = {cell.signature: cell.latency_us or math.nan for cell in before.cells}
        run_us = math.fsum(known[hash_] for hash_ in cells)
        opened.add([Measurement(epyc, run, "cell", 1.3 * run_us, 0.01)])
    after = asked(store, data, target=str(epyc))
    assert after.measured_share == before.measured_share
    assert after.sum_of_cells_us == pytest.approx(before.sum_of_cells_us + 0.3 * run_us, rel=0.05)
    narrow, wide = (high_us / low_us for low_us, _, high_us in map(ends, (after, before)))
    assert narrow < wide


def test_another_export_of_a_measured_network_is_answered_by_its_record(
    store: str, tmp_path: Path
) -> None:
    """One file pools where the other takes a mean: other signatures, the same cells."""
    gpu, files = "t4/tensorrt-8.6/fp16", [tmp_path / "one.onnx", tmp_path / "other.onnx"]
    for path, mean in zip(files, ("GlobalAveragePool(c)", "ReduceMean(c, i)"), strict=True):
        conv = "i = Constant<value = int64[2] {2,3}>() a = Conv<pads=[1,1,1,1]>(x, w) c = Relu(a)"
        text = f"{conv} d = {mean} y = Flatten(d)"
        path.write_bytes(model_of(text).SerializeToString())
    csv = tmp_path / "table.csv"
    csv.write_text(f"network,latency_us,target\none,777,{gpu}\n")
    before = asked(store, files[1], target=gpu)
    assert cli.run(["import", str(csv), "--nets", str(tmp_path), "--store", store]) == 0
    exact, also = (asked(store, path, target=gpu) for path in files)
    assert before.source == "composed"
    assert also.latency_us == exact.latency_us == 777.0
    assert also.interval_us == exact.interval_us
    assert also.reason == f"{exact.reason}, in another export"
    assert asked(store, files[1], batch=2, target=gpu).source == "composed"
    with Predictor(gpu, store="sqlite://", known={files[0]: 555.0}) as predictor:
        assert predictor.predict(files[1]).latency_us == 555.0
