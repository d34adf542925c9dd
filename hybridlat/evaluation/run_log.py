"""What an evaluation leaves in MLflow: a run for each target, regime and method, pictures, a note.

Runs are flat and name their figures alike, so that MLflow's table and charts compare targets,
regimes, methods and dates without further settings: tags say what a run is of. Our own run of a
regime carries the target's pictures and tables; the experiment's note is the table of the newest
figures. matplotlib is loaded when a picture is drawn.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import sys
import textwrap
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hybridlat.evaluation import leaderboard
from hybridlat.evaluation.cross_fitting import FOLDS
from hybridlat.evaluation.methods import PERFECT
from hybridlat.evaluation.metrics import OWN, ResultRow, TargetReport
from hybridlat.evaluation.tracking import KIND, RunSummary, TrackedRun, Tracker, git_commit
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVALUATION = "evaluation"
WHAT = ("regime", "method", "target")
"""Tags that say what a run of an evaluation is of."""
NOT_RIVALS = frozenset(
    {OWN, PERFECT, "lookup_only", "model_only", "share_only", "random", "random_choice"}
)
"""Methods that are a part of hybridlat, or know the truth: no baseline to be compared with."""
_MOST_LINES = 2000
_MOST_NOTE = 4200  # characters; the databases of older MLflows keep 5,000 of a tag
_NOTE = """\
Newest figures of each target and regime. RMSPE in %, lower is better; the noise floor is how \
far the same networks are off when they are measured again. Every row is a run below: filter with \
`tags.regime = 'unseen' and tags.newest = 'yes'`, group by the tag `target`, or open our own run \
for pictures and tables.

| target | regime | hybridlat | best baseline | noise floor | in the 90 % interval | networks |
|---|---|---:|---:|---:|---:|---:|
"""
_LINE = 60  # characters of a title that fit beside each other


@dataclass(frozen=True)
class RunLog:
    """Logs the reports of one call. ``regimes`` (none: all) are those whose rows are logged."""

    tracker: Tracker
    store: str
    where: Mapping[str, str] = field(default_factory=dict)
    regimes: Sequence[str] = ()
    call: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def keep_target(self, report: TargetReport, config: FitConfig) -> list[ResultRow]:
        """Keep a target's report; its rows, in the order of regimes, with the runs they are in."""
        rows = [r for r in report.rows() if not self.regimes or r.regime in self.regimes]
        index_of = {j.regime: i for i, j in reversed(list(enumerate(report.results)))}
        logged: list[ResultRow] = []
        for row in sorted(rows, key=lambda row: index_of[row.regime]):
            with self._run(row.regime, row.method, row.target) as run:
                size = {"networks": report.networks, "cells": report.cells}
                run.dataset(row.target, report.data_hash, self.store, "evaluation", size)
                run.parameters(self._parameters(report, config, row))
                run.metrics(_metrics(row, report))
                if row.method == OWN:
                    _keep_behind(run, row, report, rows)
                logged.append(dataclasses.replace(row, mlflow_run=run.id))
        return logged

    def keep_reason(self, target: Target, reason: str) -> None:
        """Keep of a target that could not be judged why that is so."""
        with self._run("", "", str(target)) as run:
            run.parameters({"target": target})
            run.tags({"reason": reason})

    def describe(self) -> None:
        """Make the newest figures of all targets what the experiment's page shows first."""
        self.tracker.describe(note(self.tracker.newest(EVALUATION, WHAT)))

    def _run(self, *what: str) -> AbstractContextManager[TrackedRun]:
        tags = {name: value for name, value in zip(WHAT, what, strict=True) if value}
        name = " · ".join(tags.values())
        return self.tracker.run(name, {KIND: EVALUATION, "call": self.call, **tags})

    def _parameters(
        self, report: TargetReport, config: FitConfig, row: ResultRow
    ) -> dict[str, object]:
        return {
            "target": row.target,
            "regime": row.regime,
            "method": row.method,
            "git_commit": git_commit() or "unknown",
            "data_hash": report.data_hash,
            "seed": config.seed,
            "confidence": config.confidence,
            "protocol": f"{FOLDS} folds by network" if report.networks else "random rows",
            "device": config.device.title or config.device.name,
            "python": sys.version.split()[0],
            **{f"where_{name}": value for name, value in self.where.items()},
        }


def _metrics(row: ResultRow, report: TargetReport) -> dict[str, float | None]:
    """The figures, shares and errors to four digits: MLflow shows all that it is given."""
    own = row.method == OWN
    figures: dict[str, float | None] = {
        **dataclasses.asdict(row.score),
        "answered_share": row.answered_share,
        "noise_floor": row.noise_floor,
        "noise_within_5": report.noise_within_5,
        "networks": float(row.networks),
        "cells": float(row.cells),
        "device_time_share": report.device_time_share.get(row.regime) if own else None,
    }
    return {
        name: value if value is None or float(value).is_integer() else float(f"{value:.4g}")
        for name, value in figures.items()
    }


def _keep_behind(
    run: TrackedRun, row: ResultRow, report: TargetReport, rows: Sequence[ResultRow]
) -> None:
    """Pictures, single predictions, calibration and the target's table, for those who look."""
    for name, figure in figures(report).items():
        run.figure(name, figure)
    run.table("per_network.json", _per_network(report, row.regime))
    if row.calibration:
        run.table("calibration.json", _calibration(row))
    run.text("leaderboard.md", leaderboard.markdown(rows))


