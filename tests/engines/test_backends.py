"""Every backend that can be had here, held to the contract."""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path

import pytest

from hybridlat.board.client import Worker
from hybridlat.engines import registry
from hybridlat.engines.base import Backend
from hybridlat.errors import BackendUnavailable
from tests.board import fake_tensorrt
from tests.engines.backend_contract import BackendContract, Case
from tests.fakes.fake_backend import FakeBackend, FakeDifferentialBackend


def onnxruntime() -> Backend:
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("ONNX Runtime is not installed")
    from hybridlat.engines.onnxruntime.session import OnnxRuntimeBackend

    return OnnxRuntimeBackend(threads=1)


def openvino() -> Backend:
    if "openvino" not in registry.backends() or importlib.util.find_spec("openvino") is None:
        pytest.skip("the OpenVINO backend or its engine is not here")
    try:
        return registry.open_backend("openvino")
    except BackendUnavailable as error:
        pytest.skip(str(error))


@functools.cache
def tensorrt() -> Backend:
    """TensorRT 8.6's names on a made-up driver, in a real worker process."""
    from hybridlat.engines.tensorrt.session import TensorRtBackend

    shim = fake_tensorrt.shim(Path(tempfile.mkdtemp(prefix="hybridlat-test-")), "8.6")
    return TensorRtBackend("fp16", lambda: Worker(str(shim), "tensorrt"))


CASES = (
    Case("fake", FakeBackend, repeats=True),
    Case("fake, fusing", lambda: FakeBackend(fuses=True), repeats=True),
    Case("fake, differential", FakeDifferentialBackend, repeats=True),
    Case("onnxruntime", onnxruntime, repeats=False),
    Case("openvino", openvino, repeats=False),
    Case("tensorrt on a made-up driver", tensorrt, repeats=False),
)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    parameter = request.param
    assert isinstance(parameter, Case)
    return parameter


class TestBackends(BackendContract):
    """The contract, once for each case."""
