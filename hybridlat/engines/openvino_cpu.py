"""OpenVINO on the CPU: its kernels, and sessions that time cells behind their predecessor.

A compiled model tells its execution graph, where each layer names the operators of the file that it
computes. The plugin does not give out a graph that could be cut and run again, so cells are timed
behind their predecessor (:mod:`hybridlat.measuring.schedule`).
"""

import functools
import re
import resource
import sys
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any, cast

import numpy as np

from hybridlat import onnx_io
from hybridlat.engines.base import Method, Session
from hybridlat.engines.fusion.groups import Claimed, Groups, lowered_of, numbered
from hybridlat.engines.host import CpuBackend, CpuSession, cpu, instructions, one_line
from hybridlat.errors import HybridlatError, MeasurementError, MissingExtra
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.operators import VIEWS
from hybridlat.schema.target import Target

_NOT_KERNELS = frozenset({"Input", "Const", "Output", "Reorder", "Parameter", "Result"})
_OPTIONS = {"NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False}
# An operator that the engine splits up leaves its name on the parts: n12/WithoutBiases, n12.0
_ORIGIN = re.compile(r"n(\d+)(?:[./_:].*)?")


def package() -> Any:
    """The module ``openvino``, without the event that its import sends; MissingExtra without it."""
    is_blocked = sys.modules.setdefault("openvino_telemetry", cast(ModuleType, None)) is None
    try:
        import openvino
    except ImportError as error:
        raise MissingExtra("openvino", "openvino", "Running networks on OpenVINO") from error
    finally:
        if is_blocked:
            del sys.modules["openvino_telemetry"]
    return openvino


@functools.cache
def core() -> Any:
    """The engine, one for the process; MissingExtra without the package."""
    return package().Core()


def version() -> str:
    """Version of the engine, as ``2026.4.1``; MissingExtra without the package."""
    return str(package().__version__).split("-", 1)[0]


def compile_network(network: Network, seed: int, threads: int) -> Any:
    """Compile for one stream of ``threads`` threads in FP32; MeasurementError when refused."""
    engine = core()
    try:
        model = engine.read_model(onnx_io.to_onnx(network, seed))
        return engine.compile_model(model, "CPU", {**_OPTIONS, "INFERENCE_NUM_THREADS": threads})
    except (HybridlatError, KeyError, ValueError, RuntimeError, TypeError) as error:
        raise MeasurementError(f"OpenVINO refuses {network.name}: {one_line(error)}") from error


def identity(target: Target) -> str:
    """The installed engine, its threads, and what of this CPU decides what it fuses."""
    # A depthwise convolution joins another that the last cache cannot hold, but with AVX-512.
    here = f"{instructions()}/{cpu().cache_bytes[-1]}"
    return f"openvino-{version()}/{target.threads or 1}t/{here}"


def lower(network: Network, target: Target) -> Lowered:
    """Ask OpenVINO; MissingExtra without it, MeasurementError when it refuses the network."""
    compiled = compile_network(numbered(network), 1, target.threads or 1)
    groups = groups_of(network, _claims(compiled.get_runtime_model()))
    return lowered_of(network, groups, f"openvino {version()}")


def _claims(runtime_model: Any) -> list[tuple[int, ...]]:
    """The operators that each layer of the execution graph says it computes, in running order."""
    claims = []
    for layer in runtime_model.get_ordered_ops():
        about = layer.get_rt_info()
        names = _text(about, "originalLayersNames").split(",")
        matches = [match for name in names if (match := _ORIGIN.fullmatch(name))]
        if matches and _text(about, "layerType") not in _NOT_KERNELS:
            claims.append(tuple(dict.fromkeys(int(match[1]) for match in matches)))
    return claims


def _text(about: Any, key: str) -> str:
    value = about[key] if key in about else ""  # noqa: SIM401 (this map has no get)
    return str(value.astype(str) if hasattr(value, "astype") else value)


def groups_of(network: Network, claims: Sequence[tuple[int, ...]]) -> Groups:
    """Each operator in one group: the first layer that claims it.

    One that no layer claims belongs to the layer that reads it, else to the one it reads from: a
    folded normalisation takes the name of its convolution with it.
    """
    claimed = Claimed(network, claims)
    lost = [i for i, n in enumerate(network.nodes) if i not in claimed.by and n.op not in VIEWS]
    for position in reversed(lost):
        if readers := claimed.readers(position):
            claimed.by[position] = readers[0]
    for position in [i for i in lost if i not in claimed.by]:
        if makers := claimed.makers(position):
            claimed.by[position] = makers[-1]
    return claimed.groups()


class OpenVinoBackend(CpuBackend):
    """OpenVINO's CPU plugin with ``threads`` threads in one stream, in FP32."""

    name = "openvino"
    method = Method.DIFFERENTIAL
    find_version = staticmethod(version)

    def lower(self, network: Network) -> Lowered:
        return lower(network, self.target)

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        return OpenVinoSession(network, seed, self.threads)


class OpenVinoSession(CpuSession):
    """One compiled model with its own weights, and one request with its own buffers."""

    engine = "OpenVINO"
    watched = resource.RUSAGE_SELF  # the engine works in a thread of its own
    long_run_us = 20_000.0

    def __init__(self, network: Network, seed: int, threads: int) -> None:
        super().__init__(network.name, threads)
        compiled = compile_network(network, seed, threads)
        try:
            request: Any = compiled.create_infer_request()
            for port in compiled.inputs:
                name = next(n for n in port.get_names() if n in network.types)
                source = onnx_io.random_array(network.types[name], seed * 31 + len(self._feeds))
                buffer = np.ascontiguousarray(source).copy()
                request.set_tensor(port, package().Tensor(buffer, shared_memory=True))
                self._feeds.append((buffer, source))
            self._run = partial(request.infer, share_outputs=True)
            self._run()
        except (RuntimeError, ValueError, StopIteration) as error:
            raise self._failed(error) from error
