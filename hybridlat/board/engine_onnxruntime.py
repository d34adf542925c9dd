"""ONNX Runtime on one CPU thread: the real engine that a rehearsal without a GPU can have."""

import importlib
import time
from typing import Any, Callable, Dict, List, Optional

from . import EngineError, NoDevice
from .engines import Engine, Request


class OnnxRuntimeEngine(Engine):
    """Sessions of the CPU provider; each copy has its own weights."""

    name = "onnxruntime"

    def __init__(self) -> None:
        try:
            self._ort = importlib.import_module("onnxruntime")
            self._numpy = importlib.import_module("numpy")
        except ImportError as error:
            raise NoDevice("ONNX Runtime is not installed here (%s)" % error)
        self.version = ".".join(str(self._ort.__version__).split(".")[:2])
        self._models: Dict[str, List[Any]] = {}
        self._turn = 0

    def settings(self) -> Dict[str, str]:
        return {"onnxruntime": str(self._ort.__version__), "threads": "1"}

    def build(self, request: Request) -> Dict[str, Any]:
        if request.precision != "fp32":
            raise EngineError(
                "ONNX Runtime on a CPU is measured in fp32, not %s" % request.precision
            )
        options = self._ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Made-up weights may bring forth denormals, which trained ones do not: slow on some CPUs.
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        begin = time.time()
        sessions = []
        for copy in range(max(1, request.copies)):
            try:
                session = self._ort.InferenceSession(
                    request.path, options, providers=["CPUExecutionProvider"]
                )
            except Exception as error:  # noqa: BLE001 - the engine raises many kinds
                raise EngineError(
                    "ONNX Runtime cannot build: %s" % " ".join(str(error).split())[:300]
                )
            sessions.append((session, self._feeds(session, copy)))
        self._models[request.key] = sessions
        return {"build_s": round(time.time() - begin, 3), "copies": len(sessions)}

    def _feeds(self, session: Any, seed: int) -> Dict[str, Any]:
        draw = self._numpy.random.default_rng(seed)
        feeds = {}
        for info in session.get_inputs():
            if info.type == "tensor(float)":
                feeds[info.name] = draw.standard_normal(info.shape, dtype="float32")
            else:
                kind = {"tensor(int64)": "int64", "tensor(int32)": "int32"}.get(info.type, "bool")
                feeds[info.name] = self._numpy.zeros(info.shape, dtype=kind)
        return feeds

    def run_us(
        self, key: str, count: int, during: Optional[Callable[[], None]] = None
    ) -> List[float]:
        sessions = self._models[key]
        times_us = []
        for _ in range(count):
            session, feeds = sessions[self._turn % len(sessions)]
            self._turn += 1
            begin = time.perf_counter()
            session.run(None, feeds)
            times_us.append((time.perf_counter() - begin) * 1e6)
        if during is not None:
            during()
        return times_us

    def drop(self, key: str) -> None:
        self._models.pop(key, None)


def open_engine(options: Dict[str, str]) -> Engine:
    """ONNX Runtime; it takes no options."""
    return OnnxRuntimeEngine()
