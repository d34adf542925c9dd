"""``hybridlat targets`` and ``examples``: what there is to predict for, and networks to try."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridlat.cli import options
from hybridlat.cli.output import ProgressShown, console, print_json
from hybridlat.errors import InputError
from hybridlat.estimate.lookup.target_list import (
    FAMILY,
    FamilyInfo,
    TargetInfo,
    list_families,
    list_targets,
)
from hybridlat.report.table import Column, Table, titled
from hybridlat.report.units import count_text, plus_minus_text
from hybridlat.schema.plugins import shipped

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@options.device
@options.store
@options.as_json
@click.option("--all", "every_device", is_flag=True,
              help="Also list the devices that are answered for by their data sheet.")  # fmt: skip
def targets(store: str | None, as_json: bool, every_device: bool) -> None:
    """List what is known of which targets: store, packs, models, families and this machine.

    \b
    hybridlat targets
    hybridlat targets --all --json
    """
    with ProgressShown().at("looking at what is known"):
        known = list_targets(store)
    if as_json:
        named = {info.target for info in known}
        families = list_families() if every_device else []
        known += [t for f in families for t in f.targets() if t.target not in named]
        print_json([asdict(info) for info in known])
        return
    out = console()
    out.print(_table(known).terminal())
    for family in list_families():
        out.print()
        _print_family(out, family, every_device)


def _table(known: Sequence[TargetInfo]) -> Table:
    from rich.text import Text

    rows = []
    for info in known:
        here = "this machine" in info.source
        rows.append([
            Text(info.target, "bold" if here else ""),
            f"{info.cells:,}",
            f"{info.networks:,}",
            plus_minus_text(None if info.noise_floor is None else info.noise_floor / 100),
            plus_minus_text(info.half_width_share),
            Text(info.source.replace(FAMILY, "family"), "green" if here else ""),
        ])  # fmt: skip
    figures = titled("cells", "networks", "noise", "90 % sure", right=True)
    return Table([Column("target"), *figures, Column("known from", wraps=True)], rows)


def _print_family(out: Console, family: FamilyInfo, every_device: bool) -> None:
    """One line of a family, and the names of its devices for ``--all``."""
    from rich.text import Text

    width = family.half_width_share
    typically = "" if width is None else f", typically {plus_minus_text(width)} (90 % sure)"
    line = Text.assemble(
        ("family ", "dim"), (family.name, "bold"),
        f": {', '.join(family.engines)} of any version. {count_text(len(family.devices), 'GPU')} "
        f"with a data sheet can be predicted for, measured or not{typically}",
    )  # fmt: skip
    line.append(":" if every_device else "; --all lists them.")
    out.print(line)
    if every_device:
        out.print(Text(", ".join(device.name for device in family.devices), "dim"))


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True,
              metavar="DIR", help="Folder to write the ONNX files to.")  # fmt: skip
def examples(names: Sequence[str], output: Path) -> None:
    """Write the shipped networks as ONNX files: architectures, without weights.

    All of them unless names are given. Files of the same name are replaced.

    \b
    hybridlat examples -o nets
    hybridlat examples resnet18 mobilenetv2_100 -o nets
    """
    known = {path.stem: path for path in sorted(shipped("data", "nets").glob("*.onnx"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"unknown example {unknown[0]!r}; choose from {', '.join(known)}")
    output.mkdir(parents=True, exist_ok=True)
    for name in names or known:
        shutil.copyfile(known[name], output / f"{name}.onnx")
        click.echo(output / f"{name}.onnx")
