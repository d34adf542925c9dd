"""Which family an engine belongs to, and the family models that are at hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

from hybridlat.model.family import files
from hybridlat.model.family.calibration import ELSEWHERE, Calibration
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.tasks import Task, label_of
from hybridlat.schema.files import listing
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Target

FAMILY_OF = {
    "paddle-tensorrt": "tensorrt",
    "tensorrt": "tensorrt",
    "tensorrt-rtx": "tensorrt",
    "torch": "torch",
    "torch-compile": "torch-compile",
}
"""Engines that run much the same kernels learn from each other."""
_COPIES = ("paddle-tensorrt",)  # engines that are timed from host to host


def copies_of(target: Target, stated: bool | None = None) -> bool:
    """Whether latencies hold moving inputs and outputs between host and device.

    As a record states, else as is usual for the target's engine.
    """
    return target.engine in _COPIES if stated is None else stated


def folders(family: str, user_folder: Path) -> list[Path]:
    """Where models of a family lie, the user's own before the one shipped."""
    name = f"family_{family}"
    each = (user_folder / name, shipped("models", name))
    return [folder for folder in each if listing(folder, "family.json")]


@cache
def load(folder: Path) -> FamilyModel:
    """The family model in a folder, read once a process; StoreError for a damaged one."""
    return files.load(folder)


@dataclass(frozen=True)
class FamilyHead:
    """A family's tasks, calibration and batches by target, without reading what it learned."""

    name: str
    tasks: tuple[Task, ...]
    calibration: Calibration | None
    batches: Mapping[str, tuple[int, int]]

    @property
    def targets(self) -> set[Target]:
        """What its tasks are of."""
        return {Target(t.device, t.engine, t.precision).plain for t in self.tasks}

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that it answers for, without their versions."""
        return tuple(sorted(engine for engine, name in FAMILY_OF.items() if name == self.name))

    def networks(self, target: Target) -> int:
        """Whole networks of a target that the intervals were calibrated on."""
        if self.calibration is None:
            return 0
        return len(self.calibration.by_task.get(label_of(task_of(target, self.tasks)), ()))

    def half_width_share(self, target: Target | None) -> float | None:
        """How far the farther end of an interval of 90 % typically is from the latency (0..).

        Of a network of median spread; None as target: of a device that no network was measured on.
        None where nothing calibrated it.
        """
        if self.calibration is None:
            return None
        label = ELSEWHERE if target is None else label_of(task_of(target, self.tasks))
        spread = self.calibration.spreads.get(label)
        if spread is None:
            return None
        return math.exp(self.calibration.half_width(spread, label)) - 1


def head_of(folder: Path) -> FamilyHead:
    """The head of a family's model; StoreError for a damaged one."""
    head = files.ModelHead.read(folder)
    return FamilyHead(
        folder.name.removeprefix("family_"), head.tasks, head.calibration, head.batches
    )


def task_of(target: Target, tasks: Sequence[Task]) -> Task:
    """What a family of these tasks takes a target for.

    Where a source distinguished layouts and the target does not, the layout is that of the file
    (channels first). Whether copies between host and device count is as usual for the engine, and
    kernels are launched one by one, unless the target was measured in the other way alone. Of its
    rows those count that no harness is named of, else those of the first harness by name.
    """
    usual = copies_of(target)
    engine, precision = target.plain.runtime, target.precision
    for graphs, copies in product((False, True), (usual, not usual)):
        plain = Task(target.device, engine, precision, "", copies, graphs)
        if known := [t.harness for t in tasks if replace(t.shared, harness="") == plain.shared]:
            return replace(plain, harness=target.harness if target.harness in known else min(known))
    layouts = {t.layout for t in tasks if t.layout}
    return Task(target.device, engine, precision, "nchw" if layouts else "", usual)
