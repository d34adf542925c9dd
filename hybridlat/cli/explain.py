"""``hybridlat explain``: is a measured latency normal, and what explains it best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from hybridlat.cli import options
from hybridlat.cli.options import INPUT, Grouped, option
from hybridlat.cli.output import console, print_json
from hybridlat.cli.param_types import MEASURED
from hybridlat.cli.predict import UNTRUSTED, opened
from hybridlat.report.explain import layers_of


@click.command(cls=Grouped)
@click.argument("network", metavar="NET.onnx", type=click.Path())
@options.where
@option("--measured", group=INPUT, type=MEASURED, required=True, metavar="10ms|FILE.log",
        help="The latency that was measured, of one batch, or trtexec's log.")  # fmt: skip
@option("--layers", group=INPUT, type=click.Path(), metavar="FILE.json",
        help="What trtexec --exportProfile wrote: its layers beside our cells.")  # fmt: skip
@options.known
@options.sizes
@options.as_json
@click.pass_context
def explain(
    ctx: click.Context, /, network: str, measured: float | str, layers: str | None,
    batch: int | None, shapes: options.Shapes, latencies: Mapping[str, float], as_json: bool,
    **chosen: Any,
) -> None:  # fmt: skip
    """Say whether a measured latency is normal, and which circumstance explains it best.

    Suspects are predicted as the network is: another precision, power mode, batch, size or number
    of threads, copies, launches, a lower clock, other programs. Each comes with what tells it from
    the others.

    \b
    hybridlat explain resnet50 --target orin-nano/tensorrt/fp16 --measured 10ms
    hybridlat explain a.onnx --target l4/tensorrt/fp16 --measured run.log --layers profile.json

    Exit codes: 0 normal or explained, 2 bad input, 3 nothing explains it.
    """
    with opened(**chosen, measure="never") as (predictor, shown):
        shown.at(f"explaining {network}")
        predictor.give(latencies, batch=batch, shapes=shapes)
        explanation = predictor.explain(network, measured, batch=batch, shapes=shapes)
    profile = None if layers is None else layers_of(explanation.estimate, layers)
    if as_json:
        print_json(
            explanation.to_json() | ({} if profile is None else {"layers": profile.to_json()})
        )
    else:
        click.echo(str(explanation))
        if profile is not None:
            console().print("", profile.table().terminal())
    ctx.exit(UNTRUSTED if explanation.verdict == "not explained" else 0)
