"""TensorRT 8.5 to 11 through its Python module: engines built, looked into, and run.

They run under CUDA graphs, several copies in turn. The module itself shows what a version lacks;
there is no table of versions.
"""

import ctypes
import importlib
import itertools
import json
import operator
import os
import random
import struct
import sys
from contextlib import suppress
from functools import lru_cache, partial, reduce
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional

from . import DeviceLost, EngineError, NoDevice
from .cuda import Cuda, Sensors, Work, load_driver, open_cuda
from .visits import Engine, Reading

_WORKSPACE_BYTES = 1 << 30
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
            kind, shape = engine.get_tensor_dtype(name).name, tuple(engine.get_tensor_shape(name))
            if any(dim < 0 for dim in shape):
                raise EngineError("the shape of %r is not static" % name)
            size = (reduce(operator.mul, shape, 1) * _BITS[kind] + 7) // 8
            address = cuda.allocate(size)
            if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
                block = _noise(kind)
                cuda.upload(address, (block * (size // len(block) + 1))[:size])
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
    """One device's TensorRT; ``version`` as in a target, ``8.6``."""

    name = "tensorrt"

    def __init__(self, timing_cache: str) -> None:
        self._trt = trt = _import_tensorrt()
        self._full_version = str(trt.__version__)
        self.version = ".".join(self._full_version.split(".")[:2])
        if tuple(int(n) for n in self.version.split(".")) < (8, 5):
            raise NoDevice(
                "TensorRT %s has no named tensors (8.5 and later do): use run.sh with trtexec"
                % self._full_version
            )
        self._cache_path, self._cache = timing_cache, b""
        with suppress(FileNotFoundError), open(timing_cache, "rb") as source:
            self._cache = source.read()
        self._libraries = _external_libraries()
        self._errors = errors = []  # type: List[str]

        class Logger(trt.ILogger):  # type: ignore[misc, name-defined]
            def log(self, severity: Any, msg: str) -> None:
                if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                    errors.append(str(msg))
                    del errors[:-20]

        self._logger = Logger()
        try:  # before a runtime, which takes the process down where CUDA does not start
            trt.Builder(self._logger)
        except Exception as error:  # noqa: BLE001  whichever error the bindings make of it
            why = "; ".join(errors[-3:]) or str(error)
            raise NoDevice("TensorRT %s does not start: %s" % (self._full_version, why))
        self._runtime = trt.Runtime(self._logger)
        self._about = open_cuda().describe()
        self._sensors = Sensors(self._about.get("pci_bus", ""))
        self._models: Dict[str, _Model] = {}

    def settings(self) -> Dict[str, str]:
        real = [name for name, there in sorted(self._libraries.items()) if there]
        return {
            "tensorrt": self._full_version,
            "external_tactics": ",".join(real) or "none",
            "workspace_bytes": str(_WORKSPACE_BYTES),
            "aux_streams": "0",
        }

    def board(self) -> Dict[str, str]:
        return dict(self._about, **self._sensors.describe())

    def read_sensors(self) -> Reading:
        return self._sensors.read()

    def build(
        self, key: str, path: str, typed_path: str, precision: str, copies: int, alone: bool
    ) -> Dict[str, Any]:
        plan = self._plan(path, precision, typed_path)
        self.drop(key)
        cuda = open_cuda()
        try:
            engines = [self._runtime.deserialize_cuda_engine(plan) for _ in range(max(1, copies))]
            if None in engines:
                raise self._error("could not load its own plan", self._errors[-3:])
            contexts = _CONTEXTS if len(engines) == 1 else 1
            loaded = [Loaded(self._trt, cuda, e) for e in engines for _ in range(contexts)]
            model = _make_graph(cuda, loaded, alone)
        except EngineError:
            cuda.release()
            raise
        self._models[key] = model
        return {"launch": model.how, "inferences_per_launch": model.inferences}

    def _plan(self, path: str, precision: str, typed_path: str) -> bytes:
        """The engine of a model, or of the same one typed, for a precision: fp32 may use TF32."""
        trt = self._trt
        del self._errors[:]
        flag = {"fp16": "FP16", "bf16": "BF16"}.get(precision)
        if precision not in ("fp32", "fp32-strict", "tf32") and flag is None:
            raise EngineError("this worker cannot build %s" % precision)
        typed = flag is not None and not self._knows("BuilderFlag", flag)
        if typed and not typed_path:
            raise EngineError(
                "TensorRT %s takes %s from the model's types, and the plan has no such model"
                % (self._full_version, precision)
            )
        flags = 0
        if int(self.version.split(".")[0]) < 10:
            flags |= 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
        if typed and self._knows("NetworkDefinitionCreationFlag", "STRONGLY_TYPED"):
            flags |= 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        builder = trt.Builder(self._logger)
        network = builder.create_network(flags)
        parser = trt.OnnxParser(network, self._logger)
        if not parser.parse_from_file(typed_path if typed else path):
            messages = [parser.get_error(i).desc() for i in range(parser.num_errors)]
            raise self._error("cannot read the model", messages)
        config = self._configure(builder, precision, None if typed else flag)
        cache = config.create_timing_cache(self._cache)
        # One of another device or version is refused: start afresh.
        if cache is None or config.set_timing_cache(cache, False) is False:
            config.set_timing_cache(config.create_timing_cache(b""), False)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise self._error("could not build the model", self._errors[-3:])
        self._cache = bytes(config.get_timing_cache().serialize())
        if self._cache_path:
            with open(self._cache_path + ".part", "wb") as sink:
                sink.write(self._cache)
            os.replace(self._cache_path + ".part", self._cache_path)
        return bytes(plan)

    def _configure(self, builder: Any, precision: str, flag: Optional[str]) -> Any:
        trt = self._trt
        config = builder.create_builder_config()
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, _WORKSPACE_BYTES)
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        if flag is not None:
            config.set_flag(getattr(trt.BuilderFlag, flag))
        if precision == "fp32-strict":
            if not self._knows("BuilderFlag", "TF32"):
                raise EngineError("TensorRT %s cannot switch off TF32" % self._full_version)
            config.clear_flag(trt.BuilderFlag.TF32)
        if hasattr(config, "max_aux_streams"):  # branches one after another, as they are composed
            config.max_aux_streams = 0
        lacking = [name for name, there in self._libraries.items() if not there]
        off = [getattr(trt.TacticSource, n) for n in lacking if self._knows("TacticSource", n)]
        if off:
            sources = config.get_tactic_sources() & ~sum(1 << int(source) for source in off)
            config.set_tactic_sources(sources)
            feature = "DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805"
            if self._knows("PreviewFeature", feature):
                config.set_preview_feature(getattr(trt.PreviewFeature, feature), True)
        return config

    def _knows(self, enum: str, member: str) -> bool:
        """Whether this TensorRT has ``enum.member``: versions lack whole enums too."""
        return hasattr(getattr(self._trt, enum, None), member)

    def _error(self, what: str, messages: List[str]) -> EngineError:
        why = "; ".join(messages) or "it gave no reason"
        return EngineError("TensorRT %s %s: %s" % (self._full_version, what, why))

    def run_us(self, key: str, count: int, during: Optional[Work] = None) -> List[float]:
        model = self._models[key]
        return [t / model.inferences for t in model.cuda.elapsed_us([model.replay] * count, during)]

    def layers(self, key: str) -> Any:
        inspector = self._models[key].loaded[0].engine.create_engine_inspector()
        text = inspector.get_engine_information(self._trt.LayerInformationFormat.JSON)
        try:
            return {"engine": json.loads(text, strict=False)}  # 8.6 writes raw control characters
        except ValueError:
            return {"engine": text}

    def drop(self, key: str) -> None:
        model = self._models.pop(key, None)
        if model is not None:
            model.cuda.release()


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
    if inferences == 1 < len(enqueues):
        turns = itertools.cycle([launch(enqueue) for enqueue in enqueues])
        return _Model(cuda, loaded, lambda: next(turns)(), 1, how)
    replay = every if inferences == len(enqueues) else launch(partial(run, inferences))
    return _Model(cuda, loaded, replay, inferences, how)


@lru_cache(maxsize=None)
def _noise(kind: str) -> bytes:
    """Seeded numbers for inputs, to be repeated: zeros would run faster than real data does."""
    if kind not in ("FLOAT", "HALF", "BF16"):  # indices and masks: valid wherever they are read
        return b"\0"
    source = random.Random("hybridlat inputs")
    numbers = [source.uniform(-1.7, 1.7) for _ in range(65521)]
    block = struct.pack("<%d%s" % (len(numbers), "e" if kind == "HALF" else "f"), *numbers)
    halves = (block[i + 2 : i + 4] for i in range(0, len(block), 4))
    return b"".join(halves) if kind == "BF16" else block


def _import_tensorrt() -> Any:
    """The TensorRT module that is installed; the driver is probed first."""
    load_driver()
    for name in ("tensorrt", "tensorrt_bindings"):
        with suppress(ImportError):
            return importlib.import_module(name)
    raise NoDevice("TensorRT's Python module is not installed for %s" % sys.executable)


def _answers(stem: str, versions: Iterable[int], function: str, least: int) -> bool:
    """Whether the first version that loads is a real library: a stub for the loader says 1."""
    for version in versions:
        with suppress(OSError):
            call = getattr(ctypes.CDLL("%s.so.%d" % (stem, version)), function, None)
            if call is not None:
                call.restype = ctypes.c_size_t
            return call is not None and bool(call() >= least)
    return False


def _external_libraries() -> Dict[str, bool]:
    """Which of the libraries that TensorRT 8 and 10 may take kernels from are really there."""
    cudnn = _answers("libcudnn", (8, 9), "cudnnGetVersion", 7000)
    cublas = _answers("libcublasLt", (11, 12), "cublasLtGetVersion", 10000)
    return {"CUDNN": cudnn, "CUBLAS": cublas, "CUBLAS_LT": cublas}


def open_engine(options: Dict[str, str]) -> Engine:
    """TensorRT with its only option, the file ``timing_cache``."""
    for name in sorted(set(options) - {"timing_cache"}):
        raise NoDevice("%s is no option of TensorRT: timing_cache is" % name)
    return TensorRtEngine(options.get("timing_cache", ""))
