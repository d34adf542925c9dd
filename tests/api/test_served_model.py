"""A registered model as MLflow loads it answers from its own folder alone."""

from pathlib import Path

import pytest

from hybridlat.api.functions import ServedModel
from hybridlat.errors import InputError, StoreError
from hybridlat.schema.plugins import shipped
from hybridlat.store import packs
from tests.onnx_io.test_reading_shapes import model

pandas = pytest.importorskip("pandas")
CPU = shipped("models") / "epyc-26-2_onnxruntime-1.31_fp32_1t"
HALF = "half (float16[1,4,8,8] x) => (float16[1,4,8,8] y) { y = Conv(x, w) }"


def test_it_predicts_rows_by_nothing_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "packs_for", lambda _: pytest.fail("a pack is read"))
    served = ServedModel(CPU)
    rows = pandas.DataFrame({"path": ["resnet18"] * 2, "batch": [1, None]}, index=["a", "b"])
    answers = served.predict(rows)
    assert list(answers.index) == ["a", "b"] and answers.loc["a"].equals(answers.loc["b"])
    assert (answers.low_us < answers.latency_us).all()
    assert (answers.latency_us < answers.high_us).all()


def test_what_it_cannot_answer_is_one_sentence(tmp_path: Path) -> None:
    served = ServedModel(CPU)
    with pytest.raises(InputError, match=r"the columns are \['net'\]: one must be path, or cell"):
        served.predict(pandas.DataFrame({"net": ["resnet18"]}))
    (tmp_path / "half.onnx").write_bytes(model(HALF, {"w": (10, [4, 4, 1, 1])}).SerializeToString())
    with pytest.raises(InputError, match=r"is of epyc-26-2/onnxruntime-1.31/fp16/1t, the model of"):
        served.predict(pandas.DataFrame({"path": [str(tmp_path / "half.onnx")]}))
    with pytest.raises(StoreError, match="cannot be"):
        ServedModel(tmp_path)
