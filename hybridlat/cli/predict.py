"""``hybridlat predict``: the latency of networks, and where the time goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

import hybridlat
from hybridlat.cli import options
from hybridlat.cli.options import SURE, Documents, Grouped, option
from hybridlat.cli.output import ProgressShown, aside, command_line, console, print_json
from hybridlat.cli.param_types import LATENCY
from hybridlat.errors import HybridlatError
from hybridlat.report import prediction_table
from hybridlat.report.prediction_table import Place, PredictionTable
from hybridlat.report.terminal import print_estimate
from hybridlat.report.units import interval_text, latency_text, why_untrusted
from hybridlat.schema.estimate import Estimate

OVER, BAD_INPUT, UNTRUSTED = 1, 2, 3
UNSURE = "not to be trusted"
MOST_SAID = 3


@contextmanager
def opened(
    target: str | None = None, **chosen: Any
) -> Iterator[tuple[hybridlat.Predictor, ProgressShown]]:
    """The predictor that the options of a command describe, and what shows its progress."""
    with (
        ProgressShown().at("reading what is known") as shown,
        hybridlat.Predictor(target, progress=shown, **chosen) as predictor,
    ):
        yield predictor, shown


@dataclass
class _Run:
    """The estimates of networks × batches × targets, the exit codes, and whose they are.

    ``shown``: standard output says of each estimate whether it is to be trusted.
    """

    table: PredictionTable
    limit_us: float | None
    shown: bool
    codes: set[int] = field(default_factory=lambda: {0})
    doubts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, place: Place, result: Estimate | HybridlatError) -> None:
        """One more estimate or error; an error of one of several is printed once."""
        table = self.table
        if isinstance(result, HybridlatError):
            if table.size == 1:  # it is the command's
                raise result
            if str(result) not in table.reasons.values():
                aside(str(result))
            table.reasons[place] = str(result)
            self.codes.add(result.exit_code)
            return
        table.answers[place] = result
        table.targets[place[2]] = result.target
        verdict = verdict_of(result, self.limit_us)
        self.codes.add(verdict.code)
        if verdict.code and not (self.shown and verdict.kind == UNSURE):
            label = result.network if table.size > 1 else ""
            label += f" at batch {result.batch}" if len(table.batches) > 1 else ""
            label += f" on {result.target}" if len(table.targets) > 1 else ""
            said = ": ".join(filter(None, [label, verdict.kind, verdict.why]))
            self.doubts.setdefault(verdict.kind, []).append(said)

    def say_doubts(self) -> None:
        """What is wrong with the estimates on standard error, those of a kind counted."""
        for kind, said in self.doubts.items():
            for sentence in said[:MOST_SAID]:
                aside(sentence)
            if len(said) > MOST_SAID:
                aside(f"{kind}: {len(said)} of {self.table.size}")


@click.command(cls=Grouped)
@options.networks
@options.anywhere
@options.batches
@options.shape
@options.trust
@option("--max-latency", group=SURE, type=LATENCY, metavar="8ms",
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
    /,
    networks: Sequence[str],
    targets: Sequence[str],
    batches: Sequence[int] | None,
    shapes: options.Shapes,
    max_latency: float | None,
    jobs: int,
    as_json: bool,
    html: str | None,
    markdown: str | None,
    csv: str | None,
    every_cell: bool,
    tolerance: float | None,
    **chosen: Any,
) -> None:
    """Predict the latency of networks, and where the time goes.

    Several batches give a curve of latency and throughput, several targets a table.

    \b
    hybridlat predict a.onnx b.onnx --target l4/tensorrt/fp16 --target t4/tensorrt/fp16 --csv t.csv
    hybridlat predict a.onnx --batch 1,2,4,8

    Exit codes: 0 done, 1 over --max-latency (the whole interval), 2 bad input, 3 not sure enough:
    --max-latency lies within the interval, --tolerance is not kept, a cell has no latency, or
    measurements are of no use.
    """
    documents = Documents(as_json, markdown, csv)
    wanted = tuple(dict.fromkeys(targets)) or (None,)
    names = [target or "this machine" for target in wanted]
    table = PredictionTable(networks, batches or (None,), names)
    shows_cells = len(table.batches) * len(wanted) == 1
    quiet = documents.fill_standard_output
    run = _Run(table, max_latency, shown=shows_cells and not quiet)
    for k, target in enumerate(wanted):
        try:
            with opened(target, tolerance=tolerance, **chosen) as (predictor, shown):
                for j, batch in enumerate(table.batches):
                    results = predictor.predict_many(
                        networks, batch=batch, shapes=shapes, describe=True, jobs=jobs,
                        errors="return",
                    )  # fmt: skip
                    for i in range(len(networks)):
                        shown.at(f"predicting {networks[i]} on {names[k]}{table.next_text()}")
                        result = next(results)
                        if shows_cells or not isinstance(result, Estimate):
                            shown.close()
                        run.add((i, j, k), result)
                        if isinstance(result, Estimate) and shows_cells and not quiet:
                            if len(table.answers) > 1:
                                click.echo()
                            print_estimate(console(), result, every_cell=every_cell)
        except HybridlatError as error:
            if len(wanted) == 1:
                raise
            for i, j in itertools.product(range(len(networks)), range(len(table.batches))):
                run.add((i, j, k), error)
    if table.reasons:
        aside(f"{len(table.reasons)} of {table.size} predictions failed, the others are complete")
    if not quiet and not shows_cells:
        prediction_table.print_table(console(), table)
    estimates = table.estimates()
    if as_json and (estimates or table.size > 1):
        objects = [estimate.to_json() for estimate in estimates]
        print_json(objects[0] if table.size == 1 else objects)
    if html is not None and estimates:
        from hybridlat.report.html import page  # few ask for a page

        text = page(estimates, command=command_line())
        Path(html).write_text(text, encoding="utf-8")
    documents.write_tables(
        lambda: prediction_table.markdown(table), lambda: prediction_table.comma_separated(table)
    )
    run.say_doubts()
    ctx.exit(worst(run.codes))


def worst(codes: set[int]) -> int:
    """The exit code of several networks: bad input before doubt before over the limit."""
    return next(code for code in (BAD_INPUT, UNTRUSTED, OVER, 0) if code in codes)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The exit code of one estimate; where it is not 0, what is wrong and why."""

    code: int = 0
    kind: str = ""
    why: str = ""


def verdict_of(estimate: Estimate, limit_us: float | None) -> Verdict:
    """Whether an estimate is sure enough for what was asked.

    With a budget of ``limit_us`` the interval decides: all of it above is over for sure, and a
    budget within it leaves the answer open.
    """
    low_us, high_us = estimate.interval_us or (None, None)
    limit = latency_text(limit_us)
    against = f"{interval_text(estimate.interval_us)} against {limit}"
    if limit_us is not None and low_us is not None and low_us > limit_us:
        return Verdict(OVER, "over", against)
    if not estimate.trusted:
        return Verdict(UNTRUSTED, UNSURE, why_untrusted(estimate))
    if limit_us is not None and high_us is not None and high_us > limit_us:
        return Verdict(UNTRUSTED, "may be over", against)
    return Verdict()
