"""The store without a model: an answer for what was measured, none for anything else."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hybridlat.model.baselines import _table
from hybridlat.model.baselines.base import Baseline, TrainingRow


class LookupOnly(Baseline):
    """The median of a cell's measurements; NaN for a cell without one."""

    name: ClassVar[str] = "lookup_only"
    learns: ClassVar[bool] = False

    def fit(self, rows: Sequence[TrainingRow]) -> None:
        texts, truth = _table.usable(rows)
        times_us: dict[str, list[float]] = {}
        for text, latency in zip(texts, truth.tolist(), strict=True):
            times_us.setdefault(text, []).append(latency)
        self._known = {text: statistics.median(values) for text, values in times_us.items()}

    def predict(self, texts: Sequence[str]) -> _table.Array:
        return np.array([self._known.get(text, np.nan) for text in texts], float)
