"""``hybridlat predict``: the latency of networks, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click

from hybridlat import api
from hybridlat.cli import options
from hybridlat.cli.options import Documents, Sizes
from hybridlat.cli.output import ProgressShown, aside, console, print_json
from hybridlat.cli.param_types import LATENCY
from hybridlat.errors import HybridlatError
from hybridlat.report import prediction_table
from hybridlat.report.prediction_table import PredictionTable
from hybridlat.report.terminal import print_estimate
from hybridlat.report.units import latency_text, percent_text, why_untrusted
from hybridlat.schema.estimate import Estimate

OVER, BAD_INPUT, UNTRUSTED = 1, 2, 3


@dataclass(frozen=True)
class PredictorChoice:
    """The predictor that the options of a command describe."""

    threads: int | None
    store: str | None
    tolerance: float
    confidence: float
    measure: api.MeasureMode
    target: str | None = None

    @contextmanager
    def opened(self, target: str | None = None) -> Iterator[tuple[api.Predictor, ProgressShown]]:
        """The predictor for ``target``, else the option's, and what shows its progress."""
        with (
            ProgressShown() as shown,
            api.Predictor(
                target or self.target, store=self.store, threads=self.threads,
                measure=self.measure, tolerance=self.tolerance, confidence=self.confidence,
                progress=shown,
            ) as predictor,
        ):  # fmt: skip
            yield predictor, shown


@dataclass
class _Run:
    """Networks × batches × targets: the estimates by their positions, and the exit codes."""

    networks: Sequence[str]
    batches: Sequence[int | None]
    targets: Sequence[str | None]
    limit_us: float | None
    tolerance: float
    estimates: dict[tuple[int, int, int], Estimate] = field(default_factory=dict)
    errors: dict[tuple[int, int, int], str] = field(default_factory=dict)
    codes: set[int] = field(default_factory=lambda: {0})

    @property
    def is_single(self) -> bool:
        """One network, one batch, one target: its error is the command's."""
        return len(self.networks) * len(self.batches) * len(self.targets) == 1

    @property
    def shows_cells(self) -> bool:
        """Whether networks are shown one after another, as they are estimated."""
        return len(self.batches) * len(self.targets) == 1

    def add(self, key: tuple[int, int, int], result: Estimate | HybridlatError) -> None:
        """One more estimate or error; an error of one of several is printed once."""
        if isinstance(result, HybridlatError):
            if self.is_single:
                raise result
            if str(result) not in self.errors.values():
                aside(str(result))
            self.errors[key] = str(result)
            self.codes.add(result.exit_code)
            return
        self.estimates[key] = result
        label = result.network
        if len(self.batches) > 1:
            label += f" at batch {result.batch}"
        if len(self.targets) > 1:
            label += f" on {result.target}"
        self.codes.add(_verdict(result, label, self.limit_us, self.tolerance))

    def fail(self, target: int, error: HybridlatError) -> None:
        """The error of a whole target."""
        for i in range(len(self.networks)):
            for j in range(len(self.batches)):
                self.add((i, j, target), error)

    def table(self) -> PredictionTable:
        """All of it, the targets by their full names."""
        named = {key[2]: estimate.target for key, estimate in self.estimates.items()}
        targets = [
            target if target is not None else named.get(k, "this machine")
            for k, target in enumerate(self.targets)
        ]
        return PredictionTable(self.networks, self.batches, targets, self.estimates, self.errors)


@click.command()
@options.networks
@options.anywhere
@options.batches
@options.shape
@options.trust
@click.option("--max-latency", type=LATENCY, metavar="8ms",
              help="End with exit code 1 if the latency is over this.")  # fmt: skip
