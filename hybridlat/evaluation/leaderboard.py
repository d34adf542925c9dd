"""Rows of an evaluation as tables, on the terminal and in Markdown.

People see first the regimes that matter, hybridlat beside its rivals.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from hybridlat.evaluation.metrics import OWN, PARTS, ResultRow
from hybridlat.report.table import Column, Table, titled
from hybridlat.report.units import percent_text

NARROW = 6  # columns that a terminal holds
_COMPARED = [
    *titled("regime", "tested on"),
    Column("hybridlat", right=True),
    Column("best rival", wraps=True),
    *titled("nn-Meter", "FLOPs", right=True),
]
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


def number_text(value: float | None, digits: int) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def _answered(row: ResultRow) -> str:
    if row.answered_share is not None and row.answered_share < 1:
        return f"{100 * row.answered_share:.0f} % of {row.tested:,}"
    return str(row.networks or f"{row.cells:,} cells")


_FIGURES: dict[str, Callable[[ResultRow], str]] = {
    "RMSPE %": lambda row: number_text(row.score.rmspe, 2),
    "MAPE %": lambda row: number_text(row.score.mape, 2),
    "answered": _answered,
    "coverage": lambda row: percent_text(row.score.coverage, 0),
    "≤10 %": lambda row: percent_text(row.score.within_10, 0),
    "width": lambda row: percent_text(row.score.width, 0),
    "measured": lambda row: percent_text(row.score.measured_share, 0),
    "≤5 %": lambda row: percent_text(row.score.within_5, 0),
    "device s": lambda row: number_text(row.score.device_s, 1),
    "ρ": lambda row: number_text(row.score.spearman, 3),
    "predict ms": lambda row: number_text(row.predict_ms, 2),
}
_COLUMNS = (*titled("regime", "method"), *titled(*_FIGURES, right=True))


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
    return [r for r in rows if r.score.answered >= ours.get((r.target, r.regime), r.tested)]


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
    tested = f"{max(row.tested for row in of.values()):,} {unit}"
    return [regime, tested, ours, f"{_error(rival)} {rival.method if rival else ''}", theirs, flops]


def _error(row: ResultRow | None) -> str:
    if row is None or row.score.rmspe is None:
        return "–"
    few = f" (of {row.score.answered:,})" if row.score.answered < row.tested else ""
    spread = "" if row.rmspe_sd is None else f" ± {row.rmspe_sd:.1f}"
    return number_text(row.score.rmspe, 1) + spread + few


def markdown(rows: Sequence[ResultRow]) -> str:
    """One table of all figures for each target, or why it has none."""
    refused = [f"### {r.target}\n\nNot judged: {r.reason}.\n" for r in rows if r.reason]
    known = [f"### {t.title}\n\n{t.markdown()}\n" for t in tables(rows, len(_COLUMNS))]
    return "\n".join([*refused, *known])


def tables(rows: Sequence[ResultRow], columns: int = 0) -> list[Table]:
    """A table for each target that was judged; its title has the noise floor.

    Of the main regimes, hybridlat beside its rivals; with ``columns``, so many of all figures.
    """
    made = []
    for target, own, floor in by_target(rows):
        title = target if floor is None else f"{target} · noise floor {floor:.1f} %"
        if columns:
            lines = [(r.regime, r.method, *(of(r) for of in _FIGURES.values())) for r in own]
            made.append(Table(_COLUMNS[:columns], [line[:columns] for line in lines], title))
        else:
            compared = [_line(own, regime) for regime in main_regimes(own)]
            made.append(Table(_COMPARED, compared, title))
    return made


def legend(rows: Sequence[ResultRow]) -> str:
    """What the columns and the regimes mean, in two paragraphs."""
    shown = dict.fromkeys(r for _, own, _ in by_target(rows) for r in main_regimes(own))
    meanings = [f"{r}: {_MEANINGS[''.join(r.partition('@')[:2])]}" for r in shown]
    return f"{_LEGEND}\n\nRegimes · {'; '.join(meanings)}."
