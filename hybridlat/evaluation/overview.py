"""The newest figures of every target as one table: what an experiment's page shows first."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from hybridlat.evaluation.metrics import OWN
from hybridlat.evaluation.tracking import Kept

_MOST_CHARACTERS = 4200  # the databases of older MLflows keep 5,000 of a tag, links included
_START = """\
Newest figures of each target and regime. RMSPE in %, lower is better; the noise floor is how \
far the same networks are off when they are measured again. Every row is a run below: filter with \
`tags.regime = 'unseen'`, group by the tag `target`, or open our own run for pictures and tables.

| target | regime | hybridlat | best baseline | noise floor | in the 90 % interval | networks |
|---|---|---:|---:|---:|---:|---:|
"""
_END = "\n{} more rows: see the runs.\n"


def overview(kept: Iterable[Kept]) -> str:
    """The table of our own runs, each beside the best baseline that answered as much."""
    runs = [run for run in kept if "rmspe" in run.metrics]
    own = sorted(
        (run for run in runs if run.tags.get("method") == OWN),
        key=lambda run: (run.tags.get("target", ""), _order(run.tags.get("regime", ""))),
    )
    lines = [_line(run, runs) for run in own]
    text = f"Seen on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}. " + _START
    for i, line in enumerate(lines):
        left = _END.format(len(lines) - i)
        if len(text) + len(line) + len(left) > _MOST_CHARACTERS:
            return text + left
        text += line
    return text


def _line(own: Kept, runs: Sequence[Kept]) -> str:
    target, regime = own.tags.get("target", ""), own.tags.get("regime", "")
    rivals = [
        run
        for run in runs
        if (run.tags.get("target"), run.tags.get("regime")) == (target, regime)
        and run.tags.get("method") not in (OWN, "perfect")
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
