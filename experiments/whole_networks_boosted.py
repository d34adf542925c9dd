"""Boosted trees that learn kernels from sums: what the Gaussian process is compared with.

The loss is half the squared log-error of each network's sum. Its gradient with respect to a
kernel's log-ratio is the network's error times the kernel's share of the time, its Hessian (Gauss-
Newton, one row at a time) the share; the sum over the rows of a network is then a full step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.dataset import SumData
from hybridlat.model.family.posterior import LOWEST

Array = NDArray[np.float64]

_HIGHEST = 5.0


@dataclass(frozen=True, slots=True)
class BoostingConfig:
    """Size of the trees. The defaults were set on no table of whole networks."""

    rounds: int = 250
    depth: int = 4
    rate: float = 0.08
    column_share: float = 0.5
    ridge: float = 1.0
    least_child: float = 0.5


@dataclass(frozen=True)
class _Rows:
    features: NDArray[np.float32]
    owner: NDArray[np.intp]
    log_base: Array
    counts: Array


def _rows(data: SumData) -> _Rows:
    """One row for each kernel of each observation; the task enters as its number in each part."""
    parts = []
    codes = _task_codes(data)
    for i in range(len(data)):
        kernels = data.sets[data.of_set[i]]
        task = np.tile(codes[data.task[i]], (len(kernels.classes), 1))
        one_hot = kernels.classes[:, None].astype(np.float64)
        parts.append(np.hstack([kernels.descriptors, one_hot, task]).astype(np.float32))
    sizes = [len(part) for part in parts]
    return _Rows(
        np.vstack(parts),
        np.repeat(np.arange(len(data)), sizes),
        np.log(np.concatenate(data.base_us)),
        np.concatenate([data.sets[s].counts for s in data.of_set]),
    )


def _task_codes(data: SumData) -> Array:
    columns = []
    for name in ("device", "engine", "precision", "layout"):
        values = sorted({getattr(task, name) for task in data.tasks})
        columns.append([values.index(getattr(task, name)) for task in data.tasks])
    return np.array(columns, np.float64).T


def fit_predict(data: SumData, config: BoostingConfig | None = None, seed: int = 0) -> Array:
    """Latencies in us of all observations, learned from those with a weight above zero."""
    import xgboost

    config = config or BoostingConfig()
    rows = _rows(data)
    weights = data.weights[rows.owner]
    learned = weights > 0

    def latencies(margin: Array, owner: NDArray[np.intp], log_base: Array, counts: Array) -> Any:
        each = counts * np.exp(log_base + np.clip(margin, LOWEST, _HIGHEST))
        total = np.bincount(owner, each, len(data))
        return each, total

    def objective(margin: Array, _matrix: Any) -> tuple[Array, Array]:
        owner = rows.owner[learned]
        each, total = latencies(margin, owner, rows.log_base[learned], rows.counts[learned])
        share = each / total[owner]
        error = (np.log(np.maximum(total, 1e-9)) - data.log_us)[owner]
        error = np.clip(error, -0.5, 0.5)  # Huber: a wrong row pulls no harder than this
        weight = weights[learned]
        return weight * share * error, np.maximum(weight * share, 1e-6)

    table = xgboost.DMatrix(rows.features[learned])
    table.set_base_margin(np.zeros(int(learned.sum())))
    booster = xgboost.train(
        {
            "max_depth": config.depth, "eta": config.rate, "colsample_bytree": config.column_share,
            "lambda": config.ridge, "min_child_weight": config.least_child, "tree_method": "hist",
            "seed": seed, "nthread": 1, "base_score": 0.0, "disable_default_eval_metric": 1,
        },
        table, config.rounds, obj=objective,
    )  # fmt: skip
    every = xgboost.DMatrix(rows.features)
    every.set_base_margin(np.zeros(len(rows.owner)))
    margin = booster.predict(every, output_margin=True)
    _, total = latencies(margin, rows.owner, rows.log_base, rows.counts)
    return np.asarray(total)
