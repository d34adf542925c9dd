"""Rows of an evaluation: as tables on the terminal and in Markdown, and as runs in MLflow."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hybridlat.evaluation import tracking
from hybridlat.evaluation.metrics import OWN, ResultRow, TargetReport
from hybridlat.report.table import Table, titled

if TYPE_CHECKING:
    from rich.console import Console

_EVALUATION = "evaluation"
_MOST_LINES = 2000
_COLUMNS = (*titled("regime", "method"), *titled(
    "RMSPE %", "MAPE %", "answered", "coverage", "≤10 %", "width", "measured", "≤5 %", "device s",
    "ρ", "predict ms", right=True,
))  # fmt: skip
_NARROW = 6  # columns on a terminal


def _cells(row: ResultRow) -> tuple[str, ...]:
    s = row.score
    return (
        row.regime,
        row.method,
        number_text(s.rmspe, 2),
        number_text(s.mape, 2),
        _answered(row),
        _percent(s.coverage),
        _percent(s.within_10),
        _percent(s.width),
        _percent(s.measured_share),
        _percent(s.within_5),
        number_text(s.device_s, 1),
        number_text(s.spearman, 3),
        number_text(row.predict_ms, 2),
    )


def _answered(row: ResultRow) -> str:
    share = row.answered_share
    if share is not None and share < 1:
        return f"{100 * share:.0f} % of {row.asked:,}"
    return str(row.networks or f"{row.cells:,} cells")


def number_text(value: float | None, digits: int) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def ordered(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """By regime as they came, and within one by RMSPE; who answers less than asked comes last."""
    rank = {regime: i for i, regime in enumerate(dict.fromkeys(r.regime for r in rows))}
    fair = _comparable(rows)

    def key(row: ResultRow) -> tuple[object, ...]:
        error = row.score.rmspe
        return rank[row.regime], error is None, row not in fair, error or 0.0, row.method

    return sorted(rows, key=key)


def _comparable(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Who answers what was asked, or as much as we do: the easy part alone says nothing."""
    most: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row.target, row.regime)
        most[key] = max(most.get(key, 0), row.asked, row.score.answered)
    most |= {(row.target, row.regime): row.score.answered for row in rows if row.method == OWN}

    def enough(row: ResultRow) -> int:
        wanted = most[row.target, row.regime]
        return min(wanted, row.asked or wanted)

    return [row for row in rows if row.score.answered >= enough(row)]


def best(rows: Sequence[ResultRow], among: Collection[str] | None = None) -> list[ResultRow]:
    """The method, ``among`` those named, with the least error in each regime of each target."""
    best_of: dict[tuple[str, str], ResultRow] = {}
    for row in ordered(_comparable(rows)):
        if row.score.rmspe is not None and (among is None or row.method in among):
            best_of.setdefault((row.target, row.regime), row)
    return list(best_of.values())


def by_target(rows: Sequence[ResultRow]) -> Iterable[tuple[str, list[ResultRow], float | None]]:
    """Every judged target, its rows in order, and its noise floor."""
    judged = [r for r in rows if not r.reason]
    for target in dict.fromkeys(r.target for r in judged):
        own = ordered([r for r in judged if r.target == target])
        yield target, own, next((r.noise_floor for r in own if r.noise_floor is not None), None)


def markdown(rows: Sequence[ResultRow]) -> str:
    """One table per target, the best of each regime in bold."""
    text: list[str] = []
    for row in rows:
        if row.reason:
            text += [f"### {row.target}", "", f"Not judged: {row.reason}.", ""]
    for target, own, floor in by_target(rows):
        noise = "" if floor is None else f" (noise floor: RMSPE {floor:.2f} %)"
        marked = best(own)
        lines = []
        for row in own:
            regime, method, error, *others = _cells(row)
            lines.append([regime, method, f"**{error}**" if row in marked else error, *others])
        text += [f"### {target}{noise}", "", Table(_COLUMNS, lines).markdown(), ""]
    return "\n".join(text)


def show(rows: Sequence[ResultRow], console: Console) -> None:
    """One table per target with the figures that 80 characters hold; JSON has the others."""
    for row in rows:
        if row.reason:
            console.print(f"{row.target} · not judged: {row.reason}\n")
    for target, own, floor in by_target(rows):
        title = target if floor is None else f"{target} · noise floor {floor:.2f} % RMSPE"
        lines = [_cells(row)[:_NARROW] for row in own]
        console.print(Table(_COLUMNS[:_NARROW], lines, title).terminal())
        console.print()


def log(
    tracker: tracking.Tracker,
    call: str,
    report: TargetReport,
    about: Mapping[str, object],
) -> list[ResultRow]:
    """The rows of a report, each with the run that it is logged in, beside parameters ``about``."""
    logged: list[ResultRow] = []
    for row in report.rows():
        what = {"regime": row.regime, "method": row.method, "target": row.target}
        tags = {tracking.KIND: _EVALUATION, "call": call, **what}
        with tracker.run(" · ".join(what.values()), tags) as run:
            run.log({**what, **about}, _metrics(row))
            if row.method == OWN and run.id:
                _log_behind(run, row, report)
            logged.append(dataclasses.replace(row, mlflow_run=run.id))
    return logged


def _metrics(row: ResultRow) -> dict[str, float | None]:
    """The figures, shares and errors to four digits: MLflow shows all that it is given."""
    figures: dict[str, float | None] = {
        **dataclasses.asdict(row.score),
        "answered_share": row.answered_share,
        "noise_floor": row.noise_floor,
        "networks": row.networks or None,  # none in a regime of single cells
        "cells": float(row.cells),
    }
    return {
        name: value if value is None or float(value).is_integer() else float(f"{value:.4g}")
        for name, value in figures.items()
    }


def _log_behind(run: tracking.TrackedRun, row: ResultRow, report: TargetReport) -> None:
    result = report.find(row.regime)
    lines = []
    for p in result.predictions[:_MOST_LINES] if result is not None else ():
        low_us, high_us = p.interval_us or (None, None)
        lines.append({
            "name": p.name, "true_us": p.true_us, "predicted_us": p.predicted_us,
            "error_percent": 100 * p.error_share, "low_us": low_us, "high_us": high_us,
            "measured_share": p.measured_share, "cells_measured": p.cells_measured,
            "device_s": p.device_s,
        })  # fmt: skip
    for name, of in (
        ("per_network", lines),
        ("calibration", [c.to_json() for c in row.calibration]),
    ):
        if of:
            run.artifact(f"{name}.json", {key: [each[key] for each in of] for key in of[0]})
