"""Reads the public table of whole-network latencies as observations for the family model."""

import hashlib
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, reduce
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.public_data.kernel_tables import kernel_table, unfused
from hybridlat.engines import device_sheets, pytorch, registry
from hybridlat.graph import operators
from hybridlat.graph.network import Lowered, Network, Node
from hybridlat.model import kernel_rows
from hybridlat.model.family.observations import KernelSet, Observation, architecture_of, kernel_set
from hybridlat.model.family.physics import KernelTable, at_batch
from hybridlat.model.family.shipped import copies_of
from hybridlat.model.family.tasks import Task
from hybridlat.onnx_io import read_network
from hybridlat.schema.names import device_name
from hybridlat.schema.target import Target

FAMILIES = {
    "tensorrt": ("paddle-tensorrt", "tensorrt", "paddlex-tensorrt", "ort-tensorrt"),
    "torch": ("torch",),
    "torch-compile": ("torch-compile",),
}
"""Engine families and their engines: what runs much the same kernels."""


def family_of(label: str) -> str:
    """The family of a table, which its target and perhaps a layout name."""
    engine = Target.parse(label.split()[0]).engine
    return next(name for name, engines in FAMILIES.items() if engine in engines)


NOTES = tomllib.loads(Path(__file__).with_name("whole_networks_notes.toml").read_text())["notes"]
"""What was found out about single rows of the table: ``where`` column → the values meant."""
RENAMED = {
    # PaddleX starts the same Paddle Inference, Triton the same engines as TensorRT alone.
    "t4/paddlex-tensorrt-8.5/fp16": "t4/paddle-tensorrt-8.5/fp16",
    "t4/paddlex-tensorrt-8.5/fp32": "t4/paddle-tensorrt-8.5/fp32",
    "a100/ort-tensorrt-8.2/fp16": "a100/tensorrt-8.2/fp16",
    "v100/ort-tensorrt-8.2/fp16": "v100/tensorrt-8.2/fp16",
    "orin-agx-32gb/tensorrt-trtutils/fp16": "orin-agx/tensorrt-trtutils/fp16",
    # JetPack 6.2 has TensorRT 10.3; the same harness timed the T4.
    **{
        f"orin-agx/tensorrt-ultralytics/{p}": f"orin-agx/tensorrt-10-ultralytics/{p}"
        for p in ("fp16", "fp32", "int8")
    },
    # 1.53 times what others have at 625 MHz: the clock of the 7 W mode.
    "orin-nano/tensorrt-8.6/fp16": "orin-nano-7w/tensorrt-8.6/fp16",
}
"""Targets whose table names them otherwise than users would."""
VERSIONS = {
    "tensorrt": "8",  # tables of 2023 and before
    # JetPack 5 on the Orin Nano and the Xavier NX, 6 on the other Orins (device_info.json of the
    # harness); its cards state no version, and are taken for those of the same months.
    "tensorrt-trtutils": "8.6",
    "orin-nano/tensorrt-trtutils/fp16": "8.5",
    "xavier-nx/tensorrt-trtutils/fp16": "8.5",
}
"""The TensorRT behind a table that names none, by its target, or by its runtime."""
PASSED_OVER = {
    "paddle": "plain Paddle, which calls TensorRT nowhere",
    "tkdnn-tensorrt": "an engine of its own, which builds layer by layer and fuses little",
    "tensorrt-animejanai": "whole video chains were timed: only ratios between cards hold",
}
"""Engines whose tables no family learns from, and why."""


