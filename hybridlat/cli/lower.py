"""``hybridlat lower``: the kernels that an engine makes of a network."""

from __future__ import annotations

import click

from hybridlat.cli import options
from hybridlat.cli.output import console, print_json
from hybridlat.engines import registry
from hybridlat.engines import tensorrt_rtx as compiler
from hybridlat.engines.fusion.groups import Groups
from hybridlat.engines.fusion.groups import differing as differing_operators
from hybridlat.errors import MeasurementError
from hybridlat.estimate.lookup.asked_target import asked_target
from hybridlat.graph.cells import cut_positions, label
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import read_network
from hybridlat.report.cell_texts import first_and_more
from hybridlat.report.table import Column, Table
from hybridlat.report.units import count_text, percent_text
from hybridlat.schema.target import Target


@click.command()
@click.argument("network", metavar="NET.onnx", type=click.Path())
@options.target_option(
    "device/runtime/precision: the runtime is the engine that lowers.", required=True
)
@options.device
@options.sizes
@options.as_json  # fmt: skip
def lower(
    network: str,
    target: str,
    batch: int | None,
    shapes: options.Shapes,
    as_json: bool,
) -> None:
    """Show the kernels an engine makes of a network, the operators of each, and the cells.

    \b
    hybridlat lower a.onnx --target l4/tensorrt/fp16
    hybridlat lower a.onnx --target mine/tensorrt/fp16 --device-sheet mine.toml --json
    """
    wanted = asked_target(target)
    read = read_network(network, batch, shapes)
    lowered = registry.lower(read, wanted)
    cells = cut_positions(lowered.network)
    differing = _differing(read, lowered, wanted)
    if as_json:
        names = [node.name for node in read.nodes]
        kernels = [
            {
                "cell": number,
                "op": label(lowered.network.nodes[p], lowered.origins[p], read),
                "nodes": [names[i] for i in lowered.origins[p]],
                "engine_differs": None if differing is None
                else bool(differing & set(lowered.origins[p])),
            }
            for number, positions in enumerate(cells)
            for p in positions
        ]  # fmt: skip
        removed = [names[i] for i in lowered.removed]
        print_json({"network": network, "by": lowered.by, "kernels": kernels,
                    "removed": removed, "warnings": list(lowered.warnings)})  # fmt: skip
        return
    _print(read, lowered, cells, differing)


def _differing(read: Network, lowered: Lowered, target: Target) -> set[int] | None:
    """Operators that TensorRT-RTX's compiler groups otherwise than the rules.

    None: it is not here, or refuses the network.
    """
    if target.engine != "tensorrt" or not compiler.installed():
        return None
    try:
        truth, _ = compiler.groups_of(read, target.precision)
    except MeasurementError:
        return None
    return set(differing_operators(Groups(lowered.origins, lowered.removed), truth))


def _print(
    read: Network,
    lowered: Lowered,
    cells: tuple[tuple[int, ...], ...],
    differing: set[int] | None,
) -> None:
    from rich.text import Text

    out = console()
    out.print(Text.assemble(
        (f"{count_text(len(read.nodes), 'operator')} → "
         f"{count_text(len(lowered.network.nodes), 'kernel')} in {count_text(len(cells), 'cell')}",
         "bold"), f", by {lowered.by}"
    ))  # fmt: skip
    rows = []
    for number, positions in enumerate(cells):
        for index, p in enumerate(positions):
            origins = lowered.origins[p]
            differs = bool(differing and differing & set(origins))
            rows.append([
                str(number) if index == 0 else "",
                Text(label(lowered.network.nodes[p], origins, read)
                     + ("  ← the engine differs" if differs else ""), "red" if differs else ""),
                first_and_more([read.nodes[i].name for i in origins]) or "made by the engine",
            ])  # fmt: skip
    columns = [Column("cell", right=True), Column("kernel", wraps=True)]
    out.print(Table([*columns, Column("operators", style="dim")], rows).terminal())
    if lowered.removed:
        names = first_and_more([read.nodes[i].name for i in lowered.removed])
        out.print(Text(f"{len(lowered.removed)} removed: {names}", "dim"))
    if differing is not None and read.nodes:
        share = 1 - len(differing) / len(read.nodes)
        out.print(f"agrees with TensorRT-RTX's compiler on {percent_text(share)} of the operators")
    for warning in lowered.warnings:
        out.print(Text(f"Note: {warning}", "yellow"))
