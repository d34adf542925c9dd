"""Quantiles and widths of intervals, by the errors of what was held out, and the normal quantile.

Sources: Vovk, Gammerman & Shafer, "Algorithmic Learning in a Random World", 2005; for calibrations
Papadopoulos et al. 2002 (normalised split conformal prediction). Equations (13) and (14) are those
of ``docs/background/family.md``.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from hybridlat.model.family.tasks import Number
from hybridlat.model.geometry import Array

ELSEWHERE = ""
"""Stands among the tasks of a calibration for devices that were left out."""
_FLOOR = 0.05
_PRIOR_SCORES = 20.0
USUAL = 0.9  # confidence at which errors are stated, whatever that of the answer is


def rank_of(count: int, confidence: float) -> int:
    """⌈(n + 1)·confidence⌉, at least 1: which of n scores is the quantile, counted from 1.

    Above n where so few promise less than that confidence. A hair of rounding moves no rank.
    """
    return max(math.ceil((count + 1) * confidence - 1e-9), 1)


def conformal_quantile(scores: Sequence[float] | Array, confidence: float) -> float:
    """The score of that rank, the largest where there are fewer; ValueError without scores."""
    if not len(scores):
        raise ValueError("no score to take a quantile of")
    place = min(rank_of(len(scores), confidence), len(scores)) - 1
    return float(np.partition(scores, place)[place])


@lru_cache(maxsize=256)
def normal_quantile(confidence: float) -> float:
    """Two-sided quantile of the normal distribution: 1.645 at 0.9."""
    return statistics.NormalDist().inv_cdf(0.5 + confidence / 2)


@dataclass(frozen=True)
class Calibration:
    """The scores that quantiles q are taken of.

    Scores (13) of held-out networks, ascending: ``pooled`` are those of devices that were left out
    (of all tasks, where none was), ``by_task`` those of each task. ``spreads`` are medians of σ.
    """

    floor: Number
    pooled: Array
    by_task: dict[str, Array]
    spreads: dict[str, Number] = field(default_factory=dict)

    def half_width(
        self, spread: float, task: str, confidence: float = 0.9, prior_spread: float | None = None
    ) -> float:
        """Half the width (14) of the interval of the logarithm; wider for a higher confidence.

        A task's own quantile counts by its scores against 20 of the pool's, so that a task without
        any has the pool's. With ``prior_spread``, σ before networks were measured (10), such a task
        has the quantile of all learned tasks, but is no wider than before.
        """
        factor = conformal_quantile(self.pooled, confidence)
        if prior_spread is not None and self.by_task and task not in self.by_task:
            learned = conformal_quantile(np.concatenate(list(self.by_task.values())), confidence)
            widest = factor * np.hypot(prior_spread, self.floor)
            return float(min(learned * np.hypot(spread, self.floor), widest))
        return float(self.quantile(task, confidence, factor) * np.hypot(spread, self.floor))

    def quantile(self, task: str, confidence: float, elsewhere: float) -> float:
        """A task's own q, by its scores against 20 that have the q ``elsewhere``.

        Of devices that were left out it is of their pace too. Ratios have none: theirs is the
        normal one (17).
        """
        own = self.by_task.get(task, np.zeros(0))
        weight = len(own) / (len(own) + _PRIOR_SCORES)
        own_part = weight * conformal_quantile(own, confidence) if len(own) else 0.0
        return own_part + (1 - weight) * elsewhere

    def half_width_share(self, task: str) -> float | None:
        """How far the farther end of an interval of 90 % typically is from the latency (0..).

        Of a network of median spread; None for a task that nothing is known of.
        """
        spread = self.spreads.get(task)
        return None if spread is None else math.exp(self.half_width(spread, task)) - 1

    def rounded(self) -> "Calibration":
        """The same, scores to four figures."""

        def rounded(scores: Array) -> Array:
            return np.array([float(f"{score:.4g}") for score in scores])

        by_task = {name: rounded(scores) for name, scores in self.by_task.items()}
        return replace(self, pooled=rounded(self.pooled), by_task=by_task)


def calibrate(errors: Array, spreads: Array, tasks: Sequence[str]) -> Calibration:
    """Scores (13) by log-errors of held-out networks and their spreads σ; ValueError for none."""
    if not len(errors):
        raise ValueError("no held-out error to calibrate intervals with")
    scores = np.abs(errors) / np.hypot(spreads, _FLOOR)
    names = np.array(list(tasks))
    places = {str(name): names == name for name in np.unique(names)}
    by_task = {name: np.sort(scores[rows]) for name, rows in places.items()}
    medians = {name: float(np.median(spreads[rows])) for name, rows in places.items()}
    return Calibration(_FLOOR, np.sort(scores), by_task, medians)
