"""``hybridlat targets``: the targets there are, and what is known of each."""

from __future__ import annotations

from dataclasses import asdict

import click

from hybridlat.cli import options
from hybridlat.cli.output import console, print_json


@click.command()
@options.device
@options.store
@options.as_json
def targets(store: str | None, as_json: bool) -> None:
    """List the targets of the store, of the packs and models shipped, and this machine."""
    from hybridlat.api import list_targets

    found = list_targets(store)
    if as_json:
        print_json([asdict(info) for info in found])
        return
    from rich.table import Table
    from rich.text import Text

    from hybridlat.report.units import plus_minus_text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("target", overflow="fold")
    for title in ("cells", "networks", "model", "noise"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("known from")
    for info in found:
        here = "this machine" in info.source
        table.add_row(
            Text(info.target, "bold" if here else ""),
            f"{info.cells:,}",
            f"{info.networks:,}",
            "yes" if info.model else "–",
            plus_minus_text(None if info.noise_floor is None else info.noise_floor / 100),
            Text(info.source, "green" if here else ""),
        )
    console().print(table)
