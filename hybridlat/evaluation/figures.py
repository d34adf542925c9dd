"""The three figures of an evaluation; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from hybridlat.evaluation.metrics import TargetReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINE = 60  # characters of a title that fit beside each other
_COLOURS = {"gate": "#0b6e4f", "share_only": "#c8553d", "random": "#8d99ae", "perfect": "#2b2d42"}
_NAMES = {"gate": "the gate", "share_only": "largest share first", "random": "at random",
          "perfect": "perfect choice"}  # fmt: skip


def figures(report: TargetReport) -> dict[str, Figure]:
    """File name → figure, for what the report has the data of."""
    by_file: dict[str, Figure] = {"parity.png": parity(report)}
    if report.curves:
        by_file["risk_coverage.png"] = risk_coverage(report)
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


def risk_coverage(report: TargetReport) -> Figure:
    """Error of the network against the share of its cells that were measured."""
    figure, axes = _canvas(
        report,
        "error left when a share of the cells is measured",
        "share of a network's cells measured, %",
        "RMSPE over held-out networks, %",
    )
    for method, points in report.curves.items():
        axes.plot(
            [100 * share for share, _ in points],
            [error for _, error in points],
            marker="o", markersize=3.5, color=_COLOURS.get(method),
            label=_NAMES.get(method, method),
        )  # fmt: skip
    if report.noise_floor is not None:
        axes.axhline(
            report.noise_floor, color="#555555", linestyle=":", label="the same network again"
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


def calibration(report: TargetReport) -> Figure:
    """Share of truths inside the interval against what the interval says."""
    figure, axes = _canvas(
        report,
        "how often the interval holds the truth",
        "confidence asked for, %",
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
