"""TensorRT through the worker, on a recorded fake driver and module of every version."""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybridlat.board import DeviceLost, EngineError, NoDevice
from hybridlat.board.cuda import PyCuda
from hybridlat.board.visits import open_engine
from tests.board import fake_tensorrt

VERSIONS = ("8.5", "8.6", "10.0", "10.16", "11.4")
API = json.loads(fake_tensorrt.GOLDEN.read_text())

MakeFake = Callable[..., tuple[Any, fake_tensorrt.FakeDriver]]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> MakeFake:
    """Install TensorRT of a version; gives the module and the driver."""

    def make(
        version: str, devices: int = 1, broken: str = "", refusal: str = ""
    ) -> tuple[Any, fake_tensorrt.FakeDriver]:
        monkeypatch.setattr(ctypes, "CDLL", ctypes.CDLL)
        monkeypatch.setitem(sys.modules, "tensorrt", None)
        driver = fake_tensorrt.FakeDriver(devices, broken)
        return fake_tensorrt.install(version, driver, refusal), driver

    return make


def request(path: str = "model.onnx", precision: str = "fp32", **more: Any) -> dict[str, Any]:
    usual = {"key": "k", "typed_path": "", "copies": 1, "alone": False}
    return {**usual, "path": path, "precision": precision, **more}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("precision", ["fp32", "fp32-strict", "tf32", "fp16"])
def test_every_call_exists(fake: MakeFake, version: str, precision: str, tmp_path: Path) -> None:
    module, driver = fake(version)
    cache = tmp_path / "timing.cache"
    engine = open_engine("tensorrt", {"timing_cache": str(cache)})
    about = engine.build(**request(precision=precision, typed_path="typed.onnx", copies=3))
    assert about["launch"] == "graph"
    assert len(engine.run_us("k", 7)) == 7
    layers = engine.layers("k")
    assert layers["engine"]["Layers"][0]["Name"] == "a\x1eb"
    recorded = module.recorded
    old = version in ("8.5", "8.6")
    flag = getattr(module.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
    assert (flag is not None and bool(recorded["network"] & 1 << flag)) == old
    if precision == "fp16":
        typed = "FP16" not in API[version]["BuilderFlag"]
        assert recorded["parsed"] == ["typed.onnx" if typed else "model.onnx"]
        assert recorded["flags"] == ([] if typed else ["FP16"])
    assert recorded["cleared"] == (["TF32"] if precision == "fp32-strict" else [])
    assert recorded.get("preview", "").startswith("DISABLE_EXTERNAL") == old
    assert cache.read_bytes() == b"+"
    if "max_aux_streams" in API[version]["IBuilderConfig"]:
        assert recorded["config"].max_aux_streams == 0
    assert engine.board()["gpu"] == "NVIDIA H100 80GB HBM3"
    assert driver.live
    engine.drop("k")
    assert not driver.live


def test_a_short_part_is_timed_many_to_a_launch_every_copy_equally(fake: MakeFake) -> None:
    fake("8.6")
    engine = open_engine("tensorrt", {})
    about = engine.build(**request(alone=True, copies=3))
    assert about["inferences_per_launch"] % 3 == 0
    assert engine.run_us("k", 2) == pytest.approx([50 / about["inferences_per_launch"]] * 2)


def test_where_graphs_cannot_be_captured_work_is_enqueued(fake: MakeFake) -> None:
    fake("8.6", broken="cuStreamEndCapture")
    engine = open_engine("tensorrt", {})
    assert engine.build(**request())["launch"] == "enqueue"
    assert engine.run_us("k", 3) == pytest.approx([25] * 3)  # two contexts between two events


def test_work_through_pycuda_is_no_graph() -> None:
    """It has none: what is built says that it was enqueued."""
    cuda = PyCuda.__new__(PyCuda)  # without a driver
    with pytest.raises(EngineError, match="no CUDA graphs"):
        cuda.capture(lambda: None)


def test_a_device_that_is_lost_ends_the_process(fake: MakeFake) -> None:
    fake("8.6", broken="cuGraphLaunch")  # with status 700, after which CUDA refuses everything
    with pytest.raises(DeviceLost, match="cuGraphLaunch with status 700"):
        open_engine("tensorrt", {}).build(**request())


def test_refusals_are_one_models(fake: MakeFake) -> None:
    fake("10.0")
    engine = open_engine("tensorrt", {})
    with pytest.raises(EngineError, match="no importer for Op"):
        engine.build(**request("refused.onnx"))
    with pytest.raises(EngineError, match="could not build"):
        engine.build(**request("unbuildable.onnx"))
    with pytest.raises(EngineError, match="cannot build int8"):
        engine.build(**request(precision="int8"))
    assert engine.build(**request())["launch"] == "graph"


def test_what_the_machine_lacks_is_named(fake: MakeFake) -> None:
    fake("8.4")
    with pytest.raises(NoDevice, match=r"use run\.sh"):
        open_engine("tensorrt", {})
    fake("8.6", devices=0)
    sys.modules["tensorrt"] = None  # type: ignore[assignment]
    with pytest.raises(NoDevice, match="sees no GPU"):
        open_engine("tensorrt", {})
    fake("8.6", refusal="CUDA initialization failure with error: 35")
    with pytest.raises(
        NoDevice, match="does not start: CUDA initialization failure with error: 35"
    ):
        open_engine("tensorrt", {})
    with pytest.raises(NoDevice, match="no engine 'cudnn'"):
        open_engine("cudnn", {})
    with pytest.raises(NoDevice, match="layouts is no option of TensorRT: timing_cache is"):
        open_engine("tensorrt", {"layouts": "both"})
