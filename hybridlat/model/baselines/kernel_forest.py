"""A random forest per kernel type on shape features, as nn-Meter has it (Zhang et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from hybridlat.errors import MissingExtra
from hybridlat.model.baselines import _table
from hybridlat.model.baselines.base import Baseline, TrainingRow
from hybridlat.model.geometry import COLUMN, Geometry

_PLAIN = (
    "batch", "c_in", "h_in", "w_in", "c_out", "k_h", "stride", "groups", "has_add", "activation",
    "flop", "in_bytes", "weight_bytes", "out_bytes",
)  # fmt: skip
_ROUNDS = 3


class KernelForest(Baseline):
    """One forest per engine operator on log latency, from plain shapes, FLOP and bytes.

    A cell of several kernels teaches each of them its part, in proportion to what the forests say
    so far (at first, to FLOP and bytes). A kernel of an operator without rows makes its cell NaN.
    """

    name: ClassVar[str] = "kernel_forest"

    def fit(self, rows: Sequence[TrainingRow]) -> None:
        texts, truth = _table.usable(rows)
        cells, view = _table.read(texts, self.device, self.precision)
        guess = view.roofline_us + 1.0
        single = np.bincount(cells.cell, minlength=cells.cells).max() == 1
        for _ in range(1 if single else _ROUNDS):
            share = guess / _table.summed(cells, guess)[cells.cell]
            target = np.log(share * truth[cells.cell])
            self._forests = {kind: self._forest(cells, target, kind) for kind in cells.met_ops()}
            guess = self._kernels(cells)

    def _forest(self, cells: Geometry, target: _table.Array, kind: str) -> Any:
        try:
            from sklearn.ensemble import RandomForestRegressor
        except ImportError:
            raise MissingExtra("scikit-learn", "train", "the baseline kernel_forest") from None
        mine = cells.codes([kind]) == 0
        forest = RandomForestRegressor(
            60, min_samples_leaf=2, max_features=0.6, random_state=self.seed, n_jobs=1
        )
        return forest.fit(_columns(cells)[mine], target[mine])

    def _kernels(self, cells: Geometry) -> _table.Array:
        result = np.full(len(cells.values), np.nan)
        for kind in cells.met_ops():
            forest = self._forests.get(kind)
            if forest is not None:
                mine = cells.codes([kind]) == 0
                result[mine] = np.exp(forest.predict(_columns(cells)[mine]))
        return result

    def predict(self, texts: Sequence[str]) -> _table.Array:
        cells, _ = _table.read(texts, self.device, self.precision)
        return _table.summed(cells, self._kernels(cells))


def _columns(cells: Geometry) -> _table.Array:
    return cells.values[:, [COLUMN[name] for name in _PLAIN]]
