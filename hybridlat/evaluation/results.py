"""What an evaluation gives back: rows as ``evaluate --json`` prints them, and all behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hybridlat.evaluation.confidence_levels import ConfidenceLevel
from hybridlat.evaluation.metrics import Prediction, Score, score
from hybridlat.schema.target import Target

OWN = "hybridlat"


@dataclass(frozen=True)
class ResultRow:
    """One line of the leaderboard: a target, a regime, a method and its figures.

    ``asked`` is how many networks (in regimes per cell: cells) the method was asked for, of which
    it answered ``score.answered``. ``reason`` says why a target has no figures; such a row is of no
    regime and no method.
    """

    target: str
    regime: str
    method: str
    score: Score
    predict_ms: float | None
    noise_floor: float | None
    networks: int
    cells: int
    mlflow_run: str = ""
    calibration: tuple[ConfidenceLevel, ...] = ()
    asked: int = 0
    reason: str = ""

    @classmethod
    def without_figures(cls, target: Target, reason: str) -> ResultRow:
        """The row of a target that cannot be judged."""
        return cls(str(target), "", "", score(()), None, None, 0, 0, reason=reason)

    @property
    def answered_share(self) -> float | None:
        """Part of what was asked that the method answered; None where nothing was asked."""
        return self.score.answered / self.asked if self.asked else None

    def to_json(self) -> dict[str, object]:
        """The fixed object of ``evaluate --json``; None where a figure cannot be had."""
        judged = not self.reason
        return {
            "target": self.target,
            "regime": self.regime or None,
            "method": self.method or None,
            "rmspe": _rounded(self.score.rmspe, 3),
            "mape": _rounded(self.score.mape, 3),
            "within_5": _rounded(self.score.within_5, 4),
            "within_10": _rounded(self.score.within_10, 4),
            "spearman": _rounded(self.score.spearman, 4),
            "coverage": _rounded(self.score.coverage, 4),
            "width": _rounded(self.score.width, 4),
            "measured_share": _rounded(self.score.measured_share, 4) if judged else None,
            "device_s": _rounded(self.score.device_s, 2) if judged else None,
            "predict_ms": _rounded(self.predict_ms, 3),
            "noise_floor": _rounded(self.noise_floor, 3),
            "networks": self.networks if judged else None,
            "cells": self.cells if judged else None,
            "answered": self.score.answered if judged else None,
            "answered_share": _rounded(self.answered_share, 4),
            "mlflow_run": self.mlflow_run,
            "calibration": [level.to_json() for level in self.calibration] or None,
            "reason": self.reason or None,
        }


@dataclass(frozen=True)
class MethodResult:
    """Every answer of one method in one regime.

    ``asked`` is how many answers were wanted where that differs by method; else as many as any
    method of the regime gave.
    """

    regime: str
    method: str
    predictions: tuple[Prediction, ...]
    predict_ms: float | None = None
    per_cell: bool = False
    summary: Score | None = None  # where it is a mean over trials rather than over the answers
    asked: int | None = None

    @property
    def score(self) -> Score:
        return self.summary or score(self.predictions)


@dataclass(frozen=True)
class TargetReport:
    """One target judged.

    ``curves`` are method → [(share of cells measured, RMSPE)]; ``calibration`` maps our
    own regimes to what was found at each confidence. ``device_time_share`` is the part of
    the time to measure everything that each gated regime spent, ``reachable`` the part of networks
    that repeats of the same network put within 5 %.
    """

    target: Target
    data_hash: str
    results: tuple[MethodResult, ...]
    noise_floor: float | None
    noise_within_5: float | None
    networks: int
    cells: int
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    calibration: Mapping[str, Sequence[ConfidenceLevel]] = field(default_factory=dict)
    device_time_share: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rows(self, mlflow_run: str = "") -> list[ResultRow]:
        """One row per result, in order."""
        asked: dict[str, int] = {}
        for j in self.results:
            asked[j.regime] = max(asked.get(j.regime, 0), len(j.predictions))
        return [
            ResultRow(
                target=str(self.target),
                regime=j.regime,
                method=j.method,
                score=j.score,
                predict_ms=j.predict_ms,
                noise_floor=None if j.per_cell else self.noise_floor,
                networks=0 if j.per_cell else j.score.answered,
                cells=j.score.answered if j.per_cell else sum(a.cells for a in j.predictions),
                mlflow_run=mlflow_run,
                calibration=tuple(self.calibration.get(j.regime, ())) if j.method == OWN else (),
                asked=asked[j.regime] if j.asked is None else j.asked,
            )
            for j in self.results
        ]

    def find(self, regime: str, method: str = OWN) -> MethodResult | None:
        """The result of a method in a regime, if there is one."""
        return next((j for j in self.results if (j.regime, j.method) == (regime, method)), None)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
