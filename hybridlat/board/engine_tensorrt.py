"""TensorRT under CUDA graphs, several copies in turn."""

import itertools
import json
import random
import struct
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import DeviceLost, EngineError, NoDevice
from .cuda import Cuda, Sensors, Work, open_cuda
from .trt_builder import EngineBuilder
from .visits import Engine, Reading

_SHORT_US = 100.0  # a graph shorter than this is timed by how fast the CPU launches it
_SHORT_NETWORK_US = 50.0
_CONTEXTS = 2  # sets of inputs that a model with one copy of its weights runs on in turn
_BITS = {
    "FLOAT": 32, "HALF": 16, "BF16": 16, "INT32": 32, "INT64": 64, "INT8": 8, "UINT8": 8,
    "BOOL": 8, "FP8": 8, "E8M0": 8, "INT4": 4, "FP4": 4,
}  # fmt: skip


class Loaded(object):
    """One execution context with its own input and output buffers."""

    def __init__(self, trt: Any, cuda: Cuda, engine: Any) -> None:
        self.engine = engine
        self._cuda = cuda
        self._context = engine.create_execution_context()
        if self._context is None:
            raise EngineError("TensorRT is out of memory for an execution context")
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
                cuda.upload(address, _noise(kind, size))
            if self._context.set_tensor_address(name, address) is False:
                raise EngineError("TensorRT refused a buffer for %r" % name)

    def enqueue(self) -> None:
        if not self._context.execute_async_v3(self._cuda.stream):
            raise EngineError("TensorRT could not run the engine")


_Model = NamedTuple(
    "_Model",
    [("cuda", Cuda), ("loaded", List[Loaded]), ("replay", Work), ("inferences", int), ("how", str)],
)


class TensorRtEngine(Engine):
    """One device's TensorRT."""

    name = "tensorrt"

    def __init__(self, timing_cache: str) -> None:
        self._builder = EngineBuilder(timing_cache)
        self.version = self._builder.version
        self._about = open_cuda().describe()
        self._sensors = Sensors(self._about.get("pci_bus", ""))
        self._models: Dict[str, _Model] = {}

    def settings(self) -> Dict[str, str]:
        return self._builder.settings()

    def board(self) -> Dict[str, str]:
        return dict(self._about, **self._sensors.describe())

    def read_sensors(self) -> Reading:
        return self._sensors.read()

    def build(
        self, key: str, path: str, typed_path: str, precision: str, copies: int, alone: bool
    ) -> Dict[str, Any]:
        plan = self._builder.build(path, precision, typed_path)
        self.drop(key)
        cuda = open_cuda()
        try:
            engines = [self._builder.load(plan) for _ in range(max(1, copies))]
            contexts = _CONTEXTS if len(engines) == 1 else 1
            load = partial(Loaded, self._builder.trt, cuda)
            loaded = [load(e) for e in engines for _ in range(contexts)]
            model = _make_graph(cuda, loaded, alone)
        except EngineError:
            cuda.release()
            raise
        self._models[key] = model
        return {"launch": model.how, "inferences_per_launch": model.inferences}

    def run_us(self, key: str, count: int, during: Optional[Work] = None) -> List[float]:
        model = self._model(key)
        return [t / model.inferences for t in model.cuda.elapsed_us([model.replay] * count, during)]

    def layers(self, key: str) -> Any:
        inspector = self._model(key).loaded[0].engine.create_engine_inspector()
        text = inspector.get_engine_information(self._builder.trt.LayerInformationFormat.JSON)
        try:
            return {"engine": json.loads(text, strict=False)}  # 8.6 writes raw control characters
        except ValueError:
            return {"engine": text}

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

    def run(count: int) -> None:
        for i in range(count):
            enqueues[i % len(enqueues)]()

    # A replay shows how long an inference takes: enqueued one by one, the CPU sets the pace.
    launch: Callable[[Work], Work] = cuda.capture
    how = "graph"
    try:
        every = launch(partial(run, len(enqueues)))
    except DeviceLost:
        raise
    except EngineError:
        launch, how = (lambda work: work), "enqueue"
        every = partial(run, len(enqueues))
    cuda.elapsed_us([every] * 3)
    alone_us = max(0.5, min(cuda.elapsed_us([every] * 10)) / len(enqueues))
    aim = _SHORT_US if alone else _SHORT_NETWORK_US
    inferences = max(1, int(-(-aim // alone_us)))
    if inferences > 1 or alone:  # every copy equally often
        inferences = -(-inferences // len(enqueues)) * len(enqueues)
    if inferences == len(enqueues):
        return _Model(cuda, loaded, every, inferences, how)
    if inferences > 1:
        return _Model(cuda, loaded, launch(partial(run, inferences)), inferences, how)
    turns = itertools.cycle([launch(enqueue) for enqueue in enqueues])
    return _Model(cuda, loaded, lambda: next(turns)(), 1, how)


_pool: List[float] = []


def _noise(kind: str, size: int) -> bytes:
    """Seeded numbers for an input: zeros would run faster than real data does."""
    if not _pool:
        source = random.Random("hybridlat inputs")
        _pool.extend(source.uniform(-1.7, 1.7) for _ in range(65521))
    if kind not in ("FLOAT", "HALF", "BF16"):  # indices and masks: valid wherever they are read
        return b"\0" * size
    block = struct.pack("<%d%s" % (len(_pool), "e" if kind == "HALF" else "f"), *_pool)
    if kind == "BF16":
        block = b"".join(block[i + 2 : i + 4] for i in range(0, len(block), 4))
    return (block * (size // len(block) + 1))[:size]


def open_engine(options: Dict[str, str]) -> Engine:
    """TensorRT with its only option, the file ``timing_cache``."""
    for name in sorted(set(options) - {"timing_cache"}):
        raise NoDevice("%s is no option of TensorRT: timing_cache is" % name)
    return TensorRtEngine(options.get("timing_cache", ""))
