"""``hybridlat targets``: all targets, and the data available for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hybridlat.cli import options
from hybridlat.cli.output import console, print_json
from hybridlat.estimate.lookup.target_list import (
    FAMILY,
    FamilyInfo,
    TargetInfo,
    list_families,
    list_targets,
)
from hybridlat.report.table import Column, Table, titled
from hybridlat.report.units import count_text, plus_minus_text

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
