"""The roofline with fitted efficiencies: what the data sheet allows, scaled to what is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hybridlat.model.baselines import _table
from hybridlat.model.baselines.base import Baseline, TrainingRow

_EFFICIENCIES = np.geomspace(0.02, 1.0, 18)


class Roofline(Baseline):
    """latency = a·kernels + b·Σ max(FLOP/(e·peak), bytes/bandwidth), with a, b, e fitted."""

    name: ClassVar[str] = "roofline"

    def fit(self, rows: Sequence[TrainingRow]) -> None:
        texts, truth = _table.usable(rows)
        best = np.inf
        for efficiency in _EFFICIENCIES:
            columns = self._columns(texts, efficiency)
            line = _table.relative_line(columns, truth)
            error = float(np.mean((columns @ line / truth - 1) ** 2))
            if error < best:
                best, self._efficiency, self._line = error, float(efficiency), line

    def _columns(self, texts: Sequence[str], efficiency: float) -> _table.Array:
        cells, view = _table.read(texts, self.device, self.precision)
        bound = np.maximum(view.compute_us / efficiency, view.memory_us)
        return np.stack(
            [_table.summed(cells, np.ones(len(bound))), _table.summed(cells, bound)], axis=1
        )

    def predict(self, texts: Sequence[str]) -> _table.Array:
        return np.asarray(self._columns(texts, self._efficiency) @ self._line)
