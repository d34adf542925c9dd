"""TensorRT under CUDA graphs, several copies in turn."""

import json
import random
import struct
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import DeviceLost, EngineError
from .cuda import Cuda, Work, open_cuda
from .engines import Engine, Request
from .nvml import Reading, Sensors
from .trt_builder import EngineBuilder

_SHORT_US = 100.0  # a graph shorter than this is timed by how fast the CPU launches it
_SHORT_NETWORK_US = 50.0
_CONTEXTS = 2  # sets of inputs that a model with one copy of its weights runs on in turn
_PROFILE_RUNS = 30
_BITS = {
    "FLOAT": 32, "HALF": 16, "BF16": 16, "INT32": 32, "INT64": 64, "INT8": 8, "UINT8": 8,
    "BOOL": 8, "FP8": 8, "E8M0": 8, "INT4": 4, "FP4": 4,
}  # fmt: skip


def tolerant_json(text: str) -> Any:
    """The inspector's JSON; 8.6 may write raw control characters, or no JSON at all."""
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
        """The engine's layers, from its inspector."""
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
            {"name": name, "median_us": sorted(taken)[len(taken) // 2], "runs": len(taken)}
            for name, taken in times.items()
        ]


_Model = NamedTuple(
    "_Model",
    [("cuda", Cuda), ("loaded", List[Loaded]), ("replay", Work), ("inferences", int), ("how", str)],
)


class TensorRtEngine(Engine):
    """One device's TensorRT."""

    name = "tensorrt"

    def __init__(self, timing_cache: str = "", cuda: str = "", level: str = "") -> None:
        self._builder = EngineBuilder(timing_cache, level)
        self._cuda_choice = cuda or None
        self.version = self._builder.version
        if self._builder.rtx:
            self.name = "tensorrt-rtx"
        self._first = open_cuda(self._cuda_choice)
        self._about = self._first.describe()
        self._sensors = Sensors(self._about.get("pci_bus", ""))
        self._models: Dict[str, _Model] = {}

    def settings(self) -> Dict[str, str]:
        return self._builder.settings()

    def board(self) -> Dict[str, str]:
        facts = dict(self._about)
        facts.update(self._sensors.describe())
        return facts

    def read_sensors(self) -> Reading:
        return self._sensors.read()

    def build(self, request: Request) -> Dict[str, Any]:
        built = self._builder.build(request.path, request.precision, request.typed_path)
        self.drop(request.key)
        cuda = open_cuda(self._cuda_choice)
        try:
            engines = [self._builder.load(built.plan) for _ in range(max(1, request.copies))]
            contexts = _CONTEXTS if len(engines) == 1 else 1
            loaded = [
                Loaded(self._builder.trt, cuda, engine, _noise)
                for engine in engines
                for _ in range(contexts)
            ]
            model = _make_graph(cuda, loaded, request.alone)
        except EngineError:
            cuda.release()
            raise
        self._models[request.key] = model
        return {
            "build_s": round(built.seconds, 3), "plan_bytes": len(built.plan), "typed": built.typed,
            "launch": model.how, "inferences_per_launch": model.inferences, "copies": len(engines),
        }  # fmt: skip

    def run_us(
        self, key: str, count: int, during: Optional[Callable[[], None]] = None
    ) -> List[float]:
        model = self._model(key)
        times = model.cuda.elapsed_us([model.replay] * count, during)
        return [t / model.inferences for t in times]

    def layers(self, key: str) -> Any:
        first = self._model(key).loaded[0]
        return {"engine": first.describe(), "profile": first.profile(_PROFILE_RUNS)}

    def drop(self, key: str) -> None:
        model = self._models.pop(key, None)
        if model is not None:
            model.cuda.release()

    def _model(self, key: str) -> _Model:
        if key not in self._models:
            raise EngineError("the model %s has not been built in this process" % key)
        return self._models[key]


def _make_graph(cuda: Cuda, loaded: List[Loaded], alone: bool) -> _Model:
    """Capture as many inferences as make one launch long enough to hide the next."""
    enqueues = [one.enqueue for one in loaded]
    for _ in range(2):  # lazy set-up on the first inferences must not be captured
        cuda.elapsed_us(enqueues)

    def repeated(count: int) -> Work:
        def run() -> None:
            for i in range(count):
                enqueues[i % len(enqueues)]()

        return run

    # A replay shows how long an inference takes: enqueued one by one, the CPU sets the pace.
    try:
        every, how = cuda.capture(repeated(len(enqueues))), "graph"
    except DeviceLost:
        raise
    except EngineError:
        every, how = repeated(len(enqueues)), "enqueue"
    cuda.elapsed_us([every] * 3)
    alone_us = max(0.5, min(cuda.elapsed_us([every] * 10)) / len(enqueues))
    aim = _SHORT_US if alone else _SHORT_NETWORK_US
    inferences = max(1, int(-(-aim // alone_us)))
    if inferences > 1 or alone:  # every copy equally often
        inferences = -(-inferences // len(enqueues)) * len(enqueues)
    if inferences == len(enqueues):
        return _Model(cuda, loaded, every, inferences, how)
    if inferences > 1:
        work = repeated(inferences)
        return _Model(cuda, loaded, cuda.capture(work) if how == "graph" else work, inferences, how)
    replays = [cuda.capture(e) for e in enqueues] if how == "graph" else list(enqueues)
    return _Model(cuda, loaded, _in_turn(replays), 1, how)


def _in_turn(works: List[Work]) -> Work:
    state = [0]

    def run() -> None:
        works[state[0]]()
        state[0] = (state[0] + 1) % len(works)

    return run


_pool: List[float] = []


def _noise(kind: str, size: int) -> bytes:
    """Seeded numbers for an input: zeros would run faster than real data does."""
    if not _pool:
        source = random.Random("hybridlat inputs")
        _pool.extend(source.uniform(-1.7, 1.7) for _ in range(65521))
    if kind == "FLOAT":
        block = struct.pack("<%df" % len(_pool), *_pool)
    elif kind == "HALF":
        block = struct.pack("<%de" % len(_pool), *_pool)
    elif kind == "BF16":
        raw = struct.pack("<%df" % len(_pool), *_pool)
        block = b"".join(raw[i + 2 : i + 4] for i in range(0, len(raw), 4))
    else:  # indices and masks: valid wherever they are read
        return b"\0" * size
    return (block * (size // len(block) + 1))[:size]


def open_engine(options: Dict[str, str]) -> Engine:
    """TensorRT with the options ``timing_cache`` (a file), ``cuda`` (an adapter's name) and
    ``level`` (of the builder's optimisation, 0 to 5; else TensorRT's own default)."""
    return TensorRtEngine(
        options.get("timing_cache", ""), options.get("cuda", ""), options.get("level", "")
    )
