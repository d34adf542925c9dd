"""The figures of merit, each over pairs of prediction and truth. All errors in percent."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Prediction:
    """One network (or cell) judged: what was said, what was true, and at what price.

    ``predicted_us`` is NaN where the method has no answer; ``interval_us`` None where it gives
    none. ``measured_share`` is the part of the time that was measured, ``device_s`` what that cost.
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
    """Figures of merit over answers; None where there is nothing to compute them from."""

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


def score(predictions: Sequence[Prediction]) -> Score:
    """Figures over the answers that there are.

    RMSPE = 100·sqrt(mean(((p−m)/m)²)); MAPE its mean absolute sibling; ``width`` is the mean
    relative width of the intervals, ``device_s`` the sum, ``measured_share`` the mean.
    """
    given = [a for a in predictions if math.isfinite(a.predicted_us)]
    errors = np.array([a.error_share for a in given])
    bounds = [(a, a.interval_us) for a in given if a.interval_us is not None]
    share = statistics.fmean([a.measured_share for a in predictions]) if predictions else 0.0
    return Score(
        rmspe=rmspe(errors),
        mape=_mean(100.0 * np.abs(errors)),
        within_5=_mean(np.abs(errors) <= 0.05),
        within_10=_mean(np.abs(errors) <= 0.10),
        spearman=spearman([a.predicted_us for a in given], [a.true_us for a in given]),
        coverage=_mean(np.array([i[0] <= a.true_us <= i[1] for a, i in bounds])),
        width=_mean(np.array([(i[1] - i[0]) / a.predicted_us for a, i in bounds])),
        measured_share=share,
        device_s=math.fsum(a.device_s for a in predictions),
        answered=len(given),
    )


def mean_score(scores: Sequence[Score]) -> Score:
    """Each figure's mean over repeated trials, of those trials that have it."""
    means = {}
    for item in fields(Score):
        values = [v for s in scores if (v := getattr(s, item.name)) is not None]
        means[item.name] = statistics.fmean(values) if values else None
    means["answered"] = round(means["answered"] or 0)
    return Score(**means)  # type: ignore[arg-type]


def rmspe(errors: NDArray[np.float64]) -> float | None:
    """Root mean square of relative errors, in percent."""
    return 100.0 * math.sqrt(float(np.mean(errors**2))) if len(errors) else None


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Rank correlation, ties at their mean rank; None below three pairs or without spread."""
    if len(left) < 3:
        return None
    a, b = _ranks(np.array(left)), _ranks(np.array(right))
    if a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    order = np.sort(values)
    low = np.searchsorted(order, values, side="left")
    high = np.searchsorted(order, values, side="right")
    return np.asarray((low + high - 1) / 2.0, dtype=float)


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def noise(repeats_us: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """(RMSPE, share within 5 %) of each record of a network against the median of its others.

    What no method can beat: the same network, measured again. None without repeats.
    """
    errors = [
        repeats[i] / statistics.median([*repeats[:i], *repeats[i + 1 :]]) - 1.0
        for repeats in repeats_us
        if len(repeats) > 1
        for i in range(len(repeats))
    ]
    relative = np.array(errors)
    return rmspe(relative), _mean(np.abs(relative) <= 0.05)