def _per_network(report: TargetReport, regime: str) -> dict[str, list[object]]:
    """One row per network, or per cell of a sample."""
    columns: dict[str, list[object]] = {
        name: [] for name in ("name", "true_us", "predicted_us", "error_percent", "low_us",
                              "high_us", "measured_share", "cells_measured", "device_s")
    }  # fmt: skip
    result = report.find(regime)
    for a in result.predictions[:_MOST_LINES] if result is not None else ():
        low, high = a.interval_us or (None, None)
        values = (
            a.name, a.true_us, a.predicted_us, 100 * a.error_share,
            low, high, a.measured_share, a.cells_measured, a.device_s,
        )  # fmt: skip
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    return columns


def _calibration(row: ResultRow) -> dict[str, list[object]]:
    """One row per confidence."""
    levels = [level.to_json() for level in row.calibration]
    return {name: [level[name] for level in levels] for name in levels[0]}


def note(newest: Iterable[RunSummary]) -> str:
    """The table of our own runs, each beside the best baseline that answered as much."""
    runs = [run for run in newest if "rmspe" in run.metrics]
    own = sorted(
        (run for run in runs if run.tags.get("method") == OWN),
        key=lambda run: (run.tags.get("target", ""), _order(run.tags.get("regime", ""))),
    )
    lines = [_line(run, runs) for run in own]
    text = f"Seen on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}. " + _NOTE
    for i, line in enumerate(lines):
        left = f"\n{len(lines) - i} more rows: see the runs.\n"
        if len(text) + len(line) + len(left) > _MOST_NOTE:
            return text + left
        text += line
    return text


def _line(own: RunSummary, runs: Sequence[RunSummary]) -> str:
    target, regime = own.tags.get("target", ""), own.tags.get("regime", "")
    rivals = [
        run
        for run in runs
        if (run.tags.get("target"), run.tags.get("regime")) == (target, regime)
        and run.tags.get("method") not in NOT_RIVALS
        and run.metrics.get("answered", 0) >= own.metrics.get("answered", 0)
    ]
    best = min(rivals, key=lambda run: run.metrics["rmspe"], default=None)
    beside = "–" if best is None else f"{best.metrics['rmspe']:.1f} ({best.tags['method']})"
    floor, inside = own.metrics.get("noise_floor"), own.metrics.get("coverage")
    return (
        f"| {target} | {regime} | **{own.metrics['rmspe']:.1f}** | {beside} "
        f"| {'–' if floor is None else f'{floor:.1f}'} "
        f"| {'–' if inside is None else f'{100 * inside:.0f} %'} "
        f"| {own.metrics.get('networks', 0):.0f} |\n"
    )


def _order(regime: str) -> tuple[int, str]:
    """What people ask first: known networks, then unseen ones, then the rest."""
    first = ("measured", "unseen", "gated@5%", "unseen_family", "zero_shot")
    return (first.index(regime) if regime in first else len(first), regime)


def figures(report: TargetReport) -> dict[str, Figure]:
    """File name → figure, for what the report has the data of."""
    by_file: dict[str, Figure] = {"parity.png": parity(report)}
    if any(report.calibration.values()):
        by_file["calibration.png"] = calibration(report)
    return by_file


def _canvas(report: TargetReport, title: str, x: str, y: str) -> tuple[Figure, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.8), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    lines = textwrap.wrap(str(report.target), _LINE) + textwrap.wrap(title, _LINE)
    axes.set_title("\n".join(lines), loc="left", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, color="#e5e5e5", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def parity(report: TargetReport) -> Figure:
    """Predicted against measured latency, on logarithmic axes, with ±10 %."""
    figure, axes = _canvas(report, "predicted against measured", "measured, µs", "predicted, µs")
    gated = [j for j in report.results if j.method == "hybridlat" and "gated@" in j.regime]
    wanted = [report.find("unseen"), report.find("measured"), *gated[:1]]
    drawn = [j for j in wanted if j is not None]
    if not drawn:
        drawn = [j for j in report.results if j.method == "hybridlat"][-2:-1]
    colours = ("#c8553d", "#2b2d42", "#0b6e4f")
    values: list[float] = []
    for result, colour in zip(drawn, colours, strict=False):
        points = [
            (a.true_us, a.predicted_us) for a in result.predictions if math.isfinite(a.predicted_us)
        ]
        values += [v for point in points for v in point]
        error = result.score.rmspe
        label = result.regime if error is None else f"{result.regime}, RMSPE {error:.1f} %"
        small = len(points) > 300
        axes.scatter(
            *zip(*points, strict=True), s=4 if small else 18, alpha=0.35 if small else 0.75,
            color=colour, label=label, linewidths=0,
        )  # fmt: skip
    if values:
        ends = [min(values) / 1.2, max(values) * 1.2]
        axes.plot(ends, ends, color="#555555", linewidth=1)
        axes.fill_between(
            ends, [e * 0.9 for e in ends], [e * 1.1 for e in ends], color="#555555", alpha=0.1,
            label="±10 %",
        )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.legend(frameon=False)
    return figure


def calibration(report: TargetReport) -> Figure:
    """Share of truths inside the interval against what the interval says."""
    figure, axes = _canvas(
        report,
        "how often the interval holds the truth",
        "stated confidence, %",
        "found inside, %",
    )
    axes.plot([50, 100], [50, 100], color="#555555", linewidth=1, label="as stated")
    drawn = [r for r in report.calibration if not r.startswith("gated_cells@")]
    for regime, colour in zip(
        drawn, ("#2b2d42", "#c8553d", "#0b6e4f", "#8d99ae", "#e0a458"), strict=False
    ):
        levels = report.calibration[regime]
        axes.plot(
            [100 * level.confidence for level in levels],
            [100 * level.coverage for level in levels],
            marker="o", markersize=4, label=regime, color=colour,
        )  # fmt: skip
    axes.set_ylim(40, 100)
    axes.legend(frameon=False, loc="lower right")
    return figure
