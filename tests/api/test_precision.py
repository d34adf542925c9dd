"""A file is answered for under its own precision, by what is known under any."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hybridlat.api import Predictor
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.report.cell_texts import what_text
from hybridlat.schema.target import Target
from tests.engines.test_quantised import FLOATS, PLAIN, QDQ, WEIGHTS
from tests.onnx_io.test_precision import model

QUICK = MeasurementConfig(
    rounds=1, processes=1, max_processes=1, visit_ms=2.0, network_visit_ms=5.0
)


@pytest.fixture
def predictor(tmp_path: Path) -> Predictor:
    return Predictor(store=f"sqlite:///{tmp_path / 'store.db'}", settings=QUICK, tolerance=5.0)


def test_a_quantised_file_has_a_target_of_its_own(predictor: Predictor) -> None:
    with predictor:
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
    assert any("computes in the precision of the file" in w for w in again.warnings)
    assert "/fp32/" in usual
    int8 = usual.replace("/fp32/", "/int8/")
    assert (quantised.target, plain.target, report.target) == (int8, usual, int8)
    assert quantised.supported and quantised.measured_now == len(quantised.cells)
    assert not any("int8" in warning for warning in quantised.warnings if "interval" not in warning)
    assert {int8, usual} <= stored
    assert report.known == len(quantised.cells) and report.sum_of_cells_us is not None


def test_a_report_says_the_sizes_of_the_file_and_what_is_quantised(predictor: Predictor) -> None:
    """The engine keeps such images with their channels last, sums too."""
    usual = predictor.target
    store = predictor.store.url
    predictor.close()
    with Predictor(str(usual), store=store, measure="never") as looking:
        estimate = looking.predict(model(QDQ, WEIGHTS), describe=True)
    assert estimate.structure is not None
    texts = [what_text(cell) for cell in estimate.structure.cells]
    assert "8→16, 3×3, 9×9 int8" in texts
    shapes = {k.output_shape for cell in estimate.structure.cells for k in cell.kernels}
    assert {shape for shape in shapes if len(shape) == 4} <= {
        (1, 8, 9, 9), (1, 16, 9, 9), (1, 9, 9, 8),
    }  # fmt: skip
