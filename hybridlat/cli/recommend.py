"""``hybridlat recommend``: which GPU, mode and precision keep a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

import hybridlat
from hybridlat.api.recommend import device_of
from hybridlat.cli import options
from hybridlat.cli.options import SURE, WHERE, Documents, Grouped, option
from hybridlat.cli.output import ProgressShown, console, print_json, write_page
from hybridlat.cli.param_types import SHARE
from hybridlat.cli.predict import OVER, UNTRUSTED
from hybridlat.report.prediction_table import COLUMNS, values_of, verdict_cell
from hybridlat.report.table import Column, Table, titled
from hybridlat.report.units import NOTHING, answer_text, fps_text, latency_text
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.target import PRECISIONS

_ROWS, _WIDE = 20, 110  # rows without --all, and characters that have room for all columns
_BASES = {
    "measured": "measured", "predicted": "its own model", "public-timings": "this GPU's timings",
    "other-precision": "another precision here", "other-version": "another version here",
    "device-unmeasured": "other GPUs",
}  # fmt: skip
_NOT_LISTED = ("cells", "removed", "warnings", "remarks")  # in the JSON of hundreds of targets
_NOTE = "Rows that rest on different things do not compare closely."


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
    kept = [one for one in estimates if one.verdict != "over"][:_ROWS]
    shown = estimates if every_row else kept or estimates[:_ROWS]
    if as_json:
        bodies = [one.to_json() | {"power_w": device_of(one).power_w} for one in estimates]
        print_json([{k: v for k, v in body.items() if k not in _NOT_LISTED} for body in bodies])
    elif not documents.fill_standard_output:
        out = console()
        out.print(_table(estimates, shown, out.width >= _WIDE).terminal())
    if html is not None:
        write_page(html, shown)
    rows = [[*values_of(one), device_of(one).power_w] for one in estimates]
    documents.write_tables(str, Table(titled(*COLUMNS[:-1], "power_w"), rows).csv)
    verdicts = {one.verdict for one in estimates}
    ctx.exit(0 if verdicts & {"within", None} else UNTRUSTED if "unsure" in verdicts else OVER)


def _table(estimates: Sequence[Estimate], shown: Sequence[Estimate], wide: bool) -> Table:
    rows = []
    for one in shown:
        device, memory = device_of(one), one.memory and one.memory.verdict
        size = NOTHING if device.memory_bytes is None else f"{device.memory_bytes / 2**30:g} GB"
        power = NOTHING if device.power_w is None else f"{device.power_w:g} W"
        rows.append([
            one.target, power, size, *answer_text(one), fps_text(one.throughput_per_s),
            verdict_cell(one), memory or NOTHING, _BASES.get(one.basis[0], ""),
        ])  # fmt: skip
    figures = titled("power", "memory", "latency", "interval", "throughput", right=True)
    columns = [Column("target"), *figures, *titled("verdict", "fits", "rests on")]
    left_out = {} if wide else dict.fromkeys(("memory", "throughput", "rests on"), True)
    left_out["fits"] = all(one.memory and one.memory.verdict == "fits" for one in shown)
    counts = [sum(e.verdict == name for e in estimates) for name in ("within", "unsure", "over")]
    left = len(estimates) - len(shown)
    lines = [f"{left} more rows (--all)"] if left else []
    if (limit := estimates[0].max_latency_us) is None:
        left_out["verdict"] = True
    else:
        lines.append(
            f"{counts[0]} within {latency_text(limit)}, {counts[1]} unsure, {counts[2]} over"
        )
    if len({one.basis for one in shown}) > 1:
        lines.append(_NOTE)
    return Table(columns, rows, caption="\n".join(lines)).without(left_out)
