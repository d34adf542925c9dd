"""Cells that a target's own model cannot speak for: the family of its engine, else the roofline."""

import math
from pathlib import Path
from typing import Any

import pytest

from hybridlat import predict
from hybridlat.engines import device_sheets
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.partition import Partitioner
from hybridlat.estimate.predict import chain, family, other_targets
from hybridlat.estimate.predict.family import Family
from hybridlat.estimate.predict.source import NetworkCells, NetworkLaw, Roofline
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import load
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.estimate.known import ends, make_known
from tests.networks import NETS, Builder

L4 = Target.parse("l4/tensorrt/fp16")


def predicted(store: str, target: str, tolerance: float | None = None) -> Estimate:
    net = NETS / "resnet18.onnx"
    return predict(net, target, store=store, measure="never", tolerance=tolerance)


def test_a_gpu_without_tf32_has_nothing_to_switch_off(tmp_path: Path) -> None:
    store = str(tmp_path / "none.db")
    precisions = ("fp32", "fp32-strict")
    usual, strict = (predicted(store, f"t4/tensorrt-7.2/{each}") for each in precisions)
    assert ends(strict) == ends(usual)
    tf32, plain = (predicted(store, f"a100/tensorrt-8.6/{each}") for each in precisions)
    assert ends(plain)[1] > 1.2 * ends(tf32)[1]


def test_without_a_family_the_roofline_speaks_and_says_how_little_it_knows() -> None:
    b = Builder("net")
    network = b.network(b.relu(b.conv(b.input((1, 8, 16, 16)), 8)))
    signed = sign(network)
    cells = NetworkCells((signed.hash,), (signed.text,), (1,), lambda: 0.0)
    (guess,) = Roofline(device_sheets.load("l4"), "fp16").predict(cells, [0])
    assert guess is not None and guess.latency_us is not None and guess.latency_us > 4.0
    assert guess.spread_share > 0.5 and "guessed" in guess.reason


def test_a_cpu_without_a_record_is_told_by_another_one_as_badly_as_that_is(tmp_path: Path) -> None:
    store, target = str(tmp_path / "s.db"), "abacus/onnxruntime-1.31/fp32/1t"
    make_known("abacus", store)
    estimate = predicted(store, target)
    theirs = predicted(store, "epyc-26-2/onnxruntime-1.31/fp32/1t", tolerance=0.99)
    assert estimate.supported and not estimate.within_tolerance
    low_us, _, high_us = ends(estimate)
    assert low_us < ends(theirs)[1] < high_us and high_us / low_us > 9
    assert any("another device" in cell.reason for cell in estimate.cells)


def test_a_cell_measured_there_tells_the_pace_of_all(tmp_path: Path) -> None:
    store, target = str(tmp_path / "s.db"), "abacus/onnxruntime-1.31/fp32/1t"
    make_known("abacus", store)
    before = predicted(store, target)
    heaviest = max(before.cells, key=lambda cell: cell.share)
    assert heaviest.latency_us is not None
    here, slow_us = Target.parse(target), 2 * heaviest.latency_us
    slow = Measurement(here, heaviest.signature, "cell", slow_us, 0.01)
    with Store(store) as opened:
        texts = Partitioner(here, opened).partition(load(NETS / "resnet18.onnx")).texts
        if slow.signature in texts:  # else the engine was asked, and they are there
            opened.add_signatures({slow.signature: texts[slow.signature]})  # as measuring does
        opened.add([slow])
    after = predicted(store, target)
    for cell, was in zip(after.cells, before.cells, strict=True):
        slower = (cell.latency_us or 0.0) / (was.latency_us or math.nan)
        if cell.signature == slow.signature:
            assert slower == pytest.approx(2)
        else:  # one cell weighs less than many would
            assert 1.3 < slower < 2 and "1 cell compared" in cell.reason
    narrow, wide = (high_us / latency_us for _, latency_us, high_us in map(ends, (after, before)))
    assert narrow < wide / 1.5


def test_a_cell_far_from_training_is_the_family_s_and_keeps_nothing_back(tmp_path: Path) -> None:
    target, store = Target.parse("v100/tensorrt/fp16"), str(tmp_path / "n.db")
    alexnet = NETS / "bvlc_alexnet.onnx"  # its first kernel is 11x11
    estimate = predict(alexnet, target, store=store, measure="never", tolerance=0.99)
    first = next(cell for cell in estimate.cells if "n0" in cell.nodes)
    assert "TensorRT in Paddle 2020, " in first.reason
    assert all(cell.trusted for cell in estimate.cells)
    assert estimate.within_tolerance and not estimate.to_measure


def test_the_order_of_the_sources(tmp_path: Path) -> None:
    def names(target: str, can_measure: bool = False) -> list[str]:
        data = TargetData(Target.parse(target), store)
        return [type(source).__name__ for source, _ in chain.sources_of(data, can_measure)]

    with Store(tmp_path / "s.db") as store:
        assert names("v100/tensorrt/fp16") == ["Records", "Family"]
        assert names("v100/tensorrt-8.6/fp16") == ["Records", "OtherTarget", "Family"]
        assert names("v100/tensorrt/fp16", True) == ["Records", "OwnModel", "Family"]
        assert names("abacus/tensorrt/fp16") == ["Records"]
        assert names("abacus/onnxruntime-1.31/fp32/1t") == ["Records", "OtherTarget", "Roofline"]
        assert names("abacus/onnxruntime-1.31/fp32/1t", True) == ["Records"]
        older = "epyc-26-2/onnxruntime-1.0/fp32/1t"
        assert names(older) == ["Records", "OtherTarget", "OtherTarget", "Roofline"]
        assert names(older, True) == ["Records", "OtherTarget", "OtherTarget"]


@pytest.mark.parametrize("factor", [1 / 200, 1, 200])
def test_an_estimate_far_from_what_the_device_can_do_says_so(
    factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Family.network

    def wrong(self: Family, *given: Any) -> NetworkLaw:
        law = right(self, *given)
        return NetworkLaw([factor * us for us in law.cells_us], 0.0, law.spread_share)

    monkeypatch.setattr(family.Family, "network", wrong)
    estimate = predicted(str(tmp_path / "n.db"), "l4/tensorrt/fp16")
    about = [w for w in map(str, estimate.warnings) if "peak, bandwidth and launch time" in w]
    assert len(about) == (factor != 1)


@pytest.mark.parametrize(
    ("target", "device"),
    [
        ("some-cpu/onnxruntime-1.31/fp32/1t", "epyc-26-2"),
        ("some-cpu/onnxruntime-9.9/fp32/2t", "epyc-26-2"),
        ("some-cpu/onnxruntime-1.31/int8/1t", "epyc-26-2"),  # it runs the same cells
        ("some-cpu/torch-2.4/int8/1t", None),
        ("epyc-26-2/onnxruntime-1.31/fp32/1t", None),
    ],
)
def test_the_other_machine_runs_the_same_engine(target: str, device: str | None) -> None:
    with Store(":memory:") as store:
        other = other_targets.other_cpu(TargetData(Target.parse(target), store))
    assert (None if other is None else other.there.target.device) == device
