"""``hybridlat recommend``: which GPU, mode and precision keep a budget."""

from __future__ import annotations

from typing import Any

import click

import hybridlat
from hybridlat.cli import options
from hybridlat.cli.options import SURE, WHERE, Documents, Grouped, option
from hybridlat.cli.output import ProgressShown, console, print_json, write_page
from hybridlat.cli.param_types import SHARE
from hybridlat.cli.predict import OVER, UNTRUSTED
from hybridlat.report.prediction_table import COLUMNS, choice_table, values_of
from hybridlat.report.table import Table, titled
from hybridlat.report.units import latency_text
from hybridlat.schema.target import PRECISIONS

_ROWS, _WIDE = 20, 150  # rows without --all, and characters that have room for all columns
_NOT_LISTED = ("cells", "removed", "warnings", "remarks")  # in the JSON of hundreds of targets


@click.command(cls=Grouped)
@click.argument("network", metavar="NET.onnx", type=click.Path())
@click.argument("pattern", default="*")
@option("--precision", group=WHERE, type=click.Choice(PRECISIONS), help="Only this precision.")
@options.store
@options.sizes
@option("--fps", group=SURE, type=click.FloatRange(0, min_open=True), metavar="N",
        help="The budget in images a second (batch over latency).")  # fmt: skip
@options.max_latency
@option("--confidence", group=SURE, type=SHARE, default="90%", show_default=True, metavar="SHARE",
        help="Probability that an interval holds the true latency.")  # fmt: skip
@options.as_json
@options.as_page
@options.as_csv
@options.every_row
@click.pass_context
def recommend(
    ctx: click.Context, /, network: str, pattern: str, fps: float | None,
    budget: tuple[str, float] | None, as_json: bool, html: str | None, csv: str | None,
    every_row: bool, **chosen: Any,
) -> None:  # fmt: skip
    """Rank the GPUs that keep a budget for NET.onnx: every device and mode with a data sheet.

    PATTERN is of devices, under TensorRT, or of targets. Those that keep the budget come first,
    each by the power of the board, then by its memory.

    \b
    hybridlat recommend net.onnx --fps 30
    hybridlat recommend net.onnx 'orin-*' --max-latency 20ms --precision fp16
    hybridlat recommend net.onnx '*/torch/amp' --fps 200 --batch 8 --csv gpus.csv

    Exit codes: 0 some keep it, 1 none does, 2 bad input, 3 some may.
    """
    documents = Documents(as_json, csv=csv)
    if fps is not None and budget is not None:
        raise click.UsageError("Give one budget: --fps or --max-latency.")
    limit: dict[str, Any] = dict([budget] if budget else [("fps", fps)])
    with ProgressShown().at("looking at every GPU"):
        estimates = hybridlat.recommend(network, pattern, **limit, **chosen)
    kept = [one for one in estimates if one.verdict != "over"]
    shown = estimates if every_row else (kept or estimates)[:_ROWS]
    counts = [sum(e.verdict == name for e in estimates) for name in ("within", "unsure", "over")]
    if as_json:
        bodies = [one.to_json() for one in estimates]
        print_json([{k: v for k, v in body.items() if k not in _NOT_LISTED} for body in bodies])
    elif not documents.fill_standard_output:
        out = console()
        out.print(choice_table(shown, wide=out.width >= _WIDE).terminal())
        if left := len(estimates) - len(shown):
            out.print(f"{left} more rows (--all)")
        if any(counts):
            most = latency_text(estimates[0].max_latency_us)
            out.print(f"{counts[0]} within {most}, {counts[1]} unsure, {counts[2]} over")
        if len({one.basis for one in shown}) > 1:
            out.print("Rows that rest on different things do not compare closely.")
    if html is not None:
        write_page(html, shown)
    rows = [values_of(one) for one in estimates]
    documents.write_tables(str, Table(titled(*COLUMNS[:-1]), rows).csv)
    ctx.exit(0 if counts[0] or not any(counts) else UNTRUSTED if counts[1] else OVER)
