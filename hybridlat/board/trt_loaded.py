"""A built TensorRT engine on the device: its buffers, one inference, its layers, its profile."""

import json
from typing import Any, Callable, Dict, List

from .cuda import Cuda
from .errors import EngineError

_BITS = {
    "FLOAT": 32, "HALF": 16, "BF16": 16, "INT32": 32, "INT64": 64, "INT8": 8, "UINT8": 8,
    "BOOL": 8, "FP8": 8, "E8M0": 8, "INT4": 4, "FP4": 4,
}  # fmt: skip


def tolerant_json(text: str) -> Any:
    """The inspector's JSON; 8.6 may write raw control characters, and other things nobody reads."""
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return {"raw": text}


class Loaded(object):
    """One execution context with its own input and output buffers.

    ``noise(type, bytes)`` makes the content of an input.
    """

    def __init__(
        self, trt: Any, cuda: Cuda, engine: Any, noise: Callable[[str, int], bytes]
    ) -> None:
        self._trt, self._cuda, self._engine = trt, cuda, engine
        self._context = self._new_context()
        self._addresses: Dict[str, int] = {}
        for i in range(engine.num_io_tensors):
            name = engine.get_tensor_name(i)
            kind = engine.get_tensor_dtype(name).name
            count = 1
            for dim in engine.get_tensor_shape(name):
                if dim < 0:
                    raise EngineError("the shape of %r is not static" % name)
                count *= dim
            size = (count * _BITS[kind] + 7) // 8
            address = cuda.allocate(size)
            if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
                cuda.upload(address, noise(kind, size))
            self._addresses[name] = address
        self._bind(self._context)

    def _new_context(self) -> Any:
        context = self._engine.create_execution_context()
        if context is None:
            raise EngineError("TensorRT is out of memory for an execution context")
        return context

    def _bind(self, context: Any) -> None:
        for name, address in self._addresses.items():
            if context.set_tensor_address(name, address) is False:
                raise EngineError("TensorRT refused a buffer for %r" % name)

    def enqueue(self) -> None:
        """Put one inference on the stream."""
        if not self._context.execute_async_v3(self._cuda.stream):
            raise EngineError("TensorRT could not run the engine")

    def describe(self) -> Any:
        """The engine's layers as the inspector tells them."""
        inspector = self._engine.create_engine_inspector()
        text = inspector.get_engine_information(self._trt.LayerInformationFormat.JSON)
        return tolerant_json(text)

    def profile(self, runs: int) -> List[Dict[str, Any]]:
        """Median microseconds of every layer over ``runs`` profiled inferences.

        Profiling slows an engine down: the sum is not its latency. A context of its own is
        profiled, so that the one that is timed never carries a profiler.
        """
        trt = self._trt
        times: Dict[str, List[float]] = {}

        class Profiler(trt.IProfiler):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                trt.IProfiler.__init__(self)

            def report_layer_time(self, layer_name: str, ms: float) -> None:
                times.setdefault(layer_name, []).append(ms * 1e3)

        context, profiler = self._new_context(), Profiler()
        self._bind(context)
        context.profiler = profiler

        def enqueue() -> None:
            if not context.execute_async_v3(self._cuda.stream):
                raise EngineError("TensorRT could not run the engine under its profiler")

        for _ in range(runs):
            self._cuda.elapsed_us([enqueue])
        return [
            {
                "name": name,
                "median_us": sorted(layer_times)[len(layer_times) // 2],
                "runs": len(layer_times),
            }
            for name, layer_times in times.items()
        ]
