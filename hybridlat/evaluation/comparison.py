"""What people see first of an evaluation: the regimes that matter, hybridlat beside its rivals."""

from __future__ import annotations

from collections.abc import Sequence

from hybridlat.evaluation.leaderboard import best, by_target, number_text
from hybridlat.evaluation.metrics import OWN, PARTS, ResultRow
from hybridlat.report.table import Column, Table, titled

NN_METER, FLOPS = "kernel_forest", "flops_linear"
_LEGEND = (
    "Errors are RMSPE in percent on what was held out; less is better. The best rival is the best "
    "method that is no part of hybridlat. nn-Meter stands for its method, a random forest for each "
    "kind of kernel; FLOPs for a line fitted to the number of operations. The noise floor is the "
    "error of measuring the same networks again."
)
_MEANINGS = {
    "measured": "all cells of the network are known",
    "unseen": "no cell of the network was learned from",
    "gated@": "as unseen, then cells are measured until the interval is this narrow",
    "cells@": "single cells, learned from so many others",
    "gated_cells@": "as before, and the least certain ones are measured",
    "unseen_family": "no variant of the architecture was learned from",
    "zero_shot": "no network of the device was learned from",
    "other_version": "only another version of the engine was measured",
    "other_version@": "the same, then cells are measured until the interval is this narrow",
}
_COLUMNS = [
    *titled("regime", "tested on"), Column("hybridlat", right=True),
    Column("best rival", wraps=True), *titled("nn-Meter", "FLOPs", right=True),
]  # fmt: skip


def main_regimes(rows: Sequence[ResultRow]) -> list[str]:
    """The regimes of one target that matter: three, or one more for each further tolerance."""
    regimes = list(dict.fromkeys(row.regime for row in rows))
    sizes = [regime for regime in regimes if regime.startswith("cells@")]
    left_out = {"unseen_cells", *sizes[1:-1]}
    if any(regime.startswith("gated@") for regime in regimes):
        left_out |= {regime for regime in regimes if regime.startswith("gated_cells@")}
    return [regime for regime in regimes if regime not in left_out]


def best_rivals(rows: Sequence[ResultRow]) -> dict[tuple[str, str], ResultRow]:
    """By target and regime the best of the methods that are no part of hybridlat."""
    rivals = {row.method for row in rows} - {OWN, *PARTS}
    return {(row.target, row.regime): row for row in best(rows, rivals)}


def _line(rows: Sequence[ResultRow], regime: str) -> list[str]:
    of = {row.method: row for row in rows if row.regime == regime}
    rival = best_rivals(rows).get((rows[0].target, regime))
    ours, theirs, flops = (_error(of.get(name)) for name in (OWN, NN_METER, FLOPS))
    unit = "networks" if any(row.networks for row in of.values()) else "cells"
    tested = f"{max(row.asked for row in of.values()):,} {unit}"
    return [regime, tested, ours, f"{_error(rival)} {rival.method if rival else ''}", theirs, flops]


def _error(row: ResultRow | None) -> str:
    if row is None or row.score.rmspe is None:
        return "–"
    few = row.score.answered < row.asked
    return number_text(row.score.rmspe, 1) + (f" (of {row.score.answered:,})" if few else "")


def tables(rows: Sequence[ResultRow]) -> list[Table]:
    """A table for each target that was judged; its title has the noise floor."""
    return [
        Table(
            _COLUMNS,
            [_line(own, regime) for regime in main_regimes(own)],
            target if floor is None else f"{target} · noise floor {floor:.1f} %",
        )
        for target, own, floor in by_target(rows)
    ]


def legend(rows: Sequence[ResultRow]) -> str:
    """What the columns and the regimes mean, in two paragraphs."""
    shown = dict.fromkeys(r for _, own, _ in by_target(rows) for r in main_regimes(own))
    meanings = [f"{r}: {_MEANINGS[''.join(r.partition('@')[:2])]}" for r in shown]
    return f"{_LEGEND}\n\nRegimes · {'; '.join(meanings)}."


def markdown(rows: Sequence[ResultRow]) -> str:
    """One table of all targets, then the legend and the targets that were not judged."""
    lines = [
        [target, *_line(own, regime), number_text(floor, 1)]
        for target, own, floor in by_target(rows)
        for regime in main_regimes(own)
    ]
    columns = [Column("target"), *_COLUMNS, Column("noise floor", right=True)]
    refused = [f"\n\n{row.target} was not judged: {row.reason}." for row in rows if row.reason]
    return f"{Table(columns, lines).markdown()}\n\n{legend(rows)}{''.join(refused)}"
