"""A registered model is a model of MLflow: it loads by name, and answers for ONNX files."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import pytest

from hybridlat import onnx_io
from hybridlat.api.served_model import ServedModel
from hybridlat.errors import HybridlatError
from hybridlat.evaluation import tracking
from hybridlat.schema.target import Target
from tests.evaluation.conftest import tracked, tracked_folder
from tests.networks import residual_block

__all__ = ["tracked", "tracked_folder"]

ROOT = Path(__file__).resolve().parents[2]
TARGET = Target.parse("epyc-26-2/onnxruntime-1.31/fp32/1t")
MODEL = ROOT / "models" / TARGET.folder


@pytest.fixture
def store(tracked: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HYBRIDLAT_STORE", tracked)
    return tracked


@pytest.fixture
def file() -> bytes:
    return onnx_io.to_onnx(residual_block(), 0)


def registered(store: str) -> tuple[tracking.Tracker, tracking.Version]:
    tracker = tracking.open_tracker(store)
    with tracker.run("train") as run:
        version = tracker.register(TARGET, run, MODEL, "EPYC")
    assert version is not None
    tracker.promote(version)
    return tracker, version


def test_the_champion_loads_by_its_name_and_answers(
    store: str, file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow: Any = pytest.importorskip("mlflow")
    tracker, _ = registered(store)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracker.uri)
    name = f"models:/{tracking.model_name(TARGET)}@{tracking.CHAMPION}"
    model = mlflow.pyfunc.load_model(name)
    rows = model.predict([file, b"no network"]).to_dict("records")
    twice = model.predict([file], params={"batch": 2}).to_dict("records")
    good, bad = rows
    assert 0 < good["low_us"] < good["latency_us"] < good["high_us"]
    assert good["reason"] == ""
    assert twice[0]["latency_us"] > good["latency_us"]
    assert math.isnan(bad["latency_us"])
    assert "not an ONNX model" in bad["reason"]
    assert model.metadata.signature.inputs.input_types()[0].name == "binary"


def test_what_is_downloaded_are_the_model_files(store: str, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    tracker, version = registered(store)
    place = tmp_path / "fetched"
    place.mkdir()
    folder = tracker.download(version, place)
    assert folder is not None
    assert {f.name for f in folder.iterdir()} == {f.name for f in MODEL.iterdir()}
    assert (folder.parents[1] / "MLmodel").is_file()
    assert not list(place.rglob("*.pkl")), "models are kept without pickles"


def test_files_sent_as_text_are_decoded(store: str, file: bytes) -> None:
    model = ServedModel(MODEL, store)
    plain, sent = (
        model.predict([body]).to_dict("records")[0]
        for body in (file, base64.b64encode(file).decode())
    )
    assert plain["latency_us"] == sent["latency_us"]


def test_the_interval_is_of_the_confidence_asked_for(store: str, file: bytes) -> None:
    model = ServedModel(MODEL, store)
    narrow, wide = (
        model.predict([file], {"confidence": asked}).to_dict("records")[0] for asked in (0.5, 0.99)
    )
    assert wide["low_us"] < narrow["low_us"] < narrow["high_us"] < wide["high_us"]


def test_a_folder_without_a_model_is_one_sentence(store: str, tmp_path: Path) -> None:
    with pytest.raises(HybridlatError, match=r"card\.json"):
        ServedModel(tmp_path, store)
