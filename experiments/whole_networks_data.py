"""Reads the public table of whole-network latencies as observations for the family model."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from hybridlat.engines import device_sheets, registry
from hybridlat.engines.torch import eager
from hybridlat.graph.network import Lowered, Network
from hybridlat.model.family.dataset import KernelSet, Observation, kernel_set
from hybridlat.model.family.kernels import KernelTable, kernel_table
from hybridlat.model.family.tasks import Task
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target

FAMILIES = {
    "tensorrt": ("paddle-tensorrt", "tensorrt"),
    "torch": ("torch",),
    "torch-compile": ("torch-compile",),
}
"""Engine families and their engines: what runs much the same kernels."""


@dataclass(frozen=True)
class Row:
    """One published figure."""

    target: Target
    onnx: str
    batch: int
    layout: str
    latency_us: float
    suspect: bool
    copies: bool

    @property
    def task(self) -> Task:
        t = self.target
        return Task(t.device, t.runtime, t.precision, self.layout, self.copies)

    @property
    def architecture(self) -> str:
        """Without the size and the form that it was exported in."""
        return self.onnx.removeprefix("torchvision__").split("__")[0]


_FAMILY = (
    "efficientnetv2 efficientnet mobilenetv1 mobilenetv2 mobilenetv3 mobilenetv4 mobilenet_edgetpu "
    "mobileone convnextv2 convnext convmixer convformer resnetv2 resnest resnext regnet repvgg "
    "repvit repghostnet ghostnet densenet darknet hrnet hgnet dla dpn vgg inception xception "
    "rexnet nfnet nf_ seresnext seresnet senet ecaresnet eca_ res2ne skresnet cs lcnet mixnet "
    "mnasnet semnasnet poolformer mambaout fasternet fastvit starnet selecsls fbnet hardcorenas "
    "wide_resnet resnet shufflenet squeezenet alexnet ese_vovnet vovnet tresnet"
).split()


def family_of(architecture: str) -> str:
    """What an architecture is a variant of, by its name."""
    name = re.sub(r"^(tf_|dm_|legacy_|gc_|test_)", "", architecture)
    return next((f for f in _FAMILY if name.startswith(f)), name.split("_")[0])


def read_rows(folder: Path, engines: Iterable[str]) -> list[Row]:
    """The table's rows of these engines; equal (task, network, batch) are one row, their median."""
    table = pd.read_parquet(folder / "networks.parquet")
    wanted = set(engines)
    groups: dict[tuple[object, ...], list[float]] = {}
    for row in table.itertuples():
        target = Target.parse(str(row.target))
        if target.engine not in wanted or target.device.startswith(("i7", "cascade")):
            continue
        layout = str(row.layout) if target.device.startswith("rtx") else ""
        note = str(row.note)
        copies = target.engine == "paddle-tensorrt" or note == "including IO"
        key = (target, str(row.onnx), int(row.batch), layout, "suspect" in note, copies)
        groups.setdefault(key, []).append(float(row.latency_us))
    return [
        Row(t, onnx, batch, layout, float(np.median(found)), suspect, copies)  # type: ignore[arg-type]
        for (t, onnx, batch, layout, suspect, copies), found in groups.items()
    ]


class Lowerer:
    """Kernel tables of the files, lowered once a rule set and kept in a folder."""

    def __init__(self, nets: Path, cache_folder: Path) -> None:
        self.nets, self.cache_folder = nets, cache_folder
        self._tables: dict[tuple[str, str], KernelTable] = {}
        self._sets: dict[tuple[object, ...], KernelSet] = {}

    def table(self, row: Row) -> KernelTable:
        key, lower = _lowering(row.target, row.layout)
        found = self._tables.get((row.onnx, key))
        if found is None:
            found = self._tables[row.onnx, key] = self._read(row.onnx, key, lower)
        return found

    def _read(self, onnx: str, key: str, lower: Callable[[Network], Lowered]) -> KernelTable:
        file = self.cache_folder / key / f"{onnx}.npz"
        if file.exists():
            with np.load(file) as kept:
                return KernelTable(
                    kept["values"], kept["classes"], kept["counts"], float(kept["copied"])
                )
        table = kernel_table(lower(_network(self.nets / f"{onnx}.onnx")).network)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            file, values=table.values, classes=table.classes, counts=table.counts,
            copied=table.copied_bytes,
        )  # fmt: skip
        return table

    def kernels(self, row: Row) -> KernelSet:
        key, _ = _lowering(row.target, row.layout)
        name = (row.onnx, key, row.batch, row.target.device, row.target.precision)
        if name not in self._sets:
            device = device_sheets.load(row.target.device)
            table = self.table(row).at_batch(row.batch)
            self._sets[name] = kernel_set(table, device, row.target.precision)
        return self._sets[name]

    def observation(self, row: Row) -> Observation:
        weight = 0.0 if row.suspect else 1.0
        return Observation(
            self.kernels(row), row.task, row.latency_us, row.architecture, weight
        )


@cache
def _network(file: Path) -> Network:
    return read_network(file)


def _lowering(target: Target, layout: str) -> tuple[str, Callable[[Network], Lowered]]:
    """A name for the rules that a target's kernels come from, and the rules."""
    if target.engine == "torch" and layout == "nhwc":
        precision = target.precision
        return (
            f"torch-nhwc-{precision}",
            lambda n: eager.lower_with(n, target.version, precision, channels_last=True),
        )
    half = target.precision in ("fp16", "amp")
    engine = "tensorrt" if "tensorrt" in target.engine else target.engine
    precision = target.precision if engine != "tensorrt" else ("fp16" if half else "fp32")
    return f"{engine}-{precision}", lambda n: registry.lower(n, target)


def fold_of(names: Iterable[str], folds: int = 5) -> dict[str, int]:
    """Folds of equal size, by the hash of a name."""
    ordered = sorted(set(names), key=lambda n: hashlib.sha256(n.encode()).hexdigest())
    return {name: i % folds for i, name in enumerate(ordered)}
