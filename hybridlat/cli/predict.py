"""``hybridlat predict``: the latency of networks, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridlat.cli import options
from hybridlat.cli.output import aside, console, print_json
from hybridlat.cli.param_types import LATENCY
from hybridlat.cli.progress import ProgressShown
from hybridlat.errors import HybridlatError

if TYPE_CHECKING:
    from hybridlat.api import MeasureMode, Predictor
    from hybridlat.report.prediction_table import PredictionTable
    from hybridlat.schema.estimate import Estimate

OVER, BAD_INPUT, UNTRUSTED = 1, 2, 3


@dataclass
class _Run:
    """What was asked, the answers by the positions of network, batch and target, and exit codes."""

    networks: Sequence[str]
    batches: Sequence[int | None]
    targets: Sequence[str | None]
    limit_us: float | None
    tolerance: float
    answers: dict[tuple[int, int, int], Estimate] = field(default_factory=dict)
    reasons: dict[tuple[int, int, int], str] = field(default_factory=dict)
    codes: set[int] = field(default_factory=lambda: {0})
    told: set[str] = field(default_factory=set)

    @property
    def is_single(self) -> bool:
        """One network, one batch, one target: its error is the command's."""
        return len(self.networks) * len(self.batches) * len(self.targets) == 1

    @property
    def shows_cells(self) -> bool:
        """Whether networks are shown one after another, as they are answered."""
        return len(self.batches) * len(self.targets) == 1

    def take(self, key: tuple[int, int, int], answer: Estimate | HybridlatError) -> None:
        """Keep an answer; what is wrong with one of several costs only itself, and is told once."""
        if isinstance(answer, HybridlatError):
            if self.is_single:
                raise answer
            self.reasons[key] = str(answer)
            self.codes.add(answer.exit_code)
            if str(answer) not in self.told:
                aside(str(answer))
                self.told.add(str(answer))
            return
        self.answers[key] = answer
        label = answer.network
        if len(self.batches) > 1:
            label += f" at batch {answer.batch}"
        if len(self.targets) > 1:
            label += f" on {answer.target}"
        self.codes.add(_verdict(answer, label, self.limit_us, self.tolerance))

    def lose(self, target: int, error: HybridlatError) -> None:
        """No answer for a whole target."""
        for i in range(len(self.networks)):
            for j in range(len(self.batches)):
                self.take((i, j, target), error)

    def table(self) -> PredictionTable:
        """All of it, the targets by their full names."""
        from hybridlat.report.prediction_table import PredictionTable

        named = {key[2]: estimate.target for key, estimate in self.answers.items()}
        targets = [
            target if target is not None else named.get(k, "this machine")
            for k, target in enumerate(self.targets)
        ]
        return PredictionTable(self.networks, self.batches, targets, self.answers, self.reasons)


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
@click.pass_context
def predict(
    ctx: click.Context,
    networks: Sequence[str],
    targets: Sequence[str],
    threads: int | None,
    store: str | None,
    batches: Sequence[int] | None,
    shapes: Mapping[str, tuple[int, ...]],
    tolerance: float,
    confidence: float,
    measure: MeasureMode,
    max_latency: float | None,
    jobs: int,
    as_json: bool,
    html: str | None,
    markdown: str | None,
    csv: str | None,
    every_cell: bool,
) -> None:
    """Predict the latency of networks, and where the time goes.

    Several batches give a curve of latency and throughput, several targets a table.

    \b
    hybridlat predict a.onnx b.onnx --target l4/tensorrt/fp16 --target t4/tensorrt/fp16 --csv t.csv
    hybridlat predict a.onnx --batch 1,2,4,8

    Exit codes: 0 done, 1 over --max-latency, 2 bad input, 3 no trustworthy estimate.
    """
    from hybridlat.api import Predictor

    options.one_on_standard_output(as_json, markdown, csv)
    quiet = as_json or "-" in (markdown, csv)
    asked = tuple(dict.fromkeys(targets)) or (None,)
    run = _Run(networks, batches or (None,), asked, max_latency, tolerance)
    for k, target in enumerate(asked):
        try:
            with (
                ProgressShown() as shown,
                Predictor(target, store=store, threads=threads, measure=measure,
                          tolerance=tolerance, confidence=confidence, progress=shown) as predictor,
            ):  # fmt: skip
                for j, batch in enumerate(run.batches):
                    for i, answer in enumerate(_answers(predictor, run, batch, shapes, jobs)):
                        shown.close()
                        run.take((i, j, k), answer)
                        if (i, j, k) in run.answers and run.shows_cells and not quiet:
                            _show(run, run.answers[i, j, k], every_cell)
        except HybridlatError as error:
            if len(asked) == 1:
                raise
            run.lose(k, error)
    if not quiet and not run.shows_cells:
        _show_table(run)
    _write(run, as_json, html, markdown, csv)
    ctx.exit(worst(run.codes))


def _answers(
    predictor: Predictor,
    run: _Run,
    batch: int | None,
    shapes: Mapping[str, tuple[int, ...]],
    jobs: int,
) -> Iterator[Estimate | HybridlatError]:
    """One for each network, in order."""
    if jobs != 1:
        yield from predictor.predict_many(
            run.networks, batch=batch, shapes=shapes, describe=True, jobs=jobs, errors="return"
        )
        return
    for path in run.networks:
        try:
            yield predictor.predict(path, batch=batch, shapes=shapes, describe=True)
        except HybridlatError as error:
            yield error


def _show(run: _Run, estimate: Estimate, every_cell: bool) -> None:
    from hybridlat.report.terminal import print_estimate

    if len(run.answers) > 1:
        click.echo()
    print_estimate(console(), estimate, every_cell=every_cell, tolerance=run.tolerance)


def _show_table(run: _Run) -> None:
    from hybridlat.report import prediction_table

    table = run.table()
    if len(table.targets) > 1:
        prediction_table.print_table(console(), table)
        return
    first = True
    for i in range(len(table.networks)):
        curve = [e for j in range(len(table.batches)) for e in table.of(i, j) if e is not None]
        if curve:
            if not first:
                click.echo()
            first = False
            prediction_table.print_curve(console(), curve)


def _write(
    run: _Run, as_json: bool, html: str | None, markdown: str | None, csv: str | None
) -> None:
    """The documents that were asked for."""
    table = run.table()
    estimates = table.estimates()
    if as_json and (estimates or not run.is_single):
        objects = [estimate.to_json() for estimate in estimates]
        print_json(objects[0] if run.is_single else objects)
    if html is not None and estimates:
        from hybridlat.report.html import page

        Path(html).write_text(page(estimates, run.tolerance), encoding="utf-8")
    if markdown is not None or csv is not None:
        from hybridlat.report import prediction_table

        options.write_texts(
            (markdown, lambda: prediction_table.markdown(table)),
            (csv, lambda: prediction_table.comma_separated(table)),
        )


def worst(codes: set[int]) -> int:
    """The exit code of several networks: bad input before doubt before over the limit."""
    return next(code for code in (BAD_INPUT, UNTRUSTED, OVER, 0) if code in codes)


def _verdict(estimate: Estimate, label: str, limit_us: float | None, tolerance: float) -> int:
    """The exit code of one estimate, told of ``label`` on standard error where it is not 0."""
    from hybridlat.report.units import latency_text, percent_text, why_untrusted

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
