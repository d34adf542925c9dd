"""``hybridlat table``: the blocks of a search space, as the look-up table of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from hybridlat.cli import options
from hybridlat.cli.output import aside, console, print_json
from hybridlat.cli.predict import UNTRUSTED
from hybridlat.cli.progress import ProgressShown

if TYPE_CHECKING:
    from hybridlat.api import MeasureMode


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
    networks: Sequence[str],
    target: str | None,
    threads: int | None,
    store: str | None,
    batch: int | None,
    shapes: Mapping[str, tuple[int, ...]],
    tolerance: float,
    confidence: float,
    measure: MeasureMode,
    pattern: str | None,
    as_json: bool,
    markdown: str | None,
    csv: str | None,
) -> None:
    """Tabulate the latency of every block of a search space at every position.

    Blocks are found in networks of the space by the modules that exporters name. Latencies add up:
    a network takes the constant and the rows of its blocks.

    \b
    hybridlat table a.onnx b.onnx c.onnx --csv blocks.csv
    hybridlat table a.onnx b.onnx --target l4/tensorrt/fp16 --blocks 'stages.*.blocks.*' --json

    Exit codes: 0 done, 2 bad input, 3 a row that is not to be trusted.
    """
    from hybridlat.api import Predictor
    from hybridlat.report import block_table

    options.one_on_standard_output(as_json, markdown, csv)
    with (
        ProgressShown() as shown,
        Predictor(target, store=store, threads=threads, measure=measure,
                  tolerance=tolerance, confidence=confidence, progress=shown) as predictor,
    ):  # fmt: skip
        found = predictor.space(networks, batch=batch, shapes=shapes, pattern=pattern).table
    if as_json:
        print_json(found.to_json())
    elif "-" not in (markdown, csv):
        block_table.print_blocks(console(), found)
    options.write_texts(
        (markdown, lambda: block_table.markdown(found)),
        (csv, lambda: block_table.comma_separated(found)),
    )
    doubtful = sum(not row.trusted for row in found.rows)
    if doubtful:
        aside(
            f"{doubtful} of {len(found.rows)} blocks are not to be trusted, within {tolerance:.0%}"
        )
    ctx.exit(UNTRUSTED if doubtful else 0)
