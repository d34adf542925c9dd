"""``hybridlat targets``, ``examples`` and ``lower``: what is predicted, and what engines run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from hybridlat.cli.options import command, option, target_option
from hybridlat.cli.output import ProgressShown, Run, echo
from hybridlat.cli.param_types import Place
from hybridlat.engines import registry
from hybridlat.errors import InputError, MeasurementError
from hybridlat.estimate.lookup import target_list
from hybridlat.estimate.lookup.named_target import named_target
from hybridlat.graph.cells import cut_positions, label
from hybridlat.graph.network import Lowered, Network
from hybridlat.model.family.shipped import FamilyHead, family_heads, timed_as
from hybridlat.onnx_io import read_network
from hybridlat.onnx_io.file import shipped_networks
from hybridlat.report.cell_texts import first_and_more
from hybridlat.report.table import Cell, Column, Table
from hybridlat.report.units import NOTHING, count_text, plus_minus_text
from hybridlat.schema.files import write_bytes
from hybridlat.schema.shown import visible
from hybridlat.schema.target import Target

_WIDTH = "typical interval"
_FOLDER = Place(file_okay=False, path_type=Path)
_OUTPUT = "Folder to write the ONNX files to; their names are listed without."
_ALL = "Also list the GPUs that are predicted by data sheet alone."


@command(
    click.argument("device", required=False),
    "device store json",
    option("--all", "every_device", is_flag=True, help=_ALL),
)
def targets(run: Run) -> None:
    """List the targets that can be predicted: all that are known, or those of DEVICE.

    \b
    hybridlat targets
    hybridlat targets "RTX 4090"
    hybridlat targets jetson
    hybridlat targets --all --json
    """
    with ProgressShown().at("looking at what is known"):
        device, every_device = run.device, run.every_device
        known = target_list.list_targets(run.store, device)
        families = [] if device else family_heads()
    every = target_list.by_data_sheet(known) if run.as_json and every_device and not device else []
    shown = _shown(known, families, device, every_device)
    run.show([asdict(info) for info in (*known, *every)], shown)


def _shown(
    known: Sequence[target_list.TargetInfo],
    families: Sequence[FamilyHead],
    device: str | None,
    every_device: bool,
) -> Iterator[object]:
    from rich.text import Text

    devices = {info.target.split("/")[0] for info in known}
    for basis in ("measurements", "public tables", "a model", "the data sheet"):
        rows = [info for info in known if _basis(info) == basis]
        if len(devices) > 1 and basis == "the data sheet" and device:
            names = ", ".join(dict.fromkeys(info.target.split("/")[0] for info in rows))
            yield Text(f"By data sheet, under other engines and precisions: {names} ")
        elif rows:
            yield _table(f"Targets that rest on {basis}", rows)
            yield ""
    if not known:
        yield Text("Only the data sheet of this device is known: predictions are rough.")
    if families:
        boards = target_list.gpus()
        widths = [
            [", ".join(f.engines), plus_minus_text(f.half_width_share(None))] for f in families
        ]
        columns = [Column("engine, any version"), Column(_WIDTH, right=True)]
        title = f"{count_text(len(boards), 'GPU')} predicted by their data sheets"
        yield Table(columns, widths, title, "" if every_device else "--all names them.")
        if every_device:
            kinds = {board.architecture for board in boards}
            named = {k: ", ".join(b.name for b in boards if b.architecture == k) for k in kinds}
            columns = [Column("architecture"), Column("GPU, its modes and slices", wraps=True)]
            yield ""
            yield Table(columns, sorted(named.items()))


def _basis(info: target_list.TargetInfo) -> str:
    if {"store", "pack", "this machine"} & set(info.source.split(", ")):
        return "measurements"
    if target_list.FAMILY in info.source:
        return "public tables"
    return "a model" if info.model else "the data sheet"


def _table(title: str, known: Sequence[target_list.TargetInfo]) -> Table:
    from rich.text import Text

    here = [info.target for info in known if "this machine" in info.source]
    noises = [info.noise_floor for info in known]
    trained = [info.trained_on if _basis(info) == "a model" else None for info in known]
    columns = {
        "cells": [f"{info.cells:,}" if info.cells else NOTHING for info in known],
        "networks": [f"{info.networks:,}" if info.networks else NOTHING for info in known],
        _WIDTH: [_interval_text(info) for info in known],
        "repeatability": [plus_minus_text(None if n is None else n / 100) for n in noises],
        "trained on": [count_text(rows, "cell") if rows else NOTHING for rows in trained],
    }
    shown = {name: texts for name, texts in columns.items() if set(texts) != {NOTHING}}
    names = [Text(i.target, "bold green" if i.target in here else "") for i in known]
    caption = f"{here[0]} is this machine." if here else ""
    titles = [Column("target"), *(Column(name, right=name != _WIDTH) for name in shown)]
    return Table(titles, list(zip(names, *shown.values(), strict=True)), title, caption)


def _interval_text(info: target_list.TargetInfo) -> str:
    """``±12 % at batch 1–8``: how wide, and where that was learned."""
    text = plus_minus_text(info.half_width_share)
    if info.batches is not None and text != NOTHING:
        text += f" at batch {'–'.join(map(str, dict.fromkeys(info.batches)))}"
    return text


@command(
    click.argument("names", nargs=-1, metavar="[NAME]..."),
    option("-o", "--output", type=_FOLDER, metavar="DIR", help=_OUTPUT),
)
def examples(run: Run) -> None:
    """List the shipped networks, or write them as ONNX files: architectures, without weights.

    A listed name stands wherever a NET.onnx may. All are written unless names are given, and never
    over another file.

    \b
    hybridlat examples
    hybridlat predict resnet18
    hybridlat examples resnet18 mobilenetv2_100 -o nets
    """
    known, output = shipped_networks(), run.output
    unknown = [name for name in run.names if name not in known]
    if unknown:
        raise InputError(f"unknown example {unknown[0]!r}; choose from {', '.join(known)}")
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    for name in run.names or known:
        if output is not None:
            path, data = output / f"{name}.onnx", known[name].read_bytes()
            if path.exists() and path.read_bytes() != data:
                raise InputError(f"{path} is another file: give a new folder, or remove it")
            write_bytes(path, data)
        echo(name if output is None else str(output / f"{name}.onnx"))


@command(
    "network",
    target_option("device/runtime/precision: which engine lowers, and for what.", required=True),
    "device batch shape json",
)
def lower(run: Run) -> None:
    """Show the kernels an engine makes of a network, the operators of each, and the cells.

    \b
    hybridlat lower a.onnx --target l4/tensorrt/fp16
    hybridlat lower a.onnx --target mine/tensorrt/fp16 --device-sheet mine.toml --json
    """
    named = named_target(run.target)
    read = read_network(run.network, run.batch, run.shapes)
    lowered = registry.lower(read, timed_as(named))
    differing = _differing(read, lowered, named)
    names = [node.name for node in read.nodes]
    kernels: list[dict[str, Any]] = []
    for number, positions in enumerate(cut_positions(lowered.network)):
        for p in positions:
            origins = lowered.origins[p]
            op, nodes = label(lowered.network.nodes[p], origins, read), [names[i] for i in origins]
            differs = None if differing is None else bool(differing & set(origins))
            kernels.append({"cell": number, "op": op, "nodes": nodes, "engine_differs": differs})
    removed = [names[i] for i in lowered.removed]
    body = {"network": run.network, "by": lowered.by, "kernels": kernels, "removed": removed}
    body |= {"warnings": list(lowered.warnings)}
    run.show(body, _kernels_shown(body, len(names)))


def _kernels_shown(body: Mapping[str, Any], operators: int) -> Iterator[object]:
    """What people read of ``lower --json``, of so many operators."""
    from rich.text import Text

    kernels, removed = body["kernels"], body["removed"]
    cells = {kernel["cell"] for kernel in kernels}
    counts = f"{count_text(operators, 'operator')} → {count_text(len(kernels), 'kernel')}"
    counts += f" in {count_text(len(cells), 'cell')}"
    yield Text.assemble((counts, "bold"), f", by {body['by']}")
    rows: list[list[str | Cell]] = []
    for above, kernel in pairwise([{"cell": None}, *kernels]):
        cell = str(kernel["cell"]) if kernel["cell"] != above["cell"] else ""
        op = kernel["op"]
        if kernel["engine_differs"]:
            op = Cell(f"{op}  ← TensorRT-RTX differs", "slower")
        rows.append([cell, op, first_and_more(kernel["nodes"]) or "made by the engine"])
    columns = [Column("cell", right=True), Column("kernel", wraps=True)]
    yield Table([*columns, Column("operators", style="dim")], rows)
    if removed:
        yield Text(f"{len(removed)} removed: {visible(first_and_more(removed))}", "dim")
    for warning in body["warnings"]:
        yield Text(f"Note: {visible(str(warning))}", "yellow")


def _differing(read: Network, lowered: Lowered, target: Target) -> set[int] | None:
    """Operators that TensorRT-RTX's compiler groups otherwise; None where it does not answer."""
    from hybridlat.engines import rtx_compiler as compiler  # the other commands need no rules
    from hybridlat.engines.fusion.groups import Groups, differing

    if target.engine != "tensorrt" or not compiler.installed():
        return None
    try:
        truth, _ = compiler.groups_of(read, target.precision)
    except MeasurementError:
        return None
    return set(differing(Groups(lowered.origins, lowered.removed), truth))
