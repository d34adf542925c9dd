"""``hybridlat compare``: networks side by side, and what makes the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
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
@options.as_json
@options.as_page
@options.every_cell
@click.pass_context
def compare(
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
    as_json: bool,
    html: str | None,
    every_cell: bool,
) -> None:
    """Compare networks: which is faster, by how much, and which cells make the difference.

    The first network is what the others are compared with.

    \b
    hybridlat compare a.onnx b.onnx
    hybridlat compare a.onnx b.onnx --target l4/tensorrt/fp16 --html differences.html
    """
    from hybridlat.api import Predictor
    from hybridlat.report.compare import comparison, print_comparison
    from hybridlat.report.units import why_untrusted

    if len(networks) < 2:
        raise click.UsageError("Comparing takes two networks or more.")
    with (
        ProgressShown() as shown,
        Predictor(target, store=store, threads=threads, measure=measure,
                  tolerance=tolerance, confidence=confidence, progress=shown) as predictor,
    ):  # fmt: skip
        estimates = [
            predictor.predict(path, batch=batch, shapes=shapes, describe=True) for path in networks
        ]
    if as_json:
        print_json(comparison(estimates))
    else:
        print_comparison(console(), estimates, every_cell=every_cell)
    if html is not None:
        from hybridlat.report.html import page

        Path(html).write_text(page(estimates, tolerance), encoding="utf-8")
    doubtful = [estimate for estimate in estimates if not estimate.trusted]
    for estimate in doubtful:
        aside(f"{estimate.network}: {why_untrusted(estimate, tolerance)}")
    ctx.exit(UNTRUSTED if doubtful else 0)
