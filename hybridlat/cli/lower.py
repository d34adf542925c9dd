"""``hybridlat lower``: the kernels that an engine makes of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import click
from rich.text import Text

from hybridlat.cli import options
from hybridlat.cli.output import console, print_json
from hybridlat.engines import registry
from hybridlat.engines import rtx_compiler as compiler
from hybridlat.engines.fusion.groups import Groups
from hybridlat.engines.fusion.groups import differing as differing_operators
from hybridlat.errors import MeasurementError
from hybridlat.estimate.lookup.named_target import named_target
from hybridlat.graph.cells import cut_positions, label
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import read_network
from hybridlat.report.cell_texts import first_and_more
from hybridlat.report.table import Column, Table
from hybridlat.report.units import count_text
from hybridlat.schema.shown import visible
from hybridlat.schema.target import Target


@click.command()
@options.use("network")
@options.target_option(
    "device/runtime/precision: which engine lowers, and for what.", required=True
)
@options.use("device batch shape json")
def lower(
    network: str, target: str, batch: int | None, shapes: options.Shapes, as_json: bool
) -> None:
    """Show the kernels an engine makes of a network, the operators of each, and the cells.

    \b
    hybridlat lower a.onnx --target l4/tensorrt/fp16
    hybridlat lower a.onnx --target mine/tensorrt/fp16 --device-sheet mine.toml --json
    """
    named = named_target(target)
    read = read_network(network, batch, shapes)
    lowered = registry.lower(read, named)
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
    if as_json:
        body = {"network": network, "by": lowered.by, "kernels": kernels}
        print_json(body | {"removed": removed, "warnings": list(lowered.warnings)})
        return
    counts = f"{count_text(len(names), 'operator')} → {count_text(len(kernels), 'kernel')}"
    cells = count_text(len({kernel["cell"] for kernel in kernels}), "cell")
    out = console()
    out.print(Text.assemble((f"{counts} in {cells}", "bold"), f", by {lowered.by}"))
    _table(kernels).print(out)
    if removed:
        out.print(f"{len(removed)} removed: {visible(first_and_more(removed))}", style="dim")
    for warning in lowered.warnings:
        out.print(f"Note: {visible(str(warning))}", style="yellow")


def _differing(read: Network, lowered: Lowered, target: Target) -> set[int] | None:
    """Operators that TensorRT-RTX's compiler groups otherwise; None where it does not answer."""
    if target.engine != "tensorrt" or not compiler.installed():
        return None
    try:
        truth, _ = compiler.groups_of(read, target.precision)
    except MeasurementError:
        return None
    return set(differing_operators(Groups(lowered.origins, lowered.removed), truth))


def _table(kernels: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for above, kernel in pairwise([{"cell": None}, *kernels]):
        differs = ("  ← the engine differs", "red") if kernel["engine_differs"] else ("", "")
        cell = str(kernel["cell"]) if kernel["cell"] != above["cell"] else ""
        op = Text(kernel["op"] + differs[0], differs[1])
        rows.append([cell, op, first_and_more(kernel["nodes"]) or "made by the engine"])
    columns = [Column("cell", right=True), Column("kernel", wraps=True)]
    return Table([*columns, Column("operators", style="dim")], rows)
