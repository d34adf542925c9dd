"""The lines of experiments/whole_networks.md's tables: how far off a method is on a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.report.table import Table, titled

Array = NDArray[np.float64]
LEAST = 20
"""Latencies of a target that has a row in the lab book."""


@dataclass(frozen=True)
class Line:
    """One line of a table; ``networks`` counts the latencies that were judged."""

    target: str
    regime: str
    method: str
    networks: int
    rmspe: float
    median: float
    bias: float
    coverage: float | None = None
    width: float | None = None


def line(target: str, regime: str, method: str, predicted: Array, truth: Array) -> Line:
    """The errors of a method on a target."""
    off = predicted / truth - 1
    return Line(
        target, regime, method, len(off), 100 * float(np.sqrt(np.mean(off**2))),
        100 * float(np.median(np.abs(off))), 100 * float(np.mean(off)),
    )  # fmt: skip


def mean_line(lines: Sequence[Line]) -> Line:
    """One line for several draws: their mean errors, counted as the first."""
    first = lines[0]
    errors = ([getattr(one, name) for one in lines] for name in ("rmspe", "median", "bias"))
    return Line(
        first.target, first.regime, first.method, first.networks,
        *(float(np.mean(each)) for each in errors),
    )  # fmt: skip


def markdown(lines: Sequence[Line]) -> str:
    """A row a target, regime and method."""
    titles = titled("target", "regime", "method", "n", "RMSPE %", "median %", "bias %",
                    "90 % holds", "width")  # fmt: skip
    rows = [
        (one.target, one.regime, one.method, one.networks, *_errors(one), *_shares(one, " %"))
        for one in lines
    ]
    return Table(titles, rows).markdown() + "\n"


def csv(lines: Sequence[Line]) -> str:
    """The same rows as comma-separated values."""
    titles = titled("target", "regime", "method", "latencies", "rmspe_percent", "median_percent",
                    "bias_percent", "coverage_percent", "width_percent")  # fmt: skip
    rows = [
        (one.target, one.regime, one.method, one.networks, *_errors(one), *_shares(one))
        for one in lines
    ]
    return Table(titles, rows).csv()


def summary(lines: Sequence[Line]) -> str:
    """A row a target: RMSPE and median of hybridlat in three regimes, and of the best baseline."""
    numbers = titled("latencies", "unseen", "90 % holds, %", "families held out", "device left out",
                     right=True)  # fmt: skip
    rows = []
    for one in lines:
        if (one.regime, one.method) != ("unseen", "hybridlat") or one.networks < LEAST:
            continue
        same = [other for other in lines if other.target == one.target]
        ours = {other.regime: _pair(other) for other in same if other.method == "hybridlat"}
        others = [o for o in same if o.regime == "unseen" and o.method != "hybridlat"]
        best = min(others, key=lambda other: other.rmspe, default=None)
        rows.append((
            one.target, one.networks, _pair(one), _shares(one)[0],
            ours.get("unseen_family", "–"), ours.get("zero_shot", "–"),
            f"{_pair(best)}, {best.method}" if best else "",
        ))  # fmt: skip
    columns = [*titled("target"), *numbers, *titled("best baseline, unseen")]
    return Table(columns, rows).markdown() + "\n"


def _errors(one: Line) -> tuple[str, str, str]:
    return f"{one.rmspe:.1f}", f"{one.median:.1f}", f"{one.bias:+.1f}"


def _pair(one: Line) -> str:
    rmspe, median, _ = _errors(one)
    return f"{rmspe}/{median}"


def _shares(one: Line, unit: str = "") -> tuple[str, str]:
    """Coverage and width in percent, empty where a method has none."""
    holds, width = (
        "" if share is None else f"{100 * share:.0f}{unit}" for share in (one.coverage, one.width)
    )
    return holds, width
