"""ONNX Runtime on the CPU: the engine that runs everywhere."""

import functools
import resource
from copy import copy
from functools import partial
from typing import Any

from numpy.typing import NDArray

from hybridlat import onnx_io
from hybridlat.engines.base import Method, Session, build_all
from hybridlat.engines.host import CpuBackend, CpuSession
from hybridlat.engines.ort import lowering
from hybridlat.errors import HybridlatError, MeasurementError
from hybridlat.graph.network import Lowered, Network

# Replicas take turns with this many sets of input and output buffers: an engine's arena gives a
# tensor memory that was last used a few tensors ago.
RING = 3


class OnnxRuntimeBackend(CpuBackend):
    """ONNX Runtime's CPU provider with ``threads`` threads, in the file's own precision."""

    name = "onnxruntime"
    method = Method.REPLICAS
    contexts = lowering.CONTEXTS
    find_version = staticmethod(lowering.installed_version)

    def lower(self, network: Network) -> Lowered:
        return lowering.lower(network, self.target)

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        data, buffers = _encode(network, seed), Buffers(network, seed)
        return OnnxRuntimeSession(network.name, data, buffers, self._options(lowered))

    def build_replicas(self, network: Network, *, count: int, seed: int) -> list[Session]:
        """Replicas with weights of their own, and one arena, one input and one output for all.

        Inside a network, cell after cell uses the memory of activations, which stays warm. The
        weights, and the inputs behind the first, have not been touched since the last inference.
        """
        data = _encode(network, seed)
        read = dict.fromkeys(name for node in network.nodes for name in node.inputs)
        cold = [name for name in read if name in network.inputs][1:]
        ring = [Buffers(network, seed + index) for index in range(min(count, RING))]
        _register_shared_arena()

        def build(replica: int) -> Session:
            options = self._options(lowered=True)
            options.add_session_config_entry("session.use_env_allocators", "1")
            key = "session.use_device_allocator_for_initializers"
            options.add_session_config_entry(key, "1")
            buffers = copy(ring[replica % len(ring)])
            buffers.cold = {name: buffers.inputs[name][1].copy() for name in cold}
            return OnnxRuntimeSession(network.name, data, buffers, options)

        return build_all(partial(build, replica) for replica in range(count))

    def _options(self, lowered: bool) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        # Weights are made up, so a softmax may saturate and what it scales become denormal: five
        # times as slow on some CPUs, and met in no trained network.
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        if lowered:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return options


def _encode(network: Network, seed: int) -> bytes:
    try:
        return onnx_io.to_onnx(network, seed)
    except (HybridlatError, KeyError, ValueError) as error:
        raise MeasurementError(f"{network.name} cannot be built: {error}") from error


@functools.cache
def _register_shared_arena() -> None:
    """One arena for all sessions of this process that ask for it; it can be registered once."""
    import onnxruntime

    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, None)


class Buffers:
    """Random inputs, and room for the outputs, of one network."""

    def __init__(self, network: Network, seed: int) -> None:
        import onnxruntime

        self.inputs: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        self.cold: dict[str, NDArray[Any]] = {}
        for index, name in enumerate(network.inputs):
            source = onnx_io.random_array(network.types[name], seed * 31 + index)
            self.inputs[name] = (source.copy(), source)
        self.outputs = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(onnx_io.zeros(network.types[name]))
            for name in network.outputs
        }


class OnnxRuntimeSession(CpuSession):
    """One session with its own weights."""

    engine = "ONNX Runtime"
    watched = resource.RUSAGE_THREAD
    long_run_us = 5_000.0

    def __init__(self, name: str, data: bytes, buffers: Buffers, options: Any) -> None:
        import onnxruntime

        super().__init__(name, options.intra_op_num_threads)
        try:
            session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
            binding = session.io_binding()
            names = {info.name for info in session.get_inputs()}
            for tensor, (buffer, source) in buffers.inputs.items():
                if tensor in names and tensor in buffers.cold:
                    binding.bind_cpu_input(tensor, buffers.cold[tensor])
                elif tensor in names:  # the engine drops an input that nothing reads
                    self._feeds.append((buffer, source))
                    binding.bind_cpu_input(tensor, buffer)
            for tensor, value in buffers.outputs.items():
                binding.bind_ortvalue_output(tensor, value)
            self._kept: Buffers | None = buffers
            self._run = partial(session.run_with_iobinding, binding)
            self._run()
        except Exception as error:  # the engine raises many kinds
            raise self._failed(error) from error

    def close(self) -> None:
        super().close()
        self._kept = None
