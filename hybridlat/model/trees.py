"""The trees of a cell model: grown by XGBoost and scikit-learn, written as one file of trees."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.gaussian_process import Array, Floats
from hybridlat.model.xgboost_runtime import Booster

MANY_ROWS = 5000
"""From here on trees alone may be better, and forests have use for more leaves."""


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
        rows, values, weights, seed, 200,
        max_depth=4 if few else 6 if len(rows) < 2000 else 0 if many else 8,
        max_leaves=330 if many else 192, eta=0.12 if many else 0.065, min_child_weight=2,
        grow_policy="lossguide", **{"lambda": 1.0},
    )  # fmt: skip


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

    def slopes(said: Array, _: object) -> tuple[Array, Array]:
        parts = base * np.exp(said)
        sums = np.bincount(owner, parts, len(logs)) + beside
        share = each * parts / sums[owner]
        return share * (np.log(sums) - logs)[owner], share

    shape = {**_COMMON, "seed": seed, "max_depth": 4, "eta": 0.1}
    return xgboost.train(shape, xgboost.DMatrix(rows), 200, obj=slopes)


def fit_error_scale(rows: Floats, absolute: Array, weights: Array, seed: int) -> Any:
    """Small boosted trees on the size of out-of-fold errors: where the model tends to miss."""
    depth = 4 if len(rows) > 2000 else 3
    return _boosted(
        rows, np.log(absolute + 0.01), weights, seed, 80,
        max_depth=depth, eta=0.06, min_child_weight=10,
    )  # fmt: skip


def fit_forest(rows: Floats, values: Array, weights: Array, seed: int) -> Any:
    """Extremely randomised trees: jumps of kernel choice averaged instead of chased."""
    from sklearn.ensemble import ExtraTreesRegressor

    trees, leaves = (24, 2000) if len(rows) >= MANY_ROWS else (32, 700)
    forest = ExtraTreesRegressor(
        trees, max_features=0.5, max_leaf_nodes=leaves, random_state=seed, n_jobs=1
    )
    return forest.fit(rows, values, sample_weight=weights)


def weighted_ensemble(boosted: Any, forest: Any, shares: tuple[float, float]) -> bytes:
    """One file of trees (UBJ) that answers the weighted sum of boosted trees and forest."""
    import xgboost

    body = json.loads(bytes(boosted.save_raw("json")))
    model = body["learner"]["gradient_booster"]["model"]
    trees: list[dict[str, Any]] = []
    if shares[0] > 0:
        for tree in model["trees"]:
            values, leaf = np.array(tree["split_conditions"]), np.array(tree["left_children"]) < 0
            tree["split_conditions"] = np.where(leaf, values * shares[0], values).tolist()
            trees.append(tree)
    if shares[1] > 0 and forest is not None:
        features = str(body["learner"]["learner_model_param"]["num_feature"])
        scale = shares[1] / len(forest.estimators_)
        trees += [_tree(e.tree_, scale, features) for e in forest.estimators_]
    for index, tree in enumerate(trees):
        tree["id"] = index
    model["trees"] = trees
    model["tree_info"] = [0] * len(trees)
    model["iteration_indptr"] = list(range(len(trees) + 1))
    model["gbtree_model_param"]["num_trees"] = str(len(trees))
    result = xgboost.Booster()
    result.load_model(bytearray(json.dumps(body).encode()))
    return bytes(result.save_raw("ubj"))


def _tree(tree: Any, scale: float, features: str) -> dict[str, Any]:
    """A scikit-learn tree (x <= t in double) as XGBoost's JSON (x < c in single: the next one)."""
    left = tree.children_left
    leaf = left < 0
    threshold = tree.threshold.astype(np.float32)
    above = np.where(
        threshold.astype(float) <= tree.threshold,
        np.nextafter(threshold, np.float32(np.inf)), threshold,
    )  # fmt: skip
    value = tree.value[:, 0, 0] * scale
    parents = np.full(len(left), 2147483647)
    inner = np.flatnonzero(~leaf)
    parents[left[inner]] = inner
    parents[tree.children_right[inner]] = inner
    zeros = [0] * len(left)
    return {
        "base_weights": [0.0] * len(left), "categories": [], "categories_nodes": [],
        "categories_segments": [], "categories_sizes": [], "default_left": zeros,
        "left_children": left.tolist(), "right_children": tree.children_right.tolist(),
        "loss_changes": [0.0] * len(left), "parents": parents.tolist(), "split_type": zeros,
        "split_conditions": np.where(leaf, value, above).astype(float).tolist(),
        "split_indices": np.where(leaf, 0, tree.feature).tolist(),
        "sum_hessian": [1.0] * len(left),
        "tree_param": {
            "num_deleted": "0", "num_feature": features, "num_nodes": str(len(left)),
            "size_leaf_vector": "1",
        },
    }  # fmt: skip