@options.jobs
@options.as_json
@options.as_page
@options.as_markdown
@options.as_csv
@options.every_cell
@options.gathered(PredictorChoice, "choice")
@options.gathered(Documents, "documents")
@click.pass_context
def predict(
    ctx: click.Context,
    choice: PredictorChoice,
    documents: Documents,
    networks: Sequence[str],
    targets: Sequence[str],
    batches: Sequence[int] | None,
    shapes: options.Shapes,
    max_latency: float | None,
    jobs: int,
    every_cell: bool,
) -> None:
    """Predict the latency of networks, and where the time goes.

    Several batches give a curve of latency and throughput, several targets a table.

    \b
    hybridlat predict a.onnx b.onnx --target l4/tensorrt/fp16 --target t4/tensorrt/fp16 --csv t.csv
    hybridlat predict a.onnx --batch 1,2,4,8

    Exit codes: 0 done, 1 over --max-latency, 2 bad input, 3 no trustworthy estimate.
    """
    quiet, wanted = documents.fill_standard_output, tuple(dict.fromkeys(targets)) or (None,)
    run = _Run(networks, batches or (None,), wanted, max_latency, choice.tolerance)
    for k, target in enumerate(wanted):
        try:
            with choice.opened(target) as (predictor, shown):
                for j, batch in enumerate(run.batches):
                    results = _results(predictor, networks, Sizes(batch, shapes), jobs)
                    for i, result in enumerate(results):
                        shown.close()
                        run.add((i, j, k), result)
                        if isinstance(result, Estimate) and run.shows_cells and not quiet:
                            _show(result, run, every_cell)
        except HybridlatError as error:
            if len(wanted) == 1:
                raise
            run.fail(k, error)
    table = run.table()
    if not quiet and not run.shows_cells:
        _show_table(table)
    estimates = table.estimates()
    if documents.as_json and (estimates or not run.is_single):
        objects = [estimate.to_json() for estimate in estimates]
        print_json(objects[0] if run.is_single else objects)
    if documents.html is not None and estimates:
        from hybridlat.report.html import page  # few ask for a page

        Path(documents.html).write_text(page(estimates, run.tolerance), encoding="utf-8")
    documents.write_tables(
        lambda: prediction_table.markdown(table), lambda: prediction_table.comma_separated(table)
    )
    ctx.exit(worst(run.codes))


def _show(estimate: Estimate, run: _Run, every_cell: bool) -> None:
    if len(run.estimates) > 1:
        click.echo()
    print_estimate(console(), estimate, every_cell=every_cell, tolerance=run.tolerance)


def _results(
    predictor: api.Predictor, networks: Sequence[str], sizes: Sizes, jobs: int
) -> Iterator[Estimate | HybridlatError]:
    """One for each network, in order."""
    batch, shapes = sizes.batch, sizes.shapes
    if jobs != 1:
        yield from predictor.predict_many(
            networks, batch=batch, shapes=shapes, describe=True, jobs=jobs, errors="return"
        )
        return
    for path in networks:
        try:
            yield predictor.predict(path, batch=batch, shapes=shapes, describe=True)
        except HybridlatError as error:
            yield error


def _show_table(table: PredictionTable) -> None:
    if len(table.targets) > 1:
        prediction_table.print_table(console(), table)
        return
    curves = [
        [e for j in range(len(table.batches)) for e in table.of(i, j) if e is not None]
        for i in range(len(table.networks))
    ]
    for number, curve in enumerate(filter(None, curves)):
        if number:
            click.echo()
        prediction_table.print_curve(console(), curve)


def worst(codes: set[int]) -> int:
    """The exit code of several networks: bad input before doubt before over the limit."""
    return next(code for code in (BAD_INPUT, UNTRUSTED, OVER, 0) if code in codes)


def _verdict(estimate: Estimate, label: str, limit_us: float | None, tolerance: float) -> int:
    """The exit code of one estimate; its reason on standard error where it is not 0."""
    if not estimate.trusted:
        aside(f"{label}: {why_untrusted(estimate, tolerance)}")
        return UNTRUSTED
    assert estimate.latency_us is not None
    if limit_us is not None and estimate.latency_us > limit_us:
        over = percent_text(estimate.latency_us / limit_us - 1)
        aside(
            f"{label} takes {latency_text(estimate.latency_us)}, "
            f"{over} over --max-latency {latency_text(limit_us)}"
        )
        return OVER
    return 0
