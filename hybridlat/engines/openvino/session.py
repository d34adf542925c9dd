"""OpenVINO on the CPU: the second engine, whose cells are timed behind their predecessor."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np

from hybridlat import onnx_io
from hybridlat.engines.base import Method, Session
from hybridlat.engines.cpu import CpuBackend
from hybridlat.engines.fusion.expand import unfuse
from hybridlat.engines.openvino import lowering
from hybridlat.errors import BackendUnavailable, MeasurementError, MissingExtra
from hybridlat.graph.network import Lowered, Network

# A run this long is always switched out now and then, and loses little by it.
LONG_RUN_US = 20_000.0


class OpenVinoBackend(CpuBackend):
    """OpenVINO's CPU plugin with ``threads`` threads in one stream, in FP32."""

    name = "openvino"
    method = Method.DIFFERENTIAL

    @staticmethod
    def _version() -> str:
        try:
            return lowering.version()
        except MissingExtra as error:
            raise BackendUnavailable(str(error)) from error

    def lower(self, network: Network) -> Lowered:
        return lowering.lower(network, self.target)

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        return OpenVinoSession(unfuse(network) if lowered else network, seed, self.threads)


class OpenVinoSession(Session):
    """One compiled model with its own weights, and one request with its own buffers.

    The inputs are written anew before every run, outside the timed part.
    """

    def __init__(self, network: Network, seed: int, threads: int) -> None:
        import openvino

        compiled = lowering.compile_network(network, seed, threads)
        self._name = network.name
        self._feeds: list[tuple[Any, Any]] = []
        try:
            self._request: Any = compiled.create_infer_request()
            for port in compiled.inputs:
                name = next(n for n in port.get_names() if n in network.types)
                source = onnx_io.random_array(network.types[name], seed * 31 + len(self._feeds))
                buffer = np.ascontiguousarray(source).copy()
                self._request.set_tensor(port, openvino.Tensor(buffer, shared_memory=True))
                self._feeds.append((buffer, source))
            self._request.infer(share_outputs=True)
        except (RuntimeError, ValueError, StopIteration) as error:
            raise self._failed(error) from error

    def run_us(self, count: int) -> list[float]:
        samples: list[float] = []
        usage, clock = resource.getrusage, time.perf_counter_ns
        infer = self._request.infer
        for _ in range(count):
            for buffer, source in self._feeds:
                np.copyto(buffer, source)
            # The engine works in a thread of its own: the whole process is watched.
            switches = usage(resource.RUSAGE_SELF).ru_nivcsw
            start = clock()
            try:
                infer(share_outputs=True)
            except RuntimeError as error:
                raise self._failed(error) from error
            stop = clock()
            sample_us = (stop - start) / 1e3
            disturbed = usage(resource.RUSAGE_SELF).ru_nivcsw != switches
            if not disturbed or sample_us > LONG_RUN_US:
                samples.append(sample_us)
        return samples

    def close(self) -> None:
        self._request = None
        self._feeds = []

    def _failed(self, error: Exception) -> MeasurementError:
        words = " ".join(str(error).split())[:300]
        return MeasurementError(f"OpenVINO cannot run {self._name}: {words}")