@dataclass(frozen=True)
class Row:
    """One published figure."""

    target: Target
    folder: str
    onnx: str
    batch: int
    layout: str
    latency_us: float
    suspect: bool
    copies: bool
    graphs: bool
    plain_relu: bool
    is_chained: bool
    repeats_us: tuple[float, ...]
    """The figures that ``latency_us`` is the median of."""
    harness: str = ""
    cells: tuple[()] = ()  # of a file that is read as kernels

    @property
    def name(self) -> str:
        return f"{self.onnx} batch {self.batch} {self.layout}".rstrip()

    @property
    def timed(self) -> Target:
        """Its target as its table names it, what timed it in the runtime."""
        return replace(self.target, runtime=f"{self.target.runtime}-{self.harness}".rstrip("-"))

    @property
    def version(self) -> str:
        """The TensorRT that timed it, where its target names none and it is known."""
        return VERSIONS.get(str(self.timed), VERSIONS.get(self.timed.runtime, ""))

    @property
    def label(self) -> str:
        """The table that it is judged with, and the layout where several are known."""
        return f"{self.timed} {self.layout}".rstrip()

    @property
    def task(self) -> Task:
        t = self.target
        how = self.copies, self.graphs, self.harness
        architecture = device_sheets.load(t.device).architecture
        return Task(t.device, t.runtime, t.precision, self.layout, *how, architecture, self.version)

    @property
    def architecture(self) -> str:
        """Without the size and the form that it was exported in."""
        return architecture_of(self.onnx)


def read_rows(folders: Iterable[Path], engines: Iterable[str]) -> list[Row]:
    """The tables' rows of these engines; equal (task, network, batch) are one row, their median.

    Rows of engines that are of no family, and of CPUs, are counted on standard error.
    """
    table = pd.concat(
        pd.read_parquet(folder / "networks.parquet").assign(folder=folder.name)
        for folder in folders
    )
    wanted, of_families = set(engines), {one for each in FAMILIES.values() for one in each}
    passed: Counter[tuple[str, str, str]] = Counter()
    groups: dict[tuple[object, ...], list[float]] = {}
    for row in table.itertuples():
        target = Target.parse(str(row.target))
        is_cpu = target.device.startswith(("i7", "cascade"))
        if is_cpu or target.engine not in of_families:
            why = "a CPU's" if is_cpu else PASSED_OVER.get(target.engine, "an engine of no family")
            passed[str(row.folder), target.runtime, why] += 1
        if is_cpu or target.engine not in wanted:
            continue
        target = Target.parse(RENAMED.get(str(target), str(target)))
        target = replace(target, device=device_name(target.device))
        layout = str(row.layout) if "torch" in target.engine and target.device[:3] == "rtx" else ""
        noted = [
            n["note"] for n in NOTES if all(getattr(row, c) in v for c, v in n["where"].items())
        ]
        note = "; ".join(filter(None, [str(row.note), *noted]))
        copies = False if "not including IO" in note else True if "including IO" in note else None
        graphs = "CUDA graph" in note and "no CUDA graph" not in note
        how = copies_of(target, copies), graphs
        # Measured with ReLU where the file, another project's twin of it, has ReLU6 or a leaky one.
        relu = "ReLU in Paddle" in f"{row.mapping_note} {note}"
        network = (str(row.folder), str(row.onnx))
        forms = relu, "Concats of two" in note
        key = (target, *network, int(row.batch), layout, "suspect" in note, *how, *forms)
        groups.setdefault(key, []).append(float(row.latency_us))
    for (name, runtime, why), count in sorted(passed.items()):
        print(f"{name}: {count} rows of {runtime} are passed over: {why}", file=sys.stderr)
    return [
        Row(  # type: ignore[arg-type]
            t.plain,
            folder,
            onnx,
            batch,
            layout,
            float(np.median(result)),
            *rest,
            tuple(result),
            t.harness,
        )
        for (t, folder, onnx, batch, layout, *rest), result in groups.items()
    ]


