"""An evaluation as runs in MLflow: one of the target, and below it one of each method."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata

from hybridlat.evaluation import leaderboard, tracking
from hybridlat.evaluation.metrics import OWN, PARTS, MethodResult, ResultRow, TargetReport
from hybridlat.evaluation.pictures import pictures
from hybridlat.schema.target import Target

_MOST_LINES = 2000


def log(
    tracker: tracking.Tracker, report: TargetReport, parameters: Mapping[str, object]
) -> tuple[list[ResultRow], str]:
    """The rows of a report, each with its method's run, and the run of all that is above those.

    Where MLflow fails, that is a warning, and the rows from there on have no run.
    """
    rows, page = report.rows(), ""
    found_by = about(report.target, tracking.EVALUATION)
    text = {tracking.DESCRIPTION: leaderboard.summary(rows)} if tracker.uri else {}
    with tracker.optional(), tracker.run(f"{report.target} · evaluate", found_by | text) as above:
        page = above.id
        above.log(parameters, _headline(report, rows))
        counts = {"cells": report.cells, "networks": report.networks}
        above.inputs(str(report.target), report.data_hash, str(parameters["store"]), counts)
        for method in dict.fromkeys(row.method for row in rows):
            tags = {**found_by, tracking.KIND: "method", "method": method}
            with tracker.run(f"{method} · {report.target}", tags) as run:
                results = [each for each in report.results if each.method == method]
                metrics = _headed(merged(map(figures, results)), report)
                run.log({"method": method, **parameters}, metrics)
                if method == OWN:
                    run.log(metrics=_calibration(report))
                    run.artifact("per_network.json", answers(results))
            rows = [replace(r, mlflow_run=run.id) if r.method == method else r for r in rows]
        if page:
            above.artifact("leaderboard.md", leaderboard.markdown(rows))
            # MLflow's tables have no columns of lists.
            flat = [row.to_json() | {"calibration": None} for row in leaderboard.ordered(rows)]
            above.artifact("leaderboard.json", flat)
            for name, picture in pictures(report).items():
                above.artifact(name, picture)
    return rows, page


def about(target: Target, kind: str) -> dict[str, str]:
    """What the runs of a target are filtered by."""
    return {
        tracking.KIND: kind,
        "target": str(target),
        "engine": target.engine,
        "hybridlat": metadata.version("hybridlat"),
        "machine": platform.node(),
    }


def figures(result: MethodResult) -> tracking.Metrics:
    """Metrics of a method in a regime: the main ones by themselves, so that charts begin there.

    A regime ``cells@300`` is the point at step 300 of the learning curve ``cells``.
    """
    regime, step = _place(result.regime)
    others = {**dataclasses.asdict(result.score), "predict_ms": result.predict_ms}
    main = {name: others.pop(name) for name in ("rmspe", "coverage")}
    main["median"] = result.median
    parts = {regime: main, f"{regime} more": {**others, "rmspe_sd": result.rmspe_sd}}
    return {(f"{p}/{n}", step): value for p, part in parts.items() for n, value in part.items()}


def _place(regime: str) -> tuple[str, int]:
    name, _, number = regime.partition("@")
    return (name, int(number)) if number.isdigit() else (regime, 0)


def _headed(metrics: tracking.Metrics, report: TargetReport) -> tracking.Metrics:
    """First those of the main regime once more: MLflow's charts begin with what is named so."""
    main = next((each.regime for each in report.results if each.method == OWN), "")
    main = "unseen" if any(each.regime == "unseen" for each in report.results) else main
    head = f"{_place(main)[0]}/"
    own = {name.removeprefix(head): v for (name, _), v in metrics.items() if name.startswith(head)}
    return {**{(f"{tracking.MAIN}/{name}", 0): value for name, value in own.items()}, **metrics}


def _headline(report: TargetReport, rows: Sequence[ResultRow]) -> tracking.Metrics:
    """Our main figures in each regime, beside those of the best rival and the noise floor."""
    of = {(each.regime, each.method): figures(each) for each in report.results}
    made: dict[tuple[str, int], float | None] = {}
    for (_, method), metrics in of.items():
        if method == OWN:
            made |= {key: v for key, v in metrics.items() if " more/" not in key[0]}
    for row in leaderboard.best(rows, but={OWN, *PARTS}):
        for key, value in of[row.regime, row.method].items():
            if key[0].endswith(("/rmspe", "/median")):
                made[f"{key[0]}_of_rival", key[1]] = value
    for row in rows:
        if row.method == OWN and row.noise_floor is not None:
            made[f"{row.regime}/rmspe_floor", 0] = row.noise_floor
    return {**_headed(made, report), **_calibration(report)}


def _calibration(report: TargetReport) -> tracking.Metrics:
    """How often intervals hold the latency: a curve, whose step is what they state in percent."""
    return {
        (f"{regime}/calibration", round(100 * level.confidence)): level.coverage
        for regime, levels in report.calibration.items()
        for level in levels
    }


def merged(each: Iterable[tracking.Metrics]) -> tracking.Metrics:
    """All of them in one mapping."""
    return {key: value for metrics in each for key, value in metrics.items()}


def answers(results: Iterable[MethodResult]) -> list[dict[str, object]]:
    """What was predicted of each network, beside what was measured, as the rows of a table."""
    lines = []
    for result in results:
        for p in result.predictions[:_MOST_LINES]:
            low_us, high_us = p.interval_us or (None, None)
            lines.append({
                "regime": result.regime, "name": p.name, "true_us": p.true_us,
                "predicted_us": p.predicted_us, "error_percent": 100 * p.error_share,
                "low_us": low_us, "high_us": high_us, "measured_share": p.measured_share,
                "cells_measured": p.cells_measured, "device_s": p.device_s,
            })  # fmt: skip
    return lines
