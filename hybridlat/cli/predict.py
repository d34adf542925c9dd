"""``hybridlat predict``: the latency of networks, and where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridlat.cli import options
from hybridlat.cli.output import aside, console
from hybridlat.cli.param_types import LATENCY
from hybridlat.cli.progress import ProgressShown
from hybridlat.errors import HybridlatError

if TYPE_CHECKING:
    from hybridlat.api import MeasureMode
    from hybridlat.schema.estimate import Estimate

OVER, BAD_INPUT, UNTRUSTED = 1, 2, 3


@click.command()
@options.networks
@options.where
@options.sizes
@options.trust
@click.option("--max-latency", type=LATENCY, metavar="8ms",
              help="End with exit code 1 if the latency is over this.")  # fmt: skip
@options.as_json
@options.as_page
@options.every_cell
@click.pass_context
def predict(
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
    max_latency: float | None,
    as_json: bool,
    html: str | None,
    every_cell: bool,
) -> None:
    """Predict the latency of networks, and where the time goes.

    Exit codes: 0 done, 1 over --max-latency, 2 bad input, 3 no trustworthy estimate.
    """
    from hybridlat.api import Predictor

    estimates: list[Estimate] = []
    codes = {0}
    with (
        ProgressShown() as shown,
        Predictor(target, store=store, threads=threads, measure=measure,
                  tolerance=tolerance, confidence=confidence, progress=shown) as predictor,
    ):  # fmt: skip

        def one(path: str) -> Estimate:
            return predictor.predict(path, batch=batch, shapes=shapes, describe=True)

        for estimate in each(networks, one, codes):
            shown.close()
            estimates.append(estimate)
            codes.add(_verdict(estimate, max_latency, tolerance))
            if not as_json:
                from hybridlat.report.terminal import print_estimate

                if len(estimates) > 1:
                    click.echo()
                print_estimate(console(), estimate, every_cell=every_cell, tolerance=tolerance)
    if as_json and (estimates or len(networks) > 1):
        from hybridlat.report.json import estimates_document

        click.echo(estimates_document(estimates, as_list=len(networks) > 1))
    if html is not None and estimates:
        from hybridlat.report.html import page

        Path(html).write_text(page(estimates, tolerance), encoding="utf-8")
    ctx.exit(worst(codes))


def each(
    paths: Sequence[str], answer: Callable[[str], Estimate], codes: set[int]
) -> Iterator[Estimate]:
    """Answer one network after another; of several, a bad one costs only itself.

    Its sentence goes to standard error and its exit code to ``codes``.
    """
    for path in paths:
        try:
            estimate = answer(path)
        except HybridlatError as error:
            if len(paths) == 1:
                raise
            aside(str(error))
            codes.add(error.exit_code)
        else:
            yield estimate


def worst(codes: set[int]) -> int:
    """The exit code of several networks: bad input before doubt before over the limit."""
    return next(code for code in (BAD_INPUT, UNTRUSTED, OVER, 0) if code in codes)


def _verdict(estimate: Estimate, limit_us: float | None, tolerance: float) -> int:
    """The exit code of one estimate, told on standard error where it is not 0."""
    from hybridlat.report.doubt import why_untrusted
    from hybridlat.report.units import latency_text, percent_text

    if not estimate.trusted:
        aside(f"{estimate.network}: {why_untrusted(estimate, tolerance)}")
        return UNTRUSTED
    assert estimate.latency_us is not None
    if limit_us is not None and estimate.latency_us > limit_us:
        over = percent_text(estimate.latency_us / limit_us - 1)
        aside(
            f"{estimate.network} takes {latency_text(estimate.latency_us)}, "
            f"{over} over --max-latency {latency_text(limit_us)}"
        )
        return OVER
    return 0