class Lowerer:
    """Kernel tables of the files, lowered once a rule set and kept in a folder.

    The files lie in it too, under the name of the folder that their table is from; a later table
    takes files that an earlier one holds from there.
    """

    def __init__(self, cache_folder: Path) -> None:
        self.cache_folder = cache_folder
        self._tables: dict[tuple[str, str, str], KernelTable] = {}
        self._sets: dict[tuple[object, ...], KernelSet] = {}

    def table(self, row: Row) -> KernelTable:
        key, lower = lowering_of(row)
        return self._kept(row, key, lower)

    def layers(self, row: Row) -> KernelTable:
        """The file's operators, each a kernel of its own: what layer-wise methods add up."""
        return self._kept(row, "layers", unfused)

    def _kept(self, row: Row, key: str, lower: Callable[[Network], Lowered]) -> KernelTable:
        name = (row.folder, row.onnx, key)
        if name not in self._tables:
            self._tables[name] = self._read(row, key, lower)
        return self._tables[name]

    def _read(self, row: Row, key: str, lower: Callable[[Network], Lowered]) -> KernelTable:
        folder = self.cache_folder / row.folder
        file = folder / f"{_rows_hash()}-{key}" / f"{row.onnx}.npz"
        if file.exists():
            with np.load(file) as kept:
                return KernelTable(
                    kept["values"], kept["classes"], kept["counts"], float(kept["copied"])
                )
        files = (folder / "nets", *sorted(self.cache_folder.glob("*/nets")))
        network = next(one for f in files if (one := f / f"{row.onnx}.onnx").exists())
        table = kernel_table(lower(_network(network)))
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{row.onnx}.{os.getpid()}.npz")
        np.savez(
            part, values=table.values, classes=table.classes, counts=table.counts,
            copied=table.copied_bytes,
        )  # fmt: skip
        part.replace(file)  # others may read it meanwhile
        return table

    def kernels(self, row: Row) -> KernelSet:
        key, _ = lowering_of(row)
        name = (row.folder, row.onnx, key, row.batch, row.target.device, row.target.precision)
        if name not in self._sets:
            device = device_sheets.of_target(row.target)
            table = at_batch(self.table(row), row.batch)
            self._sets[name] = kernel_set(table, device, row.target.precision)
        return self._sets[name]

    def observation(self, row: Row) -> Observation:
        weight = 0.0 if row.suspect else 1.0
        return Observation(self.kernels(row), row.task, row.latency_us, row.architecture, weight)


@cache
def _rows_hash() -> str:
    """Of what makes numbers of kernels: tables that other code made are made anew."""
    files = (Path(module.__file__) for module in (kernel_rows, operators) if module.__file__)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


@cache
def _network(file: Path) -> Network:
    return read_network(file)


def lowering_of(row: Row) -> tuple[str, Callable[[Network], Lowered]]:
    """A name for the rules that a row's kernels come from, and the rules."""
    target = row.timed  # other harnesses of no version, and containers, tell their time
    if row.version:
        target = replace(target, runtime=f"tensorrt-{row.version}")
    key = registry.lowering_identity(target).replace("/", "-")
    if target.engine == "torch" and row.layout == "nhwc":
        return f"{key}-nhwc", lambda n: pytorch.lower(n, target, channels_last=True)
    forms = [_with_relu] * (row.plain_relu and "tensorrt" in target.engine)
    forms += [_chained] * (row.is_chained or target.engine == "paddle-tensorrt")
    key = "".join([key, *(form.__name__.replace("_", "-") for form in forms)])
    return key, lambda n: registry.lower(reduce(lambda m, form: form(m), forms, n), target)


def _chained(network: Network) -> Network:
    """Each Concat that starts with all parts of another reads that, as PaddleClas and Caffe do."""
    made: dict[tuple[str, ...], str] = {}
    nodes: list[Node] = []
    for node in network.nodes:
        inputs = node.inputs
        if node.op == "Concat":
            made[inputs] = node.outputs[0]
            for stop in range(len(inputs) - 1, 1, -1):
                if inputs[:stop] in made:
                    node = replace(node, inputs=(made[inputs[:stop]], *inputs[stop:]))
                    break
        nodes.append(node)
    return replace(network, nodes=tuple(nodes))


def _with_relu(network: Network) -> Network:
    nodes = tuple(
        replace(node, op="Relu", inputs=node.inputs[:1], attributes=())
        if node.op in ("Clip", "LeakyRelu")
        else node
        for node in network.nodes
    )
    return replace(network, nodes=nodes)
