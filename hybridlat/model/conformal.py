"""The one conformal quantile: how far intervals reach by the errors of what was held out.

Source: Vovk, Gammerman & Shafer, "Algorithmic Learning in a Random World", 2005.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
