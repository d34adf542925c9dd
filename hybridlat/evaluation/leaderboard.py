"""Rows of an evaluation: as tables on the terminal and in Markdown, and as runs in MLflow.

People see first the regimes that matter, hybridlat beside its rivals.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata

from hybridlat.evaluation import tracking
from hybridlat.evaluation.metrics import OWN, PARTS, MethodResult, ResultRow, TargetReport
from hybridlat.evaluation.pictures import pictures
from hybridlat.report.table import Column, Table, titled
from hybridlat.report.units import percent_text
from hybridlat.schema.target import Target

_MOST_LINES = 2000
_COLUMNS = (*titled("regime", "method"), *titled(
    "RMSPE %", "MAPE %", "answered", "coverage", "≤10 %", "width", "measured", "≤5 %", "device s",
    "ρ", "predict ms", right=True,
))  # fmt: skip
_NARROW = 6  # columns on a terminal
_COMPARED = [
    *titled("regime", "tested on"), Column("hybridlat", right=True),
    Column("best rival", wraps=True), *titled("nn-Meter", "FLOPs", right=True),
]  # fmt: skip
NN_METER, FLOPS = "kernel_forest", "flops_linear"
_LEGEND = (
    "Errors are RMSPE in percent on what was held out; less is better. The best rival is the best "
    "method that is no part of hybridlat. nn-Meter stands for its method, a random forest for each "
    "kind of kernel; FLOPs for a line fitted to the number of operations. The noise floor is the "
    "error of measuring the same networks again. What follows a ± is the standard deviation of "
    "draws that a figure is the mean of."
)
_MEANINGS = {
    "measured": "all cells of the network are known",
    "unseen": "no cell of the network was learned from, or, of whole networks, no twin of it",
    "gated@": "as unseen, then cells are measured until the interval is this narrow",
    "cells@": "single cells, learned from so many others",
    "gated_cells@": "as before, and the least certain ones are measured",
    "unseen_family": "no variant of the architecture was learned from",
    "zero_shot": "no network of the device was learned from",
    "other_version": "only another version of the engine was measured",
    "other_version@": "the same, then cells are measured until the interval is this narrow",
}


def _cells(row: ResultRow) -> tuple[str, ...]:
    s, share = row.score, row.answered_share
    answered = str(row.networks or f"{row.cells:,} cells")
    if share is not None and share < 1:
        answered = f"{100 * share:.0f} % of {row.asked:,}"
    return (
        row.regime,
        row.method,
        number_text(s.rmspe, 2),
        number_text(s.mape, 2),
        answered,
        *(percent_text(v, 0) for v in (s.coverage, s.within_10, s.width, s.measured_share)),
        percent_text(s.within_5, 0),
        number_text(s.device_s, 1),
        number_text(s.spearman, 3),
        number_text(row.predict_ms, 2),
    )


def number_text(value: float | None, digits: int) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


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
    ours = {(row.target, row.regime): row.score.answered for row in rows if row.method == OWN}
    return [r for r in rows if r.score.answered >= ours.get((r.target, r.regime), r.asked)]


def best(rows: Sequence[ResultRow], but: Collection[str] = ()) -> list[ResultRow]:
    """The method, of all ``but`` those named, with the least error in each regime of a target."""
    best_of: dict[tuple[str, str], ResultRow] = {}
    for row in ordered(_comparable(rows)):
        if row.score.rmspe is not None and row.method not in but:
            best_of.setdefault((row.target, row.regime), row)
    return list(best_of.values())


def by_target(rows: Sequence[ResultRow]) -> Iterable[tuple[str, list[ResultRow], float | None]]:
    """Every judged target, its rows in order, and its noise floor."""
    judged = [r for r in rows if not r.reason]
    for target in dict.fromkeys(r.target for r in judged):
        own = ordered([r for r in judged if r.target == target])
        yield target, own, next((r.noise_floor for r in own if r.noise_floor is not None), None)


def main_regimes(rows: Sequence[ResultRow]) -> list[str]:
    """The regimes of one target that matter: three, or one more for each further tolerance."""
    regimes = list(dict.fromkeys(row.regime for row in rows))
    sizes = [regime for regime in regimes if regime.startswith("cells@")]
    left_out = set(sizes[1:-1])
    if any(regime.startswith("gated@") for regime in regimes):
        left_out |= {regime for regime in regimes if regime.startswith("gated_cells@")}
    return [regime for regime in regimes if regime not in left_out]


def _line(rows: Sequence[ResultRow], regime: str) -> list[str]:
    of = {row.method: row for row in rows if row.regime == regime}
    rival = next(iter(best(list(of.values()), but={OWN, *PARTS})), None)
    ours, theirs, flops = (_error(of.get(name)) for name in (OWN, NN_METER, FLOPS))
    unit = "networks" if any(row.networks for row in of.values()) else "cells"
    tested = f"{max(row.asked for row in of.values()):,} {unit}"
    return [regime, tested, ours, f"{_error(rival)} {rival.method if rival else ''}", theirs, flops]


def _error(row: ResultRow | None) -> str:
    if row is None or row.score.rmspe is None:
        return "–"
    few = f" (of {row.score.answered:,})" if row.score.answered < row.asked else ""
    spread = "" if row.rmspe_sd is None else f" ± {row.rmspe_sd:.1f}"
    return number_text(row.score.rmspe, 1) + spread + few


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


def tables(rows: Sequence[ResultRow], everything: bool = False) -> list[Table]:
    """A table for each target that was judged; its title has the noise floor.

    ``everything``: all regimes and methods, with the figures that 80 characters hold.
    """
    made = []
    for target, own, floor in by_target(rows):
        if everything:
            noise = "" if floor is None else f" · noise floor {floor:.2f} % RMSPE"
            lines = [_cells(row)[:_NARROW] for row in own]
            made.append(Table(_COLUMNS[:_NARROW], lines, target + noise))
        else:
            noise = "" if floor is None else f" · noise floor {floor:.1f} %"
            compared = [_line(own, regime) for regime in main_regimes(own)]
            made.append(Table(_COMPARED, compared, target + noise))
    return made


def legend(rows: Sequence[ResultRow]) -> str:
    """What the columns and the regimes mean, in two paragraphs."""
    shown = dict.fromkeys(r for _, own, _ in by_target(rows) for r in main_regimes(own))
    meanings = [f"{r}: {_MEANINGS[''.join(r.partition('@')[:2])]}" for r in shown]
    return f"{_LEGEND}\n\nRegimes · {'; '.join(meanings)}."


def summary(rows: Sequence[ResultRow]) -> str:
    """One table of all targets, then the legend and the targets that were not judged."""
    lines = [
        [target, *_line(own, regime), number_text(floor, 1)]
        for target, own, floor in by_target(rows)
        for regime in main_regimes(own)
    ]
    columns = [Column("target"), *_COMPARED, Column("noise floor", right=True)]
    refused = [f"\n\n{row.target} was not judged: {row.reason}." for row in rows if row.reason]
    return f"{Table(columns, lines).markdown()}\n\n{legend(rows)}{''.join(refused)}"


def log(
    tracker: tracking.Tracker, report: TargetReport, parameters: Mapping[str, object]
) -> tuple[list[ResultRow], str]:
    """The rows of a report, each with its method's run, and the run of all that is above those.

    Where MLflow fails, that is a warning, and the rows from there on have no run.
    """
    rows, page = report.rows(), ""
    found_by = about(report.target, tracking.EVALUATION)
    text = {tracking.DESCRIPTION: summary(rows)} if tracker.uri else {}
    with tracker.optional(), tracker.run(f"{report.target} · evaluate", found_by | text) as above:
        page = above.id
        above.log(parameters, _headline(report, rows))
        counts = {"cells": report.cells, "networks": report.networks}
        above.inputs(str(report.target), report.data_hash, str(parameters["store"]), counts)
        for method in dict.fromkeys(row.method for row in rows):
            tags = {**found_by, tracking.KIND: "method", "method": method}
            with tracker.run(f"{method} · {report.target}", tags) as run:
                results = [each for each in report.results if each.method == method]
                run.log({"method": method, **parameters}, merged(map(figures, results)))
                if method == OWN:
                    run.log(metrics=_calibration(report))
                    run.artifact("per_network.json", _answers(results))
            rows = [replace(r, mlflow_run=run.id) if r.method == method else r for r in rows]
        if page:
            above.artifact("leaderboard.md", markdown(rows))
            above.artifact("leaderboard.json", [_flat(row) for row in ordered(rows)])
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
    name, _, number = result.regime.partition("@")
    regime, step = (name, int(number)) if number.isdigit() else (result.regime, 0)
    others = {**dataclasses.asdict(result.score), "predict_ms": result.predict_ms}
    main = {name: others.pop(name) for name in ("rmspe", "coverage")}
    main["median"] = result.median
    parts = {regime: main, f"{regime} more": {**others, "rmspe_sd": result.rmspe_sd}}
    return {(f"{p}/{n}", step): value for p, part in parts.items() for n, value in part.items()}


def _headline(report: TargetReport, rows: Sequence[ResultRow]) -> tracking.Metrics:
    """Our main figures in each regime, beside those of the best rival and the noise floor."""
    of = {(each.regime, each.method): figures(each) for each in report.results}
    made = dict(_calibration(report))
    for (_, method), metrics in of.items():
        if method == OWN:
            made |= {key: v for key, v in metrics.items() if " more/" not in key[0]}
    for row in best(rows, but={OWN, *PARTS}):
        for key, value in of[row.regime, row.method].items():
            if key[0].endswith(("/rmspe", "/median")):
                made[f"{key[0]}_of_rival", key[1]] = value
    for row in rows:
        if row.method == OWN and row.noise_floor is not None:
            made[f"{row.regime}/rmspe_floor", 0] = row.noise_floor
    return made


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


def _flat(row: ResultRow) -> dict[str, object]:
    """A row for MLflow's tables, which have no columns of lists."""
    return {name: value for name, value in row.to_json().items() if name != "calibration"}


def _answers(results: Iterable[MethodResult]) -> list[dict[str, object]]:
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
