"""The lines of experiments/figures/whole_networks.csv: how far off a method is on a target."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridlat.report.table import Table, titled

Array = NDArray[np.float64]
FIGURES = Path(__file__).parent / "figures" / "whole_networks.csv"


@dataclass(frozen=True)
class Line:
    """Errors, coverage and half-width of intervals of 90 %: percent, of the latencies judged.

    ``half_width`` is how far the farther end of an interval is from the latency, in the median.
    Figures are means over ``draws`` of folds, ``_sd`` their standard deviations.
    ``known_kernels`` is the part of rows with over 90 % of their base time in kernels that training
    held.
    """

    target: str
    regime: str
    method: str
    latencies: int
    rmspe: float
    median: float
    bias: float
    coverage: float | None = None
    half_width: float | None = None
    networks: int = 0
    draws: int = 1
    rmspe_sd: float | None = None
    median_sd: float | None = None
    known_kernels: float | None = None


def line(
    names: tuple[str, str, str],
    predicted: Array,
    truth: Array,
    networks: Iterable[str] = (),
    bounds: Sequence[Array] = (),
) -> Line:
    """The errors of (target, regime, method); ``bounds`` are both ends of the intervals."""
    off = 100 * (predicted / truth - 1)
    figures = [np.sqrt(np.mean(off**2)), np.median(np.abs(off)), np.mean(off)]
    if len(bounds):
        low, high = bounds
        figures.append(100 * np.mean((low <= truth) & (truth <= high)))
        figures.append(100 * np.median(high / predicted - 1))
    return Line(*names, len(off), *map(float, figures), networks=len(set(networks)))


def mean(lines: Sequence[Line], known_kernels: float | None = None) -> Line:
    """The line of all draws; without standard deviations where there is one alone."""
    figures: dict[str, float] = {}
    for name in ("rmspe", "median", "bias", "coverage", "half_width"):
        values = [getattr(one, name) for one in lines]
        if None not in values:
            figures[name] = statistics.fmean(values)
            if len(values) > 1 and f"{name}_sd" in _DIGITS:
                figures[f"{name}_sd"] = statistics.stdev(values)
    return replace(lines[0], **figures, draws=len(lines), known_kernels=known_kernels)  # type: ignore[arg-type]


def noise(target: str, figures: Iterable[tuple[float, ...]]) -> list[Line]:
    """Figures of a network against the median of its others: what no method can beat."""
    pairs = [
        (same[i], np.median(same[:i] + same[i + 1 :]))
        for same in figures if len(same) > 1
        for i in range(len(same))
    ]  # fmt: skip
    return [line((target, "repeated", "noise"), *np.array(pairs).T)] if pairs else []


_DIGITS = {
    "rmspe": 1, "median": 1, "bias": 1, "coverage": 0, "half_width": 0, "rmspe_sd": 1,
    "median_sd": 1, "known_kernels": 0,
}  # fmt: skip


def write(lines: Iterable[Line], file: Path) -> None:
    """The lines as comma-separated values."""
    names = [f.name for f in fields(Line)]
    columns = titled(*(f"{name}_percent" if name in _DIGITS else name for name in names))
    rows = [[_text(name, getattr(one, name)) for name in names] for one in lines]
    file.write_text(Table(columns, rows).csv(), encoding="utf-8")


def _text(name: str, value: object) -> object:
    return f"{value:.{_DIGITS[name]}f}" if isinstance(value, float) else value


def read(file: Path) -> list[Line]:
    """What ``write`` wrote."""
    with file.open(encoding="utf-8") as opened:
        rows = [
            {name.removesuffix("_percent"): text for name, text in row.items() if text}
            for row in csv.DictReader(opened)
        ]
    return msgspec.convert(rows, list[Line], strict=False)
