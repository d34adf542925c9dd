"""The trees of a cell model and of a family, grown by XGBoost."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.gaussian_process import Array, Floats
from hybridlat.model.xgboost_runtime import Booster

MANY_ROWS = 5000
"""From here on trees alone may be better than trees that see the Gaussian process."""


_COMMON: dict[str, object] = {
    "subsample": 0.7, "colsample_bynode": 0.3, "base_score": 0.0, "nthread": 1,
    "tree_method": "hist",
}  # fmt: skip


def served(made: Any) -> Booster:
    """XGBoost's trees as predictions evaluate them."""
    return Booster(bytes(made.save_raw("ubj")), made.num_features())


def _boosted(
    rows: Floats, values: Array, weights: Array, seed: int, trees: int, **parameters: object
) -> Any:
    import xgboost

    data = xgboost.DMatrix(rows, values, weight=weights)
    return xgboost.train({**_COMMON, "seed": seed, **parameters}, data, trees)


def fit_boosted(rows: Floats, values: Array, weights: Array, seed: int) -> Any:
    """Gradient boosting (XGBoost); the shape of the trees follows the number of rows."""
    few, many = len(rows) < 800, len(rows) >= 20_000
    return _boosted(
        rows,
        values,
        weights,
        seed,
        200,
        max_depth=4 if few else 6 if len(rows) < 2000 else 0 if many else 8,
        max_leaves=330 if many else 192,
        eta=0.12 if many else 0.065,
        min_child_weight=2,
        grow_policy="lossguide",
        **{"lambda": 1.0},
    )


def fit_rough(rows: Floats, values: Array, weights: Array, seed: int) -> Any:
    """A few shallow trees: enough to say how a cell's latency falls to its kernels."""
    return _boosted(rows, values, weights, seed, 100, max_depth=4, eta=0.1)


def fit_sums(
    rows: Floats, base: Array, owner: NDArray[np.intp], beside: NDArray[Any], logs: Array, seed: int
) -> Any:
    """Boosted on sums: rows are parts, their logarithms to ``base`` what the trees answer.

    ``owner`` is the sum of each part, ``beside`` what a sum holds besides them, ``logs`` the
    logarithms that the sums come to. The gradient of half a squared error in logarithms is the
    part's share of the sum times the error; the curvature is taken as the share.
    """
    import xgboost

    each = len(rows) / len(logs)  # shares of about 1, for the trees' penalties

    def slopes(margins: Array, _: object) -> tuple[Array, Array]:
        parts = base * np.exp(margins)
        sums = np.bincount(owner, parts, len(logs)) + beside
        share = each * parts / sums[owner]
        return share * (np.log(sums) - logs)[owner], share

    shape = {**_COMMON, "seed": seed, "max_depth": 4, "eta": 0.1}
    return xgboost.train(shape, xgboost.DMatrix(rows), 200, obj=slopes)


def fit_error_scale(rows: Floats, absolute: Array, weights: Array, seed: int) -> Any:
    """Small boosted trees on the size of out-of-fold errors: where the model tends to miss."""
    depth = 4 if len(rows) > 2000 else 3
    return _boosted(
        rows,
        np.log(absolute + 0.01),
        weights,
        seed,
        80,
        max_depth=depth,
        eta=0.06,
        min_child_weight=10,
    )


def scaled(made: Any, share: float) -> Booster:
    """XGBoost's trees with every leaf times ``share``, as predictions evaluate them."""
    import xgboost

    body = json.loads(bytes(made.save_raw("json")))
    for tree in body["learner"]["gradient_booster"]["model"]["trees"]:
        values, leaf = np.array(tree["split_conditions"]), np.array(tree["left_children"]) < 0
        tree["split_conditions"] = np.where(leaf, values * share, values).tolist()
    result = xgboost.Booster()
    result.load_model(bytearray(json.dumps(body).encode()))
    return served(result)
