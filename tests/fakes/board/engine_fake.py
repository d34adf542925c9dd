"""An engine made up for rehearsals: latencies follow from the model's weights, noise is seeded.

It can be told to crash, hang or lose its device on chosen models, and to have room for a few only,
to see that one cell is lost and not the run. It lies beside a plan's other engines.
"""

import hashlib
import os
import random
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from . import DeviceLost, EngineError, NoDevice
from .engines import Engine, Request
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
            described = described_nodes(data)
        except ValueError as error:
            raise EngineError("the fake engine cannot read the model: %s" % error)
        time.sleep(self._slow_s)
        factor = 0.5 if request.precision in ("fp16", "bf16") else 1.0
        total = _OVERHEAD_US
        for op, shapes in described:
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


def described_nodes(data: bytes) -> List[Tuple[str, List[Tuple[int, ...]]]]:
    """Every operator of a model file with the shapes of the weights it reads; ValueError."""
    graphs = [value for number, value in _fields(data) if number == 7]
    if not graphs:
        raise ValueError("the file holds no graph")
    shapes: Dict[bytes, Tuple[int, ...]] = {}
    nodes = []
    for number, value in _fields(graphs[-1]):
        if number == 5:  # an initializer: its name (8) and its dimensions (1)
            fields = list(_fields(value))
            name = b"".join(v for n, v in fields if n == 8)
            shapes[name] = tuple(d for n, v in fields if n == 1 for d in _numbers(v))
        elif number == 1:
            nodes.append(list(_fields(value)))
    return [
        (
            b"".join(v for n, v in node if n == 4).decode("utf-8"),
            [shapes[v] for n, v in node if n == 1 and v in shapes],
        )
        for node in nodes
    ]


def _fields(data: bytes) -> Iterator[Tuple[int, bytes]]:
    """The fields of a protocol buffer: number and bytes, a single number's as they are written."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        kind = key & 7
        if kind == 0:
            end = _number(data, at)[1]
        elif kind == 2:
            size, at = _number(data, at)
            end = at + size
        elif kind in (1, 5):
            end = at + (8 if kind == 1 else 4)
        else:
            raise ValueError("wire type %d is not used by ONNX" % kind)
        if end > len(data):
            raise ValueError("the file ends in the middle of a field")
        yield key >> 3, data[at:end]
        at = end


def _numbers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _number(data, at)
        yield value


def _number(data: bytes, at: int) -> Tuple[int, int]:
    """The number that starts at ``at``, and where the next thing starts."""
    shift = value = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("the file ends in the middle of a number")


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
