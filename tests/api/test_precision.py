"""A file is answered for under its own precision, by what is known under any."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hybridlat import Predictor
from hybridlat.schema.target import Target
from tests.engines.test_quantised import FLOATS, PLAIN, QDQ, WEIGHTS
from tests.fakes.fake_backend import QUICK
from tests.onnx_io.test_precision import model


def test_a_quantised_file_has_a_target_of_its_own(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with Predictor(store=store, settings=QUICK, tolerance=5.0) as predictor:
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
