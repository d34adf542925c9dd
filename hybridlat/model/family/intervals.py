"""Intervals of networks' latencies from out-of-fold errors: normalised split conformal.

An error counts in standard deviations of what the model itself says of the network (how far its
kernels are from what was learned, how little a task shares with others). The quantile of such
scores over held-out networks turns the next network's deviation into an interval (Papadopoulos et
al. 2002; Lei et al. 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ELSEWHERE = ""
"""Stands among the tasks of a calibration for devices that were left out."""
_PRIOR_SCORES = 20.0


@dataclass(frozen=True)
class Calibration:
    """``scores`` of held-out networks, ascending, of all tasks and by task.

    A score is an absolute log-error over ``sqrt(spread² + floor²)``. ``spreads`` are the medians
    of what the model stated for the held-out networks of each task.
    """

    floor: float
    pooled: Array
    by_task: dict[str, Array]
    spreads: dict[str, float] = field(default_factory=dict)

    def half_width(self, spread: float, task: str, confidence: float = 0.9) -> float:
        """Half the width of the interval of the logarithm; wider for a higher confidence.

        A task's own quantile counts by its scores against ``20`` of the pool's, so that a task
        without any has the pool's.
        """
        own = self.by_task.get(task, np.zeros(0))
        factor = _quantile(self.pooled, confidence)
        if len(own):
            weight = len(own) / (len(own) + _PRIOR_SCORES)
            factor = weight * _quantile(own, confidence) + (1 - weight) * factor
        return float(factor * np.hypot(spread, self.floor))

    def typical_half_width(self, task: str, confidence: float = 0.9) -> float | None:
        """``half_width`` of a task's network of median spread; None for a task without any."""
        spread = self.spreads.get(task)
        return None if spread is None else self.half_width(spread, task, confidence)

    def to_json(self) -> dict[str, object]:
        """As plain lists, scores to four figures."""
        return {
            "floor": self.floor,
            "pooled": _rounded(self.pooled),
            "by_task": {name: _rounded(scores) for name, scores in self.by_task.items()},
            "spreads": {name: float(f"{x:.4g}") for name, x in self.spreads.items()},
        }

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Calibration:
        """Read ``to_json``; KeyError, TypeError or ValueError for anything else."""
        by_task = {str(k): np.array(v, np.float64) for k, v in stated["by_task"].items()}
        spreads = {str(k): float(v) for k, v in stated.get("spreads", {}).items()}
        return cls(float(stated["floor"]), np.array(stated["pooled"], np.float64), by_task, spreads)

    def interval_us(
        self, latency_us: float, spread: float, task: str, confidence: float = 0.9
    ) -> tuple[float, float]:
        """(lowest, highest) latency at a confidence between 0 and 1."""
        half = self.half_width(spread, task, confidence)
        return latency_us * float(np.exp(-half)), latency_us * float(np.exp(half))


def calibrate(
    errors: Array, spreads: Array, tasks: Sequence[str], floor: float = 0.05
) -> Calibration:
    """Learn from log-errors of networks that were held out, and the spreads stated for them.

    Raises ValueError where there are none.
    """
    if not len(errors):
        raise ValueError("no held-out error to calibrate intervals with")
    scores = np.abs(errors) / np.hypot(spreads, floor)
    names = np.array(list(tasks))
    places = {str(name): names == name for name in np.unique(names)}
    by_task = {name: np.sort(scores[mine]) for name, mine in places.items()}
    medians = {name: float(np.median(spreads[mine])) for name, mine in places.items()}
    return Calibration(floor, np.sort(scores), by_task, medians)


def _rounded(scores: Array) -> list[float]:
    return [float(f"{score:.4g}") for score in scores]


def _quantile(scores: Array, confidence: float) -> float:
    """The conformal quantile: the (n + 1)·confidence smallest score, the largest at most."""
    rank = int(np.ceil((len(scores) + 1) * confidence)) - 1
    return float(scores[min(max(rank, 0), len(scores) - 1)])
