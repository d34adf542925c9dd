"""Tasks, and what two of them share: S of equation (2) in ``docs/background/family.md``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated

import msgspec
import numpy as np

from hybridlat.model.geometry import Array, Flags
from hybridlat.schema.target import VERSION

_MODE = re.compile(r"-[0-9]+w$|(?<=^tx2)-max-[pq]$")
"""How names of a board's power modes end; what else differs (``-super``) is a board of its own."""
Number = Annotated[float, msgspec.Meta(ge=0, le=1e4)]
"""A standard deviation, a variance or a factor, as files of laws hold them."""


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """A device, an engine's version and a precision: what has coefficients w of its own.

    ``engine`` is the engine with its version (``paddle-tensorrt-8.0``), ``layout`` that of the
    activations where a source tells several apart (``nchw``, ``nhwc``), else empty. ``copies`` says
    whether inputs and outputs are moved between host and device within the time that was taken,
    ``graphs`` whether a CUDA graph replayed the network. ``harness`` is what
    timed the rows, where a table names it. Two facts tell no two tasks apart: the ``architecture``
    of its GPU, and the ``version`` whose rules its rows were lowered by where ``engine`` has none.
    """

    device: str
    engine: str
    precision: str
    layout: str = ""
    copies: bool = False
    graphs: bool = False
    harness: str = ""
    architecture: str = field(default="", compare=False)
    version: str = field(default="", compare=False)

    @property
    def generation(self) -> str:
        """All GPUs of one architecture; where that is unknown the board alone."""
        return self.architecture or self.board

    @property
    def board(self) -> str:
        """The device in whatever power mode."""
        return _MODE.sub("", self.device)

    @property
    def shared(self) -> "Task":
        """The task in whatever power mode of its board: all modes have rows and trees together."""
        board = self.board
        return self if board == self.device else replace(self, device=board)

    @property
    def release(self) -> str:
        """The engine's version as what timed it shows it."""
        return f"{self.engine}-{self.harness}".rstrip("-")

    @property
    def runtime(self) -> str:
        """The engine without its version."""
        return VERSION.sub("", self.engine)


@dataclass(frozen=True, slots=True)
class Sharing:
    """Variance of the kernels' log-ratios by what two tasks must have in common to share it.

    A version that one harness timed is another, and the power modes of a board are one device and
    one task.
    """

    all: Number = 1.0  # nothing: the whole family shares it
    device: Number = 0.3
    engine: Number = 0.2  # with its version
    precision: Number = 0.3
    layout: Number = 0.1
    task: Number = 0.4
    runtime: Number = 0.0  # the engine in all its versions
    recipe: Number = 0.0  # version and precision: the kernels are the same on every device
    generation: Number = 0.0  # of GPUs

    @property
    def total(self) -> float:
        """Of a task with itself."""
        return float(sum(getattr(self, term.name) for term in fields(self)))

    def between(self, relations: "Relations") -> Array:
        """S(t, t') of every pair (left x right), by (2)."""
        each = [getattr(self, name) * same for name, same in relations.alike.items()]
        return np.asarray(sum(each, float(self.all)))[relations.pairs]


class Relations:
    """What the tasks of two lists have in common, worked out once for each distinct pair.

    ``alike`` says by the names of ``Sharing`` which distinct tasks share it (left x right);
    ``pairs`` is the index that spreads such a table over the lists.
    """

    def __init__(self, left: Sequence[Task], right: Sequence[Task]) -> None:
        sides, places = [dict[Task, int](), dict[Task, int]()], list[list[int]]()
        for side, tasks in zip(sides, (left, right), strict=True):  # a task is slow to hash
            places.append([side.setdefault(task, len(side)) for task in tasks])
        attributes = {name: name for name in ("precision", "layout", "runtime", "generation")}
        attributes |= {"device": "board", "engine": "release", "task": "shared"}
        self.alike = dict[str, Flags]()
        for name, attribute in attributes.items():
            both = (np.array([getattr(task, attribute) for task in side], object) for side in sides)
            self.alike[name] = np.equal.outer(*both)
        self.alike["recipe"] = self.alike["engine"] & self.alike["precision"]
        self.pairs = np.ix_(*places)


def label_of(task: Task) -> str:
    """A task as calibrations name it: the target, and the layout where sources tell it."""
    return f"{task.device}/{task.engine}/{task.precision} {task.layout}".strip()
