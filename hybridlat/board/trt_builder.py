"""TensorRT 8.5 to 11 through its Python module: build an engine, look into it, run it.

The module itself shows what a version lacks; there is no table of versions.
"""

import ctypes
import importlib
import os
import sys
from typing import Any, Dict, Iterable, List, Optional

from . import EngineError, NoDevice
from .cuda import load_driver

_MODULES = ("tensorrt", "tensorrt_bindings")
_PRECISION_FLAGS = {"fp16": "FP16", "bf16": "BF16"}
_WORKSPACE_BYTES = 1 << 30


def import_tensorrt() -> Any:
    """The TensorRT module that is installed; the driver is probed first."""
    load_driver()
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise NoDevice("TensorRT's Python module is not installed for %s" % sys.executable)


def has_member(trt: Any, enum: str, member: str) -> bool:
    """Whether this TensorRT knows ``enum.member``."""
    return hasattr(getattr(trt, enum, None), member)


def _answers(stem: str, versions: Iterable[int], function: str, least: int) -> bool:
    """Whether the first version that loads is a real library: a stub for the loader says 1."""
    for version in versions:
        try:
            library = ctypes.CDLL("%s.so.%d" % (stem, version))
        except OSError:
            continue
        call = getattr(library, function, None)
        if call is None:
            return False
        call.restype = ctypes.c_size_t
        return bool(call() >= least)
    return False


def external_libraries() -> Dict[str, bool]:
    """Which of the libraries that TensorRT 8 and 10 may take kernels from are really there."""
    cudnn = _answers("libcudnn", (8, 9), "cudnnGetVersion", 7000)
    cublas = _answers("libcublasLt", (11, 12), "cublasLtGetVersion", 10000)
    return {"CUDNN": cudnn, "CUBLAS": cublas, "CUBLAS_LT": cublas}


class EngineBuilder(object):
    """TensorRT's builder and runtime on this machine; ``version`` as in a target, ``8.6``."""

    def __init__(self, timing_cache: str = "") -> None:
        self.trt = trt = import_tensorrt()
        self.full_version = str(trt.__version__)
        self.version = ".".join(self.full_version.split(".")[:2])
        if tuple(int(n) for n in self.version.split(".")) < (8, 5):
            raise NoDevice(
                "TensorRT %s has no named tensors (8.5 and later do): use run.sh with trtexec"
                % self.full_version
            )
        self._cache_path = timing_cache
        self._cache = b""
        if os.path.exists(timing_cache):
            with open(timing_cache, "rb") as source:
                self._cache = source.read()
        self._libraries = external_libraries()
        self._logger = self._make_logger()
        try:  # before a runtime, which takes the process down where CUDA does not start
            trt.Builder(self._logger)
        except Exception as error:  # noqa: BLE001  whichever error the bindings make of it
            why = "; ".join(self._errors[-3:]) or str(error)
            raise NoDevice("TensorRT %s does not start: %s" % (self.full_version, why))
        self._runtime = trt.Runtime(self._logger)

    def _make_logger(self) -> Any:
        trt = self.trt
        self._errors = errors = []  # type: List[str]

        class Logger(trt.ILogger):  # type: ignore[misc, name-defined]
            def log(self, severity: Any, msg: str) -> None:
                if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                    errors.append(str(msg))
                    del errors[:-20]

        return Logger()

    def _error(self, what: str, messages: List[str]) -> EngineError:
        why = "; ".join(messages) or "it gave no reason"
        return EngineError("TensorRT %s %s: %s" % (self.full_version, what, why))

    def settings(self) -> Dict[str, str]:
        """What decides which kernels an engine gets, for the record."""
        real = [name for name, there in sorted(self._libraries.items()) if there]
        return {
            "tensorrt": self.full_version,
            "external_tactics": ",".join(real) or "none",
            "workspace_bytes": str(_WORKSPACE_BYTES),
            "aux_streams": "0",
        }

    def build(self, path: str, precision: str, typed_path: str = "") -> bytes:
        """The engine of a model, or of the same one typed, for a precision: fp32 may use TF32."""
        trt = self.trt
        del self._errors[:]
        flag = _PRECISION_FLAGS.get(precision)
        if precision not in ("fp32", "fp32-strict", "tf32") and flag is None:
            raise EngineError("this worker cannot build %s" % precision)
        typed = flag is not None and not has_member(trt, "BuilderFlag", flag)
        if typed and not typed_path:
            raise EngineError(
                "TensorRT %s takes %s from the model's types, and the plan has no such model"
                % (self.full_version, precision)
            )
        builder = trt.Builder(self._logger)
        network = builder.create_network(self._network_flags(typed))
        parser = trt.OnnxParser(network, self._logger)
        if not parser.parse_from_file(typed_path if typed else path):
            messages = [parser.get_error(i).desc() for i in range(parser.num_errors)]
            raise self._error("cannot read the model", messages)
        config = self._configure(builder, precision, None if typed else flag)
        self._set_timing_cache(config)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise self._error("could not build the model", self._errors[-3:])
        self._keep_cache(config.get_timing_cache())
        return bytes(plan)

    def _network_flags(self, typed: bool) -> int:
        trt = self.trt
        flags = 0
        if int(self.version.split(".")[0]) < 10:
            flags |= 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
        if typed and has_member(trt, "NetworkDefinitionCreationFlag", "STRONGLY_TYPED"):
            flags |= 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        return flags

    def _configure(self, builder: Any, precision: str, flag: Optional[str]) -> Any:
        trt = self.trt
        config = builder.create_builder_config()
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, _WORKSPACE_BYTES)
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        if flag is not None:
            config.set_flag(getattr(trt.BuilderFlag, flag))
        if precision == "fp32-strict":
            if not has_member(trt, "BuilderFlag", "TF32"):
                raise EngineError("TensorRT %s cannot switch off TF32" % self.full_version)
            config.clear_flag(trt.BuilderFlag.TF32)
        if hasattr(config, "max_aux_streams"):  # branches one after another, as they are composed
            config.max_aux_streams = 0
        off = 0
        for name, there in self._libraries.items():
            if not there and has_member(trt, "TacticSource", name):
                off |= 1 << int(getattr(trt.TacticSource, name))
        if off:
            config.set_tactic_sources(config.get_tactic_sources() & ~off)
            feature = "DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805"
            if has_member(trt, "PreviewFeature", feature):
                config.set_preview_feature(getattr(trt.PreviewFeature, feature), True)
        return config

    def _set_timing_cache(self, config: Any) -> None:
        """One of another device or version is refused: start afresh."""
        cache = config.create_timing_cache(self._cache)
        if cache is None or config.set_timing_cache(cache, False) is False:
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def _keep_cache(self, cache: Any) -> None:
        self._cache = bytes(cache.serialize())
        if self._cache_path:
            with open(self._cache_path + ".part", "wb") as sink:
                sink.write(self._cache)
            os.replace(self._cache_path + ".part", self._cache_path)

    def load(self, plan: bytes) -> Any:
        """An engine with its own weights on the device."""
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise self._error("could not load its own plan", self._errors[-3:])
        return engine
