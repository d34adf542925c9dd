"""What an evaluation gives: predictions beside their truth, figures of merit, rows and reports.

Errors are in percent, all other parts of a whole in shares.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.composition import CALIBRATED_AT
from hybridlat.schema.target import Target

OWN = "hybridlat"
PARTS = ("lookup_only", "model_only")
"""Baselines that are a part of hybridlat; all others are its rivals."""
_DIGITS = {
    "rmspe": 3, "mape": 3, "within_5": 4, "within_10": 4, "spearman": 4, "coverage": 4, "width": 4,
    "measured_share": 4, "device_s": 2, "predict_ms": 3, "noise_floor": 3, "networks": 0,
    "cells": 0, "answered": 0, "answered_share": 4, "draws": 0, "rmspe_sd": 3,
}  # fmt: skip
"""The figures of a row in JSON, in order, and the digits that they are rounded to."""
_OF_LEVEL = ("coverage", "width", "judged", "measured_share", "device_s")


@dataclass(frozen=True, slots=True)
class Prediction:
    """One network (or cell): predicted (NaN: no answer) and true latency, what was measured for it.

    ``measured_share`` is the part of the time that was measured, ``device_s`` what that cost.
    """

    name: str
    true_us: float
    predicted_us: float
    interval_us: tuple[float, float] | None = None
    measured_share: float = 0.0
    device_s: float = 0.0
    cells: int = 1
    cells_measured: int = 0

    @property
    def error_share(self) -> float:
        """Relative error with its sign; NaN without an answer."""
        return self.predicted_us / self.true_us - 1.0


@dataclass(frozen=True, slots=True)
class Score:
    """Figures of merit over answers; None where there is nothing to compute them from.

    ``answered`` counts the answers, ``judged`` those of them that have an interval.
    """

    rmspe: float | None
    mape: float | None
    within_5: float | None
    within_10: float | None
    spearman: float | None
    coverage: float | None
    width: float | None
    measured_share: float
    device_s: float
    answered: int
    judged: int = 0


Levels = Mapping[float, Score]
"""Of intervals by their confidence."""


def score(predictions: Sequence[Prediction]) -> Score:
    """Figures over the answers that there are.

    RMSPE = 100·sqrt(mean(((p−m)/m)²)), MAPE = 100·mean(|p−m|/m); ``width`` is the mean relative
    width of the intervals, ``device_s`` the sum, ``measured_share`` the mean.
    """
    answers = [a for a in predictions if math.isfinite(a.predicted_us)]
    errors = np.array([a.error_share for a in answers])
    bounds = [(a, a.interval_us) for a in answers if a.interval_us is not None]
    share = statistics.fmean([a.measured_share for a in predictions]) if predictions else 0.0
    return Score(
        rmspe=rmspe(errors),
        mape=_mean(100.0 * np.abs(errors)),
        within_5=_mean(np.abs(errors) <= 0.05),
        within_10=_mean(np.abs(errors) <= 0.10),
        spearman=spearman([a.predicted_us for a in answers], [a.true_us for a in answers]),
        coverage=_mean(np.array([i[0] <= a.true_us <= i[1] for a, i in bounds])),
        width=_mean(np.array([(i[1] - i[0]) / a.predicted_us for a, i in bounds])),
        measured_share=share,
        device_s=math.fsum(a.device_s for a in predictions),
        answered=len(answers),
        judged=len(bounds),
    )


def rmspe(errors: NDArray[np.float64]) -> float | None:
    """Root mean square of relative errors, in percent."""
    return 100.0 * math.sqrt(float(np.mean(errors**2))) if len(errors) else None


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Rank correlation, ties at their mean rank; None below three pairs or without spread."""
    if len(left) < 3 or len(set(left)) == 1 or len(set(right)) == 1:
        return None
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(left), rankdata(right))[0, 1])


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def noise_floor(repeats_us: Sequence[Sequence[float]]) -> float | None:
    """RMSPE of each record of a network against the median of its others; None without repeats.

    What no method can beat: the same network, measured again.
    """
    errors = [
        each_us / statistics.median([*repeats[:i], *repeats[i + 1 :]]) - 1.0
        for repeats in repeats_us
        if len(repeats) > 1
        for i, each_us in enumerate(repeats)
    ]
    return rmspe(np.array(errors))


def levels(predictions_at: Callable[[float], Sequence[Prediction]]) -> Levels:
    """What intervals of each confidence hold, how wide they are, and what the gate measured."""
    each = {confidence: score(predictions_at(confidence)) for confidence in CALIBRATED_AT}
    return {confidence: s for confidence, s in each.items() if s.coverage is not None}


