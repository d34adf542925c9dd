"""TensorRT 8.5 to 11 on this machine's GPU, in a worker process of its own.

The worker (:mod:`hybridlat.board`) may run under another Python than this one, whichever has
TensorRT: HYBRIDLAT_TENSORRT_PYTHON names it. A crash or a hang ends the worker and costs the model
that was being built or run; the next build starts a new worker.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from hybridlat import board, onnx_io
from hybridlat.board import BoardError, EngineError, NoDevice, WorkerLost
from hybridlat.board.client import Worker
from hybridlat.board.cuda import find_driver
from hybridlat.board.journal import board_model
from hybridlat.board.plan import Plan
from hybridlat.board.runner import Runner
from hybridlat.engines import registry, tensorrt
from hybridlat.engines.base import Backend, Method, Session
from hybridlat.engines.fusion.expand import unfuse
from hybridlat.errors import BackendUnavailable, HybridlatError, MeasurementError
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.names import device_name
from hybridlat.schema.target import Target

PYTHON_VARIABLE = "HYBRIDLAT_TENSORRT_PYTHON"
CACHE_VARIABLE = "HYBRIDLAT_TENSORRT_CACHE"
_PRECISIONS = registry.TENSORRT.precisions
_BUILD_S = 600.0
_RUN_S = 120.0
_WARM_S = 0.05

StartWorker = Callable[[], Worker]


class TensorRtBackend(Backend):
    """TensorRT in one precision. ``start`` makes the worker; tests give their own."""

    name = "tensorrt"
    method: ClassVar[Method] = Method.PLAN

    @classmethod
    def options_for(cls, target: Target | None, threads: int | None) -> Mapping[str, int | str]:
        if threads is not None:
            raise BackendUnavailable("TensorRT computes on the GPU: leave --threads away")
        return {} if target is None else {"precision": target.precision}

    def __init__(self, precision: str = "fp32", start: StartWorker | None = None) -> None:
        if precision not in _PRECISIONS:
            raise BackendUnavailable(
                f"TensorRT is not measured in {precision!r}: choose {', '.join(_PRECISIONS)}"
            )
        self.precision = precision
        self._start = start or _start_worker
        self._worker: Worker | None = None
        hello = self.worker().hello
        facts: Mapping[str, str] = hello["board"]
        runtime = f"{hello['engine']}-{hello['version']}"
        device = device_name(facts.get("gpu") or "gpu", board_model())
        self._target = Target(device, runtime, precision)
        self._environment = {
            "engine": f"{hello['engine']} {hello['version']}",
            "python": str(hello["python"]),
            **{key: str(value) for key, value in facts.items()},
            **{key: str(value) for key, value in hello["settings"].items()},
        }

    @property
    def target(self) -> Target:
        return self._target

    def environment(self) -> Mapping[str, str]:
        return self._environment

    def lower(self, network: Network) -> Lowered:
        return tensorrt.lower(network, self.target)

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        return TensorRtSession(self, unfuse(network) if lowered else network, seed, alone=lowered)

    def run_plan(
        self, folder: Path, progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        self.close()  # the run has a worker of its own: two would share the device's memory
        try:
            Runner(Plan(str(folder)), self._start, progress=progress).run()
        except BoardError as error:
            raise MeasurementError(f"TensorRT cannot measure: {error}") from error

    def worker(self) -> Worker:
        """The worker process; a new one where the last was lost. Raises BackendUnavailable."""
        if self._worker is None:
            try:
                self._worker = self._start()
            except (NoDevice, WorkerLost, EngineError) as error:
                raise BackendUnavailable(f"TensorRT cannot be used: {error}") from error
            atexit.register(self._worker.kill)
        return self._worker

    def ask(self, seconds: float, do: str, **request: Any) -> dict[str, Any]:
        """Ask the worker; MeasurementError when the engine refuses or the worker is lost."""
        try:
            return self.worker().ask(seconds, do, **request)
        except EngineError as error:
            raise MeasurementError(str(error)) from error
        except WorkerLost as error:
            self._worker = None
            raise MeasurementError(f"TensorRT's worker process was lost: {error}") from error

    def close(self) -> None:
        """End the worker process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class TensorRtSession(Session):
    """One engine in the worker, under a graph; the files it is built from are gone when it is."""

    def __init__(
        self, backend: TensorRtBackend, network: Network, seed: int, *, alone: bool
    ) -> None:
        self._backend = backend
        self._warm_s = _WARM_S
        self._process = backend.worker()
        self.key = f"{id(self)}-{seed}"
        with tempfile.TemporaryDirectory(prefix="hybridlat-trt-") as folder:
            path = Path(folder) / "model.onnx"
            try:
                network = onnx_io.readable(network)
                path.write_bytes(onnx_io.to_onnx(network, seed))
            except (HybridlatError, KeyError, ValueError) as error:
                raise MeasurementError(f"{network.name} cannot be built: {error}") from error
            typed = ""
            if backend.precision == "fp16":  # for versions that want the types in the file
                typed = str(path.with_name("typed.onnx"))
                half = tensorrt.in_half_precision(network)
                Path(typed).write_bytes(onnx_io.to_onnx(half, seed))
            backend.ask(
                _BUILD_S, "build", key=self.key, path=str(path), typed_path=typed,
                precision=backend.precision, copies=1, alone=alone,
            )  # fmt: skip

    def run_us(self, count: int) -> list[float]:
        if self._backend._worker is not self._process:
            raise MeasurementError("the worker process that held this engine was lost: build again")
        answer = self._backend.ask(
            _RUN_S, "visit", keys=[self.key], samples=count, warm_s=self._warm_s,
            limit_s=_RUN_S / 4,
        )  # fmt: skip
        self._warm_s = _WARM_S / 10  # warm by now
        samples: list[float] = answer["samples_us"][self.key]
        return samples[:count]

    def close(self) -> None:
        if self._backend._worker is self._process:
            self._backend.ask(_RUN_S, "drop", key=self.key)


def _start_worker() -> Worker:
    find_driver()  # without one a worker process would take a tenth of a second to say so
    launcher, folder = Path(board.__file__).with_name("worker.py"), _cache_folder()
    return Worker(
        str(launcher), "tensorrt", {"timing_cache": str(folder / "timing.cache")},
        os.environ.get(PYTHON_VARIABLE, ""), str(folder / "worker.log"),
    )  # fmt: skip


def _cache_folder() -> Path:
    """The log's, and that of one timing cache: TensorRT itself refuses one of another device."""
    from platformdirs import user_cache_path

    named = os.environ.get(CACHE_VARIABLE)
    folder = Path(named) if named else user_cache_path("hybridlat") / "tensorrt"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
