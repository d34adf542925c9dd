"""``hybridlat sweep``: one network over its batches, input sizes or widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hybridlat.cli import options
from hybridlat.cli.options import INPUT, Documents, Grouped, option
from hybridlat.cli.output import aside, console, print_json, write_page
from hybridlat.cli.param_types import CURVE
from hybridlat.cli.predict import UNTRUSTED, opened


@click.command(cls=Grouped)
@click.argument("network", metavar="NET.onnx", type=click.Path())
@options.where
@option("--size", group=INPUT, type=CURVE, metavar="320:640:64",
        help="Longer sides of the input images, with steps, or a list as in 320,416.")  # fmt: skip
@option("--width", group=INPUT, type=CURVE, metavar="0.25:1:0.125",
        help="Factors of all channels. Those that depend on each other are scaled together and "
             "rounded to multiples of 8; inputs and outputs keep theirs.")  # fmt: skip
@option("--batch", group=INPUT, type=CURVE, metavar="1,2,4", help="Batch sizes; beside --size or "
        "--width the one of all.")  # fmt: skip
@options.shape
@options.trust
@options.as_json
@options.as_page
@options.as_csv
@click.pass_context
def sweep(
    ctx: click.Context, /, network: str, size: Sequence[float] | None,
    width: Sequence[float] | None, batch: Sequence[float] | None,
    shapes: options.Shapes, as_json: bool, html: str | None, csv: str | None, **chosen: Any,
) -> None:  # fmt: skip
    """Show one network's latency over batches, input sizes or widths, its flat parts and steps.

    flat: the lower value saves less than 2 %. step: more is paid than along the whole curve.
    reverse: more is faster. knee: from here, throughput grows little. The next value that saves
    stands beside those whose neighbour does not.

    \b
    hybridlat sweep resnet18 --target orin-nano/tensorrt/fp16 --width 0.25:1:0.125
    hybridlat sweep a.onnx --target l4/tensorrt/fp16 --size 320:640:64 --html sizes.html
    hybridlat sweep a.onnx --target l4/tensorrt/fp16 --batch 1,2,4,8 --csv batches.csv

    Exit codes: 0 done, 2 bad input, 3 a value cannot be had, or is not to be trusted.
    """
    documents = Documents(as_json, csv=csv)
    curves: dict[Any, Sequence[float]] = {
        name: values for name, values in (("size", size), ("width", width)) if values
    }
    if batch and len(batch) > 1:
        curves["batch"] = batch
    if len(curves) != 1:
        raise click.UsageError("Give one of --size, --width and --batch with two values or more.")
    ((over, values),) = curves.items()
    one = None if over == "batch" or not batch else int(batch[0])
    with opened(**chosen) as (predictor, shown):
        shown.at(f"predicting {network} over {over}")
        curve = predictor.sweep(network, over, values, batch=one, shapes=shapes)
    estimates = list(curve.estimates.values())
    if as_json:
        print_json(curve.to_json())
    elif not documents.fill_standard_output:
        console().print(curve.table().terminal())
    if curve.refused:
        aside(curve.left_out)
    if html is not None:
        write_page(html, estimates, over=over, values=list(curve.estimates), table=curve.table())
    documents.write_tables(str, curve.to_csv)
    doubtful = curve.refused or not all(estimate.trusted for estimate in estimates)
    ctx.exit(UNTRUSTED if doubtful else 0)
