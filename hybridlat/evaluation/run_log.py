"""What MLflow is given of an evaluation: one run per target, one inside it per method."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence

from hybridlat.evaluation import leaderboard, tracking
from hybridlat.evaluation.cross_fitting import FitConfig
from hybridlat.evaluation.figures import figures
from hybridlat.evaluation.results import OWN, ResultRow, TargetReport
from hybridlat.evaluation.splits import FOLDS
from hybridlat.schema.target import Target

_MOST_LINES = 2000


def keep_target(
    report: TargetReport,
    config: FitConfig,
    whole: tracking.TrackedRun,
    where: Mapping[str, str],
    regimes: Sequence[str],
) -> list[ResultRow]:
    """Keep a target's report inside ``whole``; its rows in the order of regimes.

    ``regimes`` (none: all) are those whose rows are kept and given back.
    """
    parameters = {
        "target": report.target,
        "git_commit": tracking.git_commit() or "unknown",
        "data_hash": report.data_hash,
        "seed": config.seed,
        "confidence": config.confidence,
        "networks": report.networks,
        "cells": report.cells,
        "protocol": f"{FOLDS} folds by network" if report.networks else "random rows, three seeds",
        "device": config.device.title or config.device.name,
        "python": sys.version.split()[0],
        **{f"where_{name}": value for name, value in where.items()},
    }
    kept: list[ResultRow] = []
    with whole.nested(str(report.target)) as run:
        run.parameters(parameters)
        run.metrics({"noise_floor": report.noise_floor, "noise_within_5": report.noise_within_5})
        run.metrics({f"{r}/device_time_share": v for r, v in report.device_time_share.items()})
        for name, figure in figures(report).items():
            run.figure(name, figure)
        run.table("per_network.json", _per_network(report))
        run.table("calibration.json", _calibration(report))
        for method in dict.fromkeys(j.method for j in report.results):
            with run.nested(f"{report.target} {method}") as inner:
                own = [r for r in report.rows(inner.id) if r.method == method]
                own = [r for r in own if not regimes or r.regime in regimes]
                inner.parameters({**parameters, "method": method})
                values = {name: value for row in own for name, value in _metrics(row).items()}
                inner.metrics(values)
                if method == OWN:
                    run.metrics(values)
                kept += own
        run.text("leaderboard.md", leaderboard.markdown(kept))
    place = {j.regime: i for i, j in reversed(list(enumerate(report.results)))}
    return sorted(kept, key=lambda row: place[row.regime])


def keep_reason(target: Target, reason: str, whole: tracking.TrackedRun) -> None:
    """Keep of a target that could not be judged why that is so."""
    with whole.nested(str(target)) as run:
        run.parameters({"target": target})
        run.tags({"reason": reason})


def _metrics(row: ResultRow) -> dict[str, float | None]:
    values = {**dataclasses.asdict(row.score), "answered_share": row.answered_share}
    return {f"{row.regime}/{name}": value for name, value in values.items()}


def _per_network(report: TargetReport) -> dict[str, list[object]]:
    """One row per network (or a sample of cells) and own regime."""
    columns: dict[str, list[object]] = {
        name: [] for name in ("regime", "name", "true_us", "predicted_us", "error_percent",
                              "low_us", "high_us", "measured_share", "cells_measured", "device_s")
    }  # fmt: skip
    for result in report.results:
        if result.method != OWN:
            continue
        for a in result.predictions[:_MOST_LINES]:
            low, high = a.interval_us or (None, None)
            values = (
                result.regime, a.name, a.true_us, a.predicted_us, 100 * a.error_share,
                low, high, a.measured_share, a.cells_measured, a.device_s,
            )  # fmt: skip
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return columns


def _calibration(report: TargetReport) -> dict[str, list[object]]:
    """One row per regime and confidence asked for."""
    levels = [(r, level.to_json()) for r, given in report.calibration.items() for level in given]
    names = dict.fromkeys(name for _, level in levels for name in level)
    columns: dict[str, list[object]] = {"regime": [regime for regime, _ in levels]}
    columns.update({name: [level[name] for _, level in levels] for name in names})
    return columns
