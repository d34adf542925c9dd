"""Which family an engine belongs to, and the family models that are at hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hybridlat.model.family.served import FamilyModel
from hybridlat.model.family.tasks import Task
from hybridlat.schema.resources import shipped
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


def family_name(engine: str) -> str | None:
    """The family of an engine; None for one that has none."""
    return FAMILY_OF.get(engine)


def folder_of(family: str, user_folder: Path) -> Path | None:
    """Where the model of a family lies, the user's own before the one shipped; None without one."""
    name = f"family_{family}"
    for folder in (user_folder / name, shipped("models", name)):
        if (folder / "family.json").is_file():
            return folder
    return None


@cache
def load(folder: Path) -> FamilyModel:
    """The family model in a folder, read once a process; StoreError for a damaged one."""
    return FamilyModel.load(folder)


def task_of(target: Target, model: FamilyModel) -> Task:
    """What the model takes a target for.

    Where a source told layouts apart and the target does not, the layout is that of the file
    (channels first).
    """
    copies = target.engine in _COPIES
    plain = Task(target.device, target.runtime, target.precision, "", copies)
    if plain in model.tasks:
        return plain
    layouts = {t.layout for t in model.tasks if t.layout}
    return Task(target.device, target.runtime, target.precision, "nchw" if layouts else "", copies)
