"""An engine made up for rehearsals: latencies follow from the model's weights, noise is seeded.

It can be told to crash, hang or lose its device on chosen models, and to have room for a few only,
to see that one cell is lost and not the run.
"""

import hashlib
import os
import random
import time
from typing import Any, Callable, Dict, List, Optional

from . import onnx_graph
from .engines import Engine, Request
from .errors import DeviceLost, EngineError, NoDevice
from .nvml import Reading

_OVERHEAD_US = 4.0


class FakeEngine(Engine):
    """Every operator costs what its weights weigh; an inference adds a constant."""

    name = "fake"
    version = "1.0"

    def __init__(self, options: Dict[str, str]) -> None:
        self.name = options.get("name", self.name)
        self.version = options.get("version", self.version)
        if options.get("missing"):
            raise NoDevice("the fake engine was told to be missing")
        self._slow_s = float(options.get("sleep_s", "0"))
        self._crash = options.get("crash", "")
        self._hang = options.get("hang", "")
        self._lose = options.get("lose_device", "")
        self._room = int(options.get("room", "1000000"))
        self._name = options.get("board", "fake board")
        self._cost: Dict[str, float] = {}
        self._random = random.Random("fake")

    def board(self) -> Dict[str, str]:
        return {"gpu": self._name, "driver": "1.0"}

    def read_sensors(self) -> Reading:
        return {"sm_mhz": 1500.0, "temperature_c": 45.0}

    def build(self, request: Request) -> Dict[str, Any]:
        with open(request.path, "rb") as source:
            data = source.read()
        name = os.path.basename(request.path)
        if self._crash and self._crash in name:
            os._exit(139)
        if self._hang and self._hang in name:
            time.sleep(3600)
        if self._lose and self._lose in name:
            raise DeviceLost("the made-up device is gone")
        if len(self._cost) >= self._room:
            raise EngineError("the made-up device is out of memory")
        try:
            model = onnx_graph.Model(data)
        except ValueError as error:
            raise EngineError("the fake engine cannot read the model: %s" % error)
        time.sleep(self._slow_s)
        factor = 0.5 if request.precision in ("fp16", "bf16") else 1.0
        total = _OVERHEAD_US
        for op, shapes in model.described_nodes():
            size = sum(_product(shape) for shape in shapes)
            jitter = hashlib.md5(("%s %r" % (op, shapes)).encode()).digest()[0] / 256.0
            total += factor * (1.0 + jitter + size / 2e4)
        self._cost[request.key] = total
        return {"build_s": self._slow_s, "copies": request.copies}

    def run_us(
        self, key: str, count: int, during: Optional[Callable[[], None]] = None
    ) -> List[float]:
        if key not in self._cost:
            raise EngineError("the model %s has not been built in this process" % key)
        if during is not None:
            during()
        return [self._cost[key] * (1.0 + 0.01 * self._random.random()) for _ in range(count)]

    def layers(self, key: str) -> Any:
        return {"engine": {"Layers": []}, "profile": []}

    def drop(self, key: str) -> None:
        self._cost.pop(key, None)


def _product(shape: Any) -> int:
    total = 1
    for dim in shape:
        total *= dim
    return total


def open_engine(options: Dict[str, str]) -> Engine:
    """The fake engine; ``crash``, ``hang``, ``lose_device`` name parts of model file names.

    ``board``, ``name`` and ``version`` are what it says of itself; ``room`` how many models fit.
    """
    return FakeEngine(options)
