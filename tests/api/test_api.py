"""The straight line on the fake engine and on ONNX Runtime."""

import itertools
import json
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
import pytest
from msgspec.structs import replace

import hybridlat
from hybridlat import Predictor, onnx_io
from hybridlat.estimate.lookup.target_list import list_targets
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.target import Target
from tests.engines.test_quantised import FLOATS, PLAIN, QDQ, WEIGHTS
from tests.fakes.fake_backend import FAKE, QUICK
from tests.networks import NETS, classifier, residual_block
from tests.onnx_io.test_reading_shapes import model

NET = to_onnx(classifier(), seed=1)


def test_unknown_cells_are_measured_and_then_looked_up(fake: Predictor) -> None:
    first, second = fake.predict(NET), fake.predict(NET)
    assert first.supported and first.measured_now == len(first.cells)
    assert second.measured_now == 0 and second.measured_share == 1.0
    assert (second.latency_us, second.interval_us) == (first.latency_us, first.interval_us)
    assert second.sum_of_cells_us == first.sum_of_cells_us
    assert first.latency_us is not None and first.latency_us > first.sum_of_cells_us + 1
    with Predictor(FAKE, store=fake.store.url, settings=QUICK) as next_process:
        third = next_process.predict(NET)
    assert (third.latency_us, third.interval_us) == (first.latency_us, first.interval_us)
    assert first.interval_us is not None and first.latency_us is not None
    assert first.interval_us[0] < first.latency_us < first.interval_us[1]


def test_the_rows_add_up_and_name_every_operator_once(fake: Predictor) -> None:
    model = onnx.load_from_string(to_onnx(residual_block(blocks=4), seed=1))
    estimate = fake.predict(model)
    total = sum((c.latency_us or 0.0) * c.uses for c in estimate.cells)
    assert estimate.sum_of_cells_us == pytest.approx(total)
    assert sum(c.share for c in estimate.cells) == pytest.approx(1.0)
    named = sorted(name for cell in estimate.cells for name in cell.nodes)
    assert named == sorted(node.name for node in model.graph.node)
    assert max(cell.uses for cell in estimate.cells) >= 4


def test_never_measuring_says_what_it_would_measure(store: str) -> None:
    with Predictor(FAKE, store=store, measure="never") as predictor:
        estimate = predictor.predict(NET)
    assert estimate.latency_us is None and not estimate.within_tolerance
    assert {c.source for c in estimate.cells} == {"unsupported"}
    assert set(estimate.to_measure) == {c.signature for c in estimate.cells}
    assert any("switched off" in warning for warning in map(str, estimate.warnings))


def test_measure_keeps_the_whole_network_and_its_breakdown(fake: Predictor) -> None:
    report = fake.measure(NET, what="both")
    assert report.failures == {}
    assert report.latency_us is not None and report.sum_of_cells_us is not None
    assert report.latency_us == pytest.approx(report.sum_of_cells_us, rel=0.1)
    [breakdown] = fake.store.breakdowns()
    cells = dict(breakdown.cells)
    assert cells.keys() <= {r.signature for r in report.records}
    assert fake.store.signature_texts(cells).keys() == cells.keys()
    [target] = [t for t in list_targets(fake.store.url) if t.target == FAKE]
    assert target.networks == 1 and "store" in target.source


@pytest.mark.parametrize(
    ("target", "origin"),
    [
        ("epyc-26-2/onnxruntime-1.31/fp32/1t", ""),
        ("epyc-26-2/onnxruntime-1.30/fp32/1t", "another version"),
        ("v100/tensorrt-8.6/fp16", "No data for TensorRT 8.6"),
        ("l40/tensorrt-10.0/fp16", "no L40 measured"),
    ],
)
def test_an_estimate_holds_plain_values(tmp_path: Path, target: str, origin: str) -> None:
    """Whatever its cells are known by: numbers of numpy do not travel as JSON."""
    with Predictor(target, store=str(tmp_path / "s.db"), measure="never") as predictor:
        estimate = predictor.predict(NETS / "squeezenet.onnx", describe=True)
    assert any(origin in cell.reason for cell in estimate.cells)
    assert json.loads(json.dumps(estimate.to_json()))["target"] == target
    assert b"numpy" not in pickle.dumps(estimate)


@pytest.mark.parametrize("door", [hybridlat, onnx_io])
def test_every_name_of_a_door_is_where_the_door_says(door: ModuleType) -> None:
    assert door.__all__ and set(dir(hybridlat)) == set(hybridlat.__all__)
    assert all(getattr(door, name) is not None for name in door.__all__)


@pytest.mark.parametrize(
    ("target", "tolerance"),
    [("epyc-26-2/onnxruntime-1.31/fp32/1t", 0.03), ("v100/tensorrt-8.4/fp16", 0.15)],
)
def test_the_surer_the_wider_and_the_more_would_be_measured(
    target: str, tolerance: float, tmp_path: Path
) -> None:
    """Where a model predicts the cells, and where another version's model is as near as a law."""
    how: Any = {"store": str(tmp_path / "s.db"), "measure": "never", "tolerance": tolerance}
    how |= {"shapes": {"data_0": (1, 3, 192, 192)}}
    net, levels = NETS / "squeezenet.onnx", (0.5, 0.9, 0.99)
    estimates = [hybridlat.predict(net, target, confidence=level, **how) for level in levels]
    assert [e.confidence for e in estimates] == [0.5, 0.9, 0.99]
    assert len({(e.latency_us, e.grade, e.rests_on) for e in estimates}) == 1
    for before, after in itertools.pairwise(estimates):
        less, more = ([e.interval_us, *(c.interval_us for c in e.cells)] for e in (before, after))
        for inner, outer in zip(less, more, strict=True):
            assert inner is not None and outer is not None
            assert outer[0] < inner[0] and inner[1] < outer[1]
    counts = [len(e.to_measure) for e in estimates]
    assert counts == sorted(counts) and counts[0] < counts[-1]


@pytest.mark.usefixtures("unknown_cpu")
def test_a_quantised_file_has_a_target_of_its_own(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with Predictor(store=store, settings=QUICK, tolerance=0.99) as predictor:
        usual = str(predictor.target)
        quantised = predictor.predict(model(QDQ, WEIGHTS))
        plain = predictor.predict(model(PLAIN, FLOATS))
        report = predictor.measure(model(QDQ, WEIGHTS))
        stored = {str(stats.target) for stats in predictor.store.stats()}
        made = list(predictor.store.measurements(Target.parse(quantised.target)))
        texts = predictor.store.signature_texts([record.signature for record in made])
        # Records that were made before files had a target of their own lie under fp32.
        with Predictor(usual, store=f"{predictor.store.url}-old", settings=QUICK) as other:
            other.store.add_signatures(dict(texts))
            other.store.add([replace(record, target=Target.parse(usual)) for record in made])
            again = other.predict(model(QDQ, WEIGHTS))
    assert (again.measured_now, again.measured_share) == (0, 1.0)
    assert again.target == quantised.target
    assert any("computes in the precision of the file" in w for w in map(str, again.warnings))
    assert "/fp32/" in usual
    int8 = usual.replace("/fp32/", "/int8/")
    assert (quantised.target, plain.target, report.target) == (int8, usual, int8)
    assert quantised.supported and quantised.measured_now == len(quantised.cells)
    others = [text for text in map(str, quantised.warnings) if "interval" not in text]
    assert not any("int8" in text for text in others)
    assert {int8, usual} <= stored
    assert report.known == len(quantised.cells) and report.sum_of_cells_us is not None
