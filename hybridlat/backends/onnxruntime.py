"""ONNX Runtime on the CPU: the engine that runs everywhere."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridlat import onnx_io
from hybridlat.backends.base import Backend, Session
from hybridlat.core.network import Lowered, Network
from hybridlat.core.target import Target
from hybridlat.errors import BackendUnavailable, MeasurementError
from hybridlat.lowering import onnxruntime as lowering
from hybridlat.machine import cpu_device, cpu_environment

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PRECISIONS = ("fp32",)


class OnnxRuntimeBackend(Backend):
    """ONNX Runtime's CPU provider with ``threads`` threads, in the file's own precision."""

    name = "onnxruntime"
    protocol = "twins"

    def __init__(self, threads: int = 1) -> None:
        if threads < 1:
            raise BackendUnavailable(f"{threads} threads cannot run anything: give 1 or more")
        try:
            import onnxruntime
        except ImportError as error:
            raise BackendUnavailable(
                f"ONNX Runtime cannot be loaded ({error}): pip install onnxruntime"
            ) from error
        self.threads = threads
        self.version: str = onnxruntime.__version__
        short = ".".join(self.version.split(".")[:2])
        self._target = Target(cpu_device(), f"onnxruntime-{short}", "fp32", threads)

    @property
    def target(self) -> Target:
        return self._target

    def environment(self) -> Mapping[str, str]:
        return {"engine": f"onnxruntime {self.version}", **cpu_environment()}

    def lower(self, network: Network) -> Lowered:
        return lowering.lower(network, self.threads)

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        return OnnxRuntimeSession(network, seed=seed, lowered=lowered, threads=self.threads)


class OnnxRuntimeSession(Session):
    """One session with its own arena, weights, and input and output buffers.

    The inputs are written anew before every run, outside the timed part: in a network a cell's
    input has just been written by its predecessor.
    """

    def __init__(self, network: Network, *, seed: int, lowered: bool, threads: int) -> None:
        import onnxruntime

        options = lowering.session_options(threads)
        if lowered:
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        try:
            self._session: Any = onnxruntime.InferenceSession(
                onnx_io.to_onnx(network, seed), options, providers=["CPUExecutionProvider"]
            )
            self._bind(network, seed)
            self._session.run_with_iobinding(self._binding)
        except MeasurementError:
            raise
        except Exception as error:  # the engine raises many kinds
            words = " ".join(str(error).split())[:300]
            raise MeasurementError(f"ONNX Runtime cannot run {network.name}: {words}") from error

    def _bind(self, network: Network, seed: int) -> None:
        import onnxruntime

        self._binding = self._session.io_binding()
        self._feeds: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._kept: list[Any] = []
        wanted = {info.name for info in self._session.get_inputs()}
        for place, name in enumerate(network.inputs):
            if name not in wanted:
                continue  # an input that nothing reads
            source = onnx_io.random_array(network.types[name], seed * 31 + place)
            buffer = source.copy()
            self._feeds.append((buffer, source))
            self._binding.bind_cpu_input(name, buffer)
        for name in network.outputs:
            type_ = network.types[name]
            value = onnxruntime.OrtValue.ortvalue_from_numpy(onnx_io.zeros(type_))
            self._kept.append(value)
            self._binding.bind_ortvalue_output(name, value)

    def run_us(self, count: int) -> list[float]:
        samples: list[float] = []
        session, binding = self._session, self._binding
        usage = resource.getrusage
        clock = time.perf_counter_ns
        for _ in range(count):
            for buffer, source in self._feeds:
                np.copyto(buffer, source)
            switches = usage(resource.RUSAGE_THREAD).ru_nivcsw
            start = clock()
            session.run_with_iobinding(binding)
            stop = clock()
            if usage(resource.RUSAGE_THREAD).ru_nivcsw == switches:
                samples.append((stop - start) / 1e3)
        return samples

    def close(self) -> None:
        self._session = self._binding = None
        self._feeds, self._kept = [], []


def version_of(runtime: str) -> str:
    """``1.31`` of ``onnxruntime-1.31``; empty where the target names no version."""
    match = re.search(r"-([0-9][0-9.]*)$", runtime)
    return match[1] if match else ""


def pin(threads: int) -> None:
    """Keep this process on its last ``threads`` cores, so that it does not wander while timing."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[-threads:])
