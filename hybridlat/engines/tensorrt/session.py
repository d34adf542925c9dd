"""TensorRT 8.5 to 11 on this machine's GPU, in a worker process of its own.

The worker (:mod:`hybridlat.board`) may run under another Python than this one, whichever has
TensorRT: HYBRIDLAT_TENSORRT_PYTHON names it. A crash or a hang ends the worker and costs the model
that was being built or run; the run goes on with a new worker.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from hybridlat import board
from hybridlat.board import BoardError, EngineError, NoDevice, WorkerLost
from hybridlat.board.cuda import find_driver
from hybridlat.board.journal import board_model
from hybridlat.board.plan import Plan
from hybridlat.board.runner import PlanRun, Worker
from hybridlat.engines import registry
from hybridlat.engines.base import Backend, Method
from hybridlat.engines.tensorrt.lowering import lower
from hybridlat.errors import BackendUnavailable, MeasurementError
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.names import device_name
from hybridlat.schema.target import Target

PYTHON_VARIABLE = "HYBRIDLAT_TENSORRT_PYTHON"

StartWorker = Callable[[], Worker]


class TensorRtBackend(Backend):
    """TensorRT in one precision, measured by plans alone. ``start`` makes a worker process."""

    name = "tensorrt"
    method: ClassVar[Method] = Method.PLAN

    @classmethod
    def options_for(cls, target: Target | None, threads: int | None) -> Mapping[str, int | str]:
        if threads is not None:
            raise BackendUnavailable("TensorRT computes on the GPU: leave --threads away")
        return {} if target is None else {"precision": target.precision}

    def __init__(self, precision: str = "fp32", start: StartWorker | None = None) -> None:
        if precision not in registry.PLANNED:
            choices = ", ".join(registry.PLANNED)
            raise BackendUnavailable(f"TensorRT is not measured in {precision!r}: choose {choices}")
        self._start = start or _start_worker
        try:
            worker = self._start()
        except (NoDevice, WorkerLost, EngineError) as error:
            raise BackendUnavailable(f"TensorRT cannot be used: {error}") from error
        hello = worker.hello
        worker.close()  # a run has a worker of its own: two would share the device's memory
        device = device_name(hello["board"].get("gpu") or "gpu", board_model())
        self.target = Target(device, f"{hello['engine']}-{hello['version']}", precision)

    def lower(self, network: Network) -> Lowered:
        return lower(network, self.target)

    def run_plan(
        self, folder: Path, progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        try:
            PlanRun(Plan(str(folder)), self._start, progress=progress).run()
        except BoardError as error:
            raise MeasurementError(f"TensorRT cannot measure: {error}") from error


def _start_worker() -> Worker:
    from platformdirs import user_cache_path

    find_driver()  # without one a worker process would take a tenth of a second to say so
    launcher = Path(board.__file__).with_name("worker.py")
    folder = user_cache_path("hybridlat") / "tensorrt"
    folder.mkdir(parents=True, exist_ok=True)
    # One timing cache for all: TensorRT itself refuses one of another device or version.
    options = {"timing_cache": str(folder / "timing.cache")}
    python, log = os.environ.get(PYTHON_VARIABLE, ""), str(folder / "worker.log")
    return Worker(str(launcher), "tensorrt", options, python, log)
