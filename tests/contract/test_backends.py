"""Every backend that can be had here, held to the contract."""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path

import pytest

from hybridlat import backends
from hybridlat.backends.base import Backend
from hybridlat.backends.fake import FakeBackend, FakeDifferentialBackend
from hybridlat.backends.replay import ReplayBackend
from hybridlat.board.client import Worker
from hybridlat.core.cells import cut, kernels
from hybridlat.core.measurement import Measurement, Visit
from hybridlat.core.network import Network
from hybridlat.core.signature import sign
from hybridlat.errors import BackendUnavailable
from hybridlat.store import Store
from tests.board import fake_tensorrt
from tests.contract.backends import BackendContract, Case
from tests.networks import SMALL


def recorded() -> ReplayBackend:
    """A store with all that the contract builds, measured on the fake machine."""
    fake = FakeBackend()
    store = Store("sqlite://")

    def record(network: Network, kind: str) -> Measurement:
        session = fake.build(network, seed=1, lowered=kind == "cell")
        times = tuple(session.run_us(4))
        assert kind in ("cell", "network")
        return Measurement(
            fake.target, sign(network).hash, kind, sum(times) / 4, 0.01, (Visit(times),)
        )

    for make in SMALL:
        lowered = fake.lower(make())
        store.add([record(make(), "network")])
        store.add(record(c.network, "cell") for c in (*cut(lowered), *kernels(lowered)))
    return ReplayBackend(store, fake.target)


def onnxruntime() -> Backend:
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("ONNX Runtime is not installed")
    from hybridlat.backends.onnxruntime import OnnxRuntimeBackend

    return OnnxRuntimeBackend(threads=1)


def openvino() -> Backend:
    if "openvino" not in backends.available() or importlib.util.find_spec("openvino") is None:
        pytest.skip("the OpenVINO backend or its engine is not here")
    try:
        return backends.load("openvino")()
    except BackendUnavailable as error:
        pytest.skip(str(error))


@functools.cache
def tensorrt() -> Backend:
    """TensorRT 8.6's names on a made-up driver, in a real worker process."""
    from hybridlat.backends.tensorrt import TensorRtBackend

    shim = fake_tensorrt.shim(Path(tempfile.mkdtemp(prefix="hybridlat-test-")), "8.6")
    return TensorRtBackend("fp16", lambda: Worker(str(shim), "tensorrt"))


CASES = (
    Case("fake", FakeBackend, repeats=True),
    Case("fake, fusing", lambda: FakeBackend(fuses=True), repeats=True),
    Case("fake, differential", FakeDifferentialBackend, repeats=True),
    Case("replay", recorded, repeats=True),
    Case("onnxruntime", onnxruntime, repeats=False),
    Case("openvino", openvino, repeats=False),
    Case("tensorrt on a made-up driver", tensorrt, repeats=False),
)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found = request.param
    assert isinstance(found, Case)
    return found


class TestBackends(BackendContract):
    """The contract, once for each case."""
