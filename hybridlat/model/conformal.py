"""Quantiles of intervals: the conformal one, by errors of what was held out, and the normal one.

Source: Vovk, Gammerman & Shafer, "Algorithmic Learning in a Random World", 2005.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def rank_of(count: int, confidence: float) -> int:
    """⌈(n + 1)·confidence⌉, at least 1: which of n scores is the quantile, counted from 1.

    Above n where so few promise less than that confidence. A hair of rounding moves no rank.
    """
    return max(math.ceil((count + 1) * confidence - 1e-9), 1)


def conformal_quantile(scores: Sequence[float] | NDArray[np.float64], confidence: float) -> float:
    """The score of that rank, the largest where there are fewer; ValueError without scores."""
    if not len(scores):
        raise ValueError("no score to take a quantile of")
    return float(np.sort(scores)[min(rank_of(len(scores), confidence), len(scores)) - 1])


@lru_cache(maxsize=256)
def normal_quantile(confidence: float) -> float:
    """Two-sided quantile of the normal distribution: 1.645 at 0.9."""
    return statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
