"""An engine made up for rehearsals: latencies follow from the model's operators, noise is seeded.

Options make it crash, hang or lose its device on chosen models, or have room for a few only;
``crash_once`` is a file that it makes when it crashes in its first run.
"""

import hashlib
import os
import random
import re
import time
from typing import Any, Callable, Dict, List, Optional

from . import DeviceLost, EngineError, NoDevice
from .visits import Engine, Reading

_OVERHEAD_US = 4.0
# An operator's name as ONNX writes it: field 4 of a node, its length, a word with a capital.
_OPERATOR = re.compile(rb"\x22[\x01-\x20]([A-Z][A-Za-z]+)")


class FakeEngine(Engine):
    name, version = "fake", "1.0"

    def __init__(self, options: Dict[str, str]) -> None:
        if options.get("missing"):
            raise NoDevice("the fake engine is missing")
        self._options = options  # of crash, hang and lose_device parts of file names
        self._cost: Dict[str, float] = {}
        self._random = random.Random("fake")

    def board(self) -> Dict[str, str]:
        return {"gpu": self._options.get("board", "fake board"), "driver": "1.0"}

    def read_sensors(self) -> Reading:
        return {"sm_mhz": 1500.0, "temperature_c": 45.0}

    def _is_chosen(self, what: str, path: str) -> bool:
        return self._options.get(what, "\0") in os.path.basename(path)

    def build(self, key: str, path: str, precision: str, copies: int, **_: Any) -> Dict[str, Any]:
        if self._is_chosen("crash", path):
            os._exit(139)
        if self._is_chosen("hang", path):
            time.sleep(3600)
        if self._is_chosen("lose_device", path):
            raise DeviceLost("the made-up device is gone")
        if self._is_chosen("full_disk", path):
            raise OSError(28, "No space left on device")
        if len(self._cost) >= int(self._options.get("room", "1000000")):
            raise EngineError("the made-up device is out of memory")
        with open(path, "rb") as source:
            operators = _OPERATOR.findall(source.read())
        if not operators:
            raise EngineError("the fake engine cannot read the model")
        time.sleep(float(self._options.get("sleep_s", "0")))
        factor = 0.5 if precision in ("fp16", "bf16") else 1.0
        weights = [1.0 + hashlib.md5(op).digest()[0] / 32.0 for op in operators]
        self._cost[key] = _OVERHEAD_US + factor * sum(weights)
        return {"copies": copies}

    def run_us(
        self, key: str, count: int, during: Optional[Callable[[], None]] = None
    ) -> List[float]:
        once = self._options.get("crash_once", "")
        if once and not os.path.exists(once):
            open(once, "w").close()
            os._exit(139)
        if during is not None:
            during()
        return [self._cost[key] * (1.0 + 0.01 * self._random.random()) for _ in range(count)]

    def layers(self, key: str) -> Any:
        return {"engine": {"Layers": []}}

    def drop(self, key: str) -> None:
        self._cost.pop(key, None)


def open_engine(options: Dict[str, str]) -> Engine:
    """The fake engine."""
    return FakeEngine(options)
