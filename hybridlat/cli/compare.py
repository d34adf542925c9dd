"""``hybridlat compare``: networks side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from hybridlat.cli import options
from hybridlat.cli.options import Grouped
from hybridlat.cli.output import aside, console, print_json, write_page
from hybridlat.cli.predict import UNTRUSTED, opened
from hybridlat.report.compare import comparison, print_comparison
from hybridlat.report.units import why_untrusted


@click.command(cls=Grouped)
@options.networks
@options.where
@options.sizes
@options.trust
@options.known
@options.as_json
@options.as_page
@options.every_cell
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    batch: int | None,
    shapes: options.Shapes,
    latencies: Mapping[str, float],
    networks: Sequence[str],
    as_json: bool,
    html: str | None,
    every_cell: bool,
    **chosen: Any,
) -> None:
    """Compare networks: which is faster, by how much, and which cells make the difference.

    The first network is what the others are compared with.

    \b
    hybridlat compare a.onnx b.onnx
    hybridlat compare a.onnx b.onnx --target l4/tensorrt/fp16 --html differences.html
    """
    if len(networks) < 2:
        raise click.UsageError("Comparing takes two networks or more.")
    estimates = []
    with opened(**chosen) as (predictor, shown):
        predictor.give(latencies, batch=batch, shapes=shapes)
        for path in networks:
            shown.at(f"predicting {path}")
            estimates.append(predictor.predict(path, batch=batch, shapes=shapes, describe=True))
    if as_json:
        print_json(comparison(estimates))
    else:
        print_comparison(console(), estimates, every_cell=every_cell)
    if html is not None:
        write_page(html, estimates)
    doubtful = [estimate for estimate in estimates if not estimate.trusted]
    for estimate in doubtful if as_json else ():  # people have read it beside the table
        aside(f"{estimate.network}: {why_untrusted(estimate)}")
    ctx.exit(UNTRUSTED if doubtful else 0)
