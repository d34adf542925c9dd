"""``hybridlat compare`` and ``table``: networks side by side, and the blocks of a search space."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hybridlat.cli import options
from hybridlat.cli.options import Documents
from hybridlat.cli.output import aside, console, print_json
from hybridlat.cli.predict import UNTRUSTED, opened
from hybridlat.report import block_table
from hybridlat.report.compare import comparison, print_comparison
from hybridlat.report.html import page
from hybridlat.report.units import why_untrusted


@click.command()
@options.networks
@options.where
@options.sizes
@options.trust
@options.as_json
@options.as_page
@options.every_cell
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    batch: int | None,
    shapes: options.Shapes,
    networks: Sequence[str],
    as_json: bool,
    html: str | None,
    every_cell: bool,
    tolerance: float,
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
    with opened(tolerance=tolerance, **chosen) as (predictor, _):
        estimates = [
            predictor.predict(path, batch=batch, shapes=shapes, describe=True) for path in networks
        ]
    if as_json:
        print_json(comparison(estimates))
    else:
        print_comparison(console(), estimates, every_cell=every_cell)
    if html is not None:
        Path(html).write_text(page(estimates, tolerance), encoding="utf-8")
    doubtful = [estimate for estimate in estimates if not estimate.trusted]
    for estimate in doubtful:
        aside(f"{estimate.network}: {why_untrusted(estimate, tolerance)}")
    ctx.exit(UNTRUSTED if doubtful else 0)


@click.command()
@options.networks
@options.where
@options.sizes
@options.trust
@click.option("--blocks", "pattern", metavar="PATTERN",
              help="Modules that are blocks, as in 'stages.*.blocks.*'; the innermost numbered "
                   "ones unless given.")  # fmt: skip
@options.as_json
@options.as_markdown
@options.as_csv
@click.pass_context
def table(
    ctx: click.Context,
    /,
    batch: int | None,
    shapes: options.Shapes,
    networks: Sequence[str],
    pattern: str | None,
    as_json: bool,
    markdown: str | None,
    csv: str | None,
    tolerance: float,
    **chosen: Any,
) -> None:
    """Tabulate the latency of every block of a search space at every position.

    Blocks are found in networks of the space by the modules that exporters name. Latencies add up:
    a network takes the constant and the rows of its blocks.

    \b
    hybridlat table a.onnx b.onnx c.onnx --csv blocks.csv
    hybridlat table a.onnx b.onnx --target l4/tensorrt/fp16 --blocks 'stages.*.blocks.*' --json

    Exit codes: 0 done, 2 bad input, 3 a row that is not to be trusted.
    """
    documents = Documents(as_json, markdown, csv)
    with opened(tolerance=tolerance, **chosen) as (predictor, _):
        blocks = predictor.space(networks, batch=batch, shapes=shapes, pattern=pattern).table
    if as_json:
        print_json(blocks.to_json())
    elif not documents.fill_standard_output:
        block_table.print_blocks(console(), blocks)
    documents.write_tables(
        lambda: block_table.markdown(blocks), lambda: block_table.comma_separated(blocks)
    )
    doubtful = sum(not row.trusted for row in blocks.rows)
    if doubtful:
        aside(
            f"{doubtful} of {len(blocks.rows)} blocks are not to be trusted, within {tolerance:.0%}"
        )
    ctx.exit(UNTRUSTED if doubtful else 0)
