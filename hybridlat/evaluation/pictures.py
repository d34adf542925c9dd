"""Pictures of an evaluation: predicted beside measured, errors by family, calibration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hybridlat.evaluation.metrics import OWN, TargetReport
from hybridlat.model.family.observations import architecture_of, family_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def pictures(report: TargetReport) -> dict[str, Figure]:
    """By file name; errors are those of the regime ``unseen``, else of our first one."""
    from matplotlib.figure import Figure

    made: dict[str, Figure] = {}

    def axes(name: str, title: str, x: str, y: str, height: float = 5.0) -> Axes:
        made[f"{name}.png"] = figure = Figure(figsize=(7.0, height), layout="constrained")
        plot = figure.subplots()
        plot.set(title=f"{report.target} · {title}", xlabel=x, ylabel=y)
        return plot

    own = {each.regime: each for each in report.results if each.method == OWN}
    result = own.get("unseen") or next(iter(own.values()), None)
    known = [p for p in result.predictions if math.isfinite(p.predicted_us)] if result else []
    if result and known:
        plot = axes("predicted", result.regime, "measured [ms]", "predicted [ms]")
        for p in known:
            low_us, high_us = p.interval_us or (p.predicted_us, p.predicted_us)
            plot.plot([p.true_us / 1e3] * 2, [low_us / 1e3, high_us / 1e3], "C0-", lw=0.7)
            plot.plot(p.true_us / 1e3, p.predicted_us / 1e3, "C0o", ms=3)
        low, high = (choose(p.true_us for p in known) / 1e3 for choose in (min, max))
        plot.plot([low, high], [low, high], color="gray", lw=0.7)
        plot.set(xscale="log", yscale="log")
    if result and known and not result.per_cell:
        errors: dict[str, list[float]] = {}
        for p in known:
            errors.setdefault(family_of(architecture_of(p.name)), []).append(100 * p.error_share)
        names = sorted(errors, key=lambda name: max(map(abs, errors[name])))
        plot = axes("families", result.regime, "error [%]", "", 1.5 + 0.2 * len(names))
        for name in names:
            plot.plot(errors[name], [name] * len(errors[name]), "C0o", ms=3)
        plot.axvline(0, color="gray", lw=0.7)
    if report.calibration:
        plot = axes("calibration", "calibration", "stated confidence", "share inside")
        for regime, levels in report.calibration.items():
            points = [(level.confidence, level.coverage) for level in levels]
            plot.plot(*zip(*points, strict=True), "o-", label=regime)
        plot.axline((0.5, 0.5), (0.9, 0.9), color="gray", lw=0.7)
        plot.legend()
    return made
