"""What MLflow is given of an evaluation: a run for each target, regime and method.

Runs are flat and name their figures alike, so that MLflow's table and charts compare targets,
regimes, methods and dates without further settings: tags say what a run is of. Our own run of a
regime carries the target's pictures and tables; the experiment's description is the table of the
newest figures.
"""

from __future__ import annotations

import dataclasses
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from hybridlat.evaluation import leaderboard, tracking
from hybridlat.evaluation.cross_fitting import FOLDS
from hybridlat.evaluation.figures import figures
from hybridlat.evaluation.metrics import OWN, ResultRow, TargetReport
from hybridlat.evaluation.overview import overview
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.target import Target

KIND = "evaluation"
_WHAT = ("target", "regime", "method")
_MOST_LINES = 2000


@dataclass(frozen=True)
class RunLog:
    """Keeps the reports of one call. ``regimes`` (none: all) are those whose rows are kept."""

    tracker: tracking.Tracker
    store: str
    where: Mapping[str, str] = field(default_factory=dict)
    regimes: Sequence[str] = ()
    call: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def keep_target(self, report: TargetReport, config: FitConfig) -> list[ResultRow]:
        """Keep a target's report; its rows, in the order of regimes, with the runs they are in."""
        rows = [r for r in report.rows() if not self.regimes or r.regime in self.regimes]
        index_of = {j.regime: i for i, j in reversed(list(enumerate(report.results)))}
        kept: list[ResultRow] = []
        for row in sorted(rows, key=lambda row: index_of[row.regime]):
            with self._run(row.target, row.regime, row.method) as run:
                size = {"networks": report.networks, "cells": report.cells}
                run.dataset(row.target, report.data_hash, self.store, "evaluation", size)
                run.parameters(self._parameters(report, config, row))
                run.metrics(_metrics(row, report))
                if row.method == OWN:
                    _keep_behind(run, row, report, rows)
                kept.append(dataclasses.replace(row, mlflow_run=run.id))
        return kept

    def keep_reason(self, target: Target, reason: str) -> None:
        """Keep of a target that could not be judged why that is so."""
        with self._run(str(target), "", "") as run:
            run.parameters({"target": target})
            run.tags({"reason": reason})

    def describe(self) -> None:
        """Make the newest figures of all targets what the experiment's page shows first."""
        self.tracker.mark_newest(KIND, _WHAT)
        self.tracker.describe(overview(self.tracker.latest(KIND, _WHAT)))

    def _run(self, *what: str) -> AbstractContextManager[tracking.TrackedRun]:
        tags = {name: value for name, value in zip(_WHAT, what, strict=True) if value}
        name = " · ".join(tags.values())
        return self.tracker.run(name, {tracking.KIND: KIND, "call": self.call, **tags})

    def _parameters(
        self, report: TargetReport, config: FitConfig, row: ResultRow
    ) -> dict[str, object]:
        return {
            "target": row.target,
            "regime": row.regime,
            "method": row.method,
            "git_commit": tracking.git_commit() or "unknown",
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
    run: tracking.TrackedRun, row: ResultRow, report: TargetReport, rows: Sequence[ResultRow]
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
    """One row per confidence asked for."""
    levels = [level.to_json() for level in row.calibration]
    return {name: [level[name] for level in levels] for name in levels[0]}
