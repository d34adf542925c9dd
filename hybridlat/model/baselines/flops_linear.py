"""Latency as a constant per kernel plus a constant per FLOP: the oldest proxy there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hybridlat.model.baselines import _table
from hybridlat.model.baselines.base import Baseline, TrainingRow


class FlopsLinear(Baseline):
    """latency = a·kernels + b·FLOP, both at least 0, fitted to relative errors."""

    name: ClassVar[str] = "flops_linear"

    def fit(self, rows: Sequence[TrainingRow]) -> None:
        texts, truth = _table.usable(rows)
        self._line = _table.relative_line(self._columns(texts), truth)

    def _columns(self, texts: Sequence[str]) -> _table.Array:
        cells, view = _table.read(texts, self.device, self.precision)
        return np.stack(
            [_table.summed(cells, np.ones(len(view.m))), _table.summed(cells, view.flop)], axis=1
        )

    def predict(self, texts: Sequence[str]) -> _table.Array:
        return np.asarray(self._columns(texts) @ self._line)
