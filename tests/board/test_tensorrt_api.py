"""TensorRT through the worker, on a recorded fake driver and module of every version."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from hybridlat import onnx_io
from hybridlat.board import DeviceLost, EngineError, NoDevice
from hybridlat.board.client import Worker
from hybridlat.board.engine_tensorrt import TensorRtEngine
from hybridlat.board.engines import Request, open_engine
from hybridlat.engines import registry
from hybridlat.engines.fusion.expand import unfuse
from hybridlat.engines.tensorrt.session import TensorRtBackend
from hybridlat.errors import BackendUnavailable
from tests.board import fake_tensorrt
from tests.board.conftest import lower, small_network

VERSIONS = ("8.5", "8.6", "10.0", "10.16", "11.4")
API = json.loads(fake_tensorrt.GOLDEN.read_text())
DUMPS = Path(__file__).resolve().parents[3] / "shared" / "gpu" / "api"


class MakeFake(Protocol):
    """Install TensorRT of a version; gives the module and the driver."""

    def __call__(
        self, version: str, *, devices: int = 1, broken: str = ""
    ) -> tuple[Any, fake_tensorrt.FakeDriver]: ...


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> MakeFake:
    def make(
        version: str, *, devices: int = 1, broken: str = ""
    ) -> tuple[Any, fake_tensorrt.FakeDriver]:
        monkeypatch.setattr(ctypes, "CDLL", ctypes.CDLL)
        monkeypatch.setitem(sys.modules, "tensorrt", None)
        driver = fake_tensorrt.FakeDriver(devices, broken)
        return fake_tensorrt.install(version, driver), driver

    return make


def request(path: str = "model.onnx", precision: str = "fp32", **more: Any) -> Request:
    usual = Request("k", path, typed_path="", precision=precision, copies=1, alone=False)
    return usual._replace(**more)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_every_call_exists_in_the_version(
    fake: MakeFake, version: str, precision: str, tmp_path: Path
) -> None:
    module, driver = fake(version)
    cache = tmp_path / "timing.cache"
    engine = open_engine("tensorrt", {"timing_cache": str(cache)})
    about = engine.build(request(precision=precision, typed_path="typed.onnx", copies=3))
    assert about["launch"] == "graph"
    assert len(engine.run_us("k", 7)) == 7
    layers = engine.layers("k")
    assert layers["engine"]["Layers"][0]["Name"] == "a\x1eb"
    assert layers["profile"][0]["median_us"] == pytest.approx(20)
    recorded = module.recorded
    old = version in ("8.5", "8.6")
    explicit = [i for i, n in enumerate(sorted(API[version]["NetworkDefinitionCreationFlag"]))
                if n == "EXPLICIT_BATCH"]  # fmt: skip
    assert bool(recorded["network"] & (1 << explicit[0] if explicit else 0)) == old
    if precision == "fp16":
        typed = "FP16" not in API[version]["BuilderFlag"]
        assert recorded["parsed"] == ["typed.onnx" if typed else "model.onnx"]
        assert recorded["flags"] == ([] if typed else ["FP16"])
    assert recorded["cleared"] == (["TF32"] if precision == "fp32" else [])
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
    about = engine.build(request(alone=True, copies=3))
    assert about["inferences_per_launch"] % 3 == 0
    assert engine.run_us("k", 2) == pytest.approx([50 / about["inferences_per_launch"]] * 2)


def test_where_graphs_cannot_be_captured_work_is_enqueued(fake: MakeFake) -> None:
    fake("8.6", broken="cuStreamEndCapture")
    engine = open_engine("tensorrt", {})
    assert engine.build(request())["launch"] == "enqueue"
    assert engine.run_us("k", 3) == pytest.approx([25] * 3)  # two contexts between two events


def test_a_device_that_is_lost_ends_the_process(fake: MakeFake) -> None:
    fake("8.6", broken="cuGraphLaunch")  # with status 700, after which CUDA refuses everything
    with pytest.raises(DeviceLost, match="cuGraphLaunch with status 700"):
        open_engine("tensorrt", {}).build(request())


def test_profiling_takes_a_context_of_its_own(fake: MakeFake) -> None:
    _, driver = fake("8.6")
    engine = open_engine("tensorrt", {})
    assert isinstance(engine, TensorRtEngine)
    engine.build(request())
    before = driver.calls.count("cuMemAlloc_v2")
    assert engine.layers("k")["profile"][0]["runs"] == 30
    assert driver.calls.count("cuMemAlloc_v2") == before  # the buffers are shared
    assert engine._models["k"].loaded[0]._context.profiler is None


@pytest.mark.parametrize(("version", "level"), [("8.5", None), ("8.6", 2)])
def test_the_level_of_optimisation_where_the_version_has_one(
    fake: MakeFake, version: str, level: int | None
) -> None:
    module, _ = fake(version)
    engine = open_engine("tensorrt", {"level": "2"})
    engine.build(request())
    assert engine.settings()["optimization_level"] == "2"
    assert getattr(module.recorded["config"], "builder_optimization_level", None) == level
    with pytest.raises(NoDevice, match="choose 0 to 5"):
        open_engine("tensorrt", {"level": "9"})


def test_refusals_are_one_models(fake: MakeFake) -> None:
    fake("10.0")
    engine = open_engine("tensorrt", {})
    with pytest.raises(EngineError, match="no importer for Op"):
        engine.build(request("refused.onnx"))
    with pytest.raises(EngineError, match="could not build"):
        engine.build(request("unbuildable.onnx"))
    with pytest.raises(EngineError, match="cannot build int8"):
        engine.build(request(precision="int8"))
    assert engine.build(request())["launch"] == "graph"


def test_before_8_5_run_sh_is_named(fake: MakeFake) -> None:
    fake("8.4")
    with pytest.raises(NoDevice, match=r"use run\.sh"):
        open_engine("tensorrt", {})


def test_without_a_gpu_tensorrt_is_not_touched(fake: MakeFake) -> None:
    fake("8.6", devices=0)
    sys.modules["tensorrt"] = None  # type: ignore[assignment]
    with pytest.raises(NoDevice, match="sees no GPU"):
        open_engine("tensorrt", {})


def test_without_a_driver_one_sentence_and_exit_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HYBRIDLAT_TENSORRT_CACHE", str(tmp_path))
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(BackendUnavailable, match=r"libcuda\.so\.1 cannot be loaded") as caught:
            registry.open_backend("tensorrt")
        assert caught.value.exit_code == 3
        assert "\n" not in str(caught.value)
    else:
        pytest.skip("this machine has a driver")


@pytest.mark.skipif(not DUMPS.is_dir(), reason="the API dumps are not beside this repository")
@pytest.mark.parametrize("version", ["8.4", *VERSIONS])
def test_the_golden_names_are_those_of_the_bindings(version: str) -> None:
    dump = json.loads((DUMPS / f"api_{version}.json").read_text())
    for kind, names in API["asked"].items():
        there = [name for name in names if name in (dump.get(kind) or [])]
        assert API[version].get(kind, []) == there, kind


@pytest.mark.parametrize("version", VERSIONS)
def test_the_backend_in_its_worker_process(version: str, tmp_path: Path) -> None:
    def start() -> Worker:
        shim = str(fake_tensorrt.shim(tmp_path, version))
        return Worker(shim, "tensorrt", {}, log=str(tmp_path / "log"))

    backend = TensorRtBackend("fp16", start)
    expected = ".".join(API[version]["__version__"].split(".")[:2])
    assert str(backend.target) == f"h100/tensorrt-{expected}/fp16"
    assert backend.environment()["external_tactics"] == "none"
    assert backend.lower(small_network()).by == f"rules tensorrt-{expected}"


def test_fused_kernels_become_the_operators_they_hold() -> None:
    network = small_network()
    whole = unfuse(lower(network).network)
    ops = [n.op for n in whole.nodes if n.op not in ("Identity", "Flatten")]
    assert ops == ["Conv", "Relu", "Conv", "Add", "GlobalAveragePool", "Gemm"]
    assert len(onnx_io.read_network(onnx_io.to_onnx(whole, 1)).nodes) >= len(ops)