@dataclass(frozen=True)
class ResultRow:
    """One line of the leaderboard: a target, a regime, a method and its figures.

    ``tested`` is how many networks (in regimes per cell: cells) were held out. Figures
    are means over ``draws``, of which the RMSPE has a standard deviation ``rmspe_sd``.
    ``reason`` says why a target has no figures; such a row is of no regime and no method.
    """

    target: str
    regime: str
    method: str
    score: Score = field(default_factory=lambda: score(()))
    predict_ms: float | None = None
    noise_floor: float | None = None
    networks: int = 0
    cells: int = 0
    median: float | None = None
    mlflow_run: str = ""
    calibration: Levels = field(default_factory=dict)
    tested: int = 0
    reason: str = ""
    draws: int = 1
    rmspe_sd: float | None = None

    @property
    def answered_share(self) -> float | None:
        """Part of what was tested that the method answered; None where nothing was tested."""
        return self.score.answered / self.tested if self.tested else None

    def to_json(self) -> dict[str, object]:
        """The fixed object of ``evaluate --json``; None where a figure cannot be had."""
        figures = {n: _rounded(self if hasattr(self, n) else self.score, n) for n in _DIGITS}
        levels: list[dict[str, float | None]] = [
            {"confidence": confidence, **{name: _rounded(level, name) for name in _OF_LEVEL}}
            for confidence, level in self.calibration.items()
        ]
        return {
            "target": self.target,
            "regime": self.regime or None,
            "method": self.method or None,
            **(dict.fromkeys(figures) if self.reason else figures),
            "mlflow_run": self.mlflow_run,
            "calibration": levels or None,
            "reason": self.reason or None,
        }


def _rounded(figures: object, name: str) -> float | None:
    value: float | None = getattr(figures, name)
    return None if value is None else round(value, _DIGITS.get(name, 0))


@dataclass(frozen=True)
class MethodResult:
    """Every answer of one method in one regime, by trial: figures are the mean over trials."""

    regime: str
    method: str
    trials: Sequence[Sequence[Prediction]]
    predict_ms: float | None = None
    per_cell: bool = False

    @property
    def predictions(self) -> Sequence[Prediction]:
        """Those of the last trial."""
        return self.trials[-1]

    @cached_property
    def score(self) -> Score:
        """Each figure's mean, over those trials that have it."""
        each, means = [asdict(score(one)) for one in self.trials], dict[str, Any]()
        for name in each[0]:
            values = [figures[name] for figures in each if figures[name] is not None]
            means[name] = statistics.fmean(values) if values else None
        means |= {name: round(means[name]) for name in ("answered", "judged")}
        return Score(**means)

    def row(self, report: "TargetReport", tested: int) -> ResultRow:
        """Its line of the leaderboard; ``tested`` is what the regime holds out."""
        rmspes = [each for one in self.trials if (each := score(one).rmspe) is not None]
        errors = [100 * abs(answer.error_share) for one in self.trials for answer in one]
        finite = [error for error in errors if math.isfinite(error)]
        answered = self.score.answered
        return ResultRow(
            target=str(report.target),
            regime=self.regime,
            method=self.method,
            score=self.score,
            predict_ms=self.predict_ms,
            noise_floor=None if self.per_cell else report.noise_floor,
            networks=0 if self.per_cell else answered,
            cells=answered if self.per_cell else sum(one.cells for one in self.predictions),
            median=statistics.median(finite) if finite else None,
            calibration=report.calibration.get(self.regime, {}) if self.method == OWN else {},
            tested=tested,
            draws=len(self.trials),
            rmspe_sd=statistics.stdev(rmspes) if len(rmspes) > 1 else None,
        )


@dataclass(frozen=True)
class TargetReport:
    """One target judged.

    ``calibration`` maps our own regimes to what holds at each confidence, ``cell_errors`` the kinds
    of kernels that cells of held-out networks spend most of their time in to errors of such cells.
    """

    target: Target
    data_hash: str
    results: tuple[MethodResult, ...]
    noise_floor: float | None
    networks: int
    cells: int
    calibration: Mapping[str, Levels] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cell_errors: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def rows(self) -> list[ResultRow]:
        """A row of each result, those of a regime together."""
        by_regime: dict[str, list[MethodResult]] = {}
        for result in self.results:
            by_regime.setdefault(result.regime, []).append(result)
        return [
            result.row(self, max(len(other.predictions) for other in same))
            for same in by_regime.values()
            for result in same
        ]
