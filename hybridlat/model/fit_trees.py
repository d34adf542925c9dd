"""Fit the trees of a model, and write boosted trees and a forest as one file of trees."""

from __future__ import annotations

import importlib.util
import json
import math
from typing import Any

import numpy as np

from hybridlat.errors import MissingExtra
from hybridlat.model.gaussian_process import Array, Floats

MANY_ROWS = 5000
"""From here on trees alone may be better, and forests have use for more leaves."""


def check_installed() -> None:
    """MissingExtra where the packages that fit a model are missing: checked before long work."""
    if importlib.util.find_spec("sklearn") is None:
        raise MissingExtra("scikit-learn", "train", "training a model")


def fit_boosted(rows: Floats, values: Array, weights: Array, seed: int) -> Any:
    """Gradient boosting (XGBoost); the shape of the trees follows the number of rows."""
    import xgboost

    few, many = len(rows) < 800, len(rows) >= 20_000
    parameters = {
        "max_depth": 4 if few else 6 if len(rows) < 2000 else 0 if many else 8,
        "max_leaves": 330 if many else 192, "eta": 0.12 if many else 0.065,
        "subsample": 0.7, "colsample_bynode": 0.3, "min_child_weight": 2, "lambda": 1.0,
        "base_score": 0.0, "nthread": 1, "seed": seed, "tree_method": "hist",
        "grow_policy": "lossguide",
    }  # fmt: skip
    return xgboost.train(parameters, xgboost.DMatrix(rows, values, weight=weights), 200)


def fit_rough(rows: Floats, values: Array, weights: Array, seed: int) -> Any:
    """A few shallow trees: enough to say how a cell's latency falls to its kernels."""
    import xgboost

    parameters = {
        "max_depth": 4, "eta": 0.1, "subsample": 0.7, "colsample_bynode": 0.3, "base_score": 0.0,
        "nthread": 1, "seed": seed, "tree_method": "hist",
    }  # fmt: skip
    return xgboost.train(parameters, xgboost.DMatrix(rows, values, weight=weights), 100)


def fit_error_scale(rows: Floats, absolute: Array, weights: Array, seed: int) -> Any:
    """Small boosted trees on the size of out-of-fold errors: where the model tends to miss."""
    import xgboost

    parameters = {
        "max_depth": 4 if len(rows) > 2000 else 3, "eta": 0.06, "subsample": 0.7,
        "colsample_bynode": 0.3, "min_child_weight": 10, "base_score": 0.0, "nthread": 1,
        "seed": seed, "tree_method": "hist",
    }  # fmt: skip
    return xgboost.train(
        parameters, xgboost.DMatrix(rows, np.log(absolute + 0.01), weight=weights), 80
    )


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
            leaf = [left < 0 for left in tree["left_children"]]
            tree["split_conditions"] = [
                value * shares[0] if end else value
                for value, end in zip(tree["split_conditions"], leaf, strict=True)
            ]
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
    """A scikit-learn tree in the form of XGBoost's JSON.

    One asks x <= t in double, the other x < c in single precision: c is the next single after t.
    """
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


def best_shares(
    candidates: Array, truth: Array, smooth: bool = True, trust: Array | None = None
) -> tuple[float, float, float]:
    """Shares of the Gaussian process, boosted trees and forest: between equal and the best out of
    fold.

    The error is the relative one that is reported, with single misses held at a factor of e. On
    some hundred rows the best choice is mostly luck, and equal shares beat it (seen on V100 slices
    that no reported figure uses); on thousands it is not. Without a ``smooth`` part its share is 0.
    Rows of little ``trust`` (1 for exact ones) count little.
    """
    equal = (1 / 3, 1 / 3, 1 / 3) if smooth else (0.0, 0.5, 0.5)
    best, best_error = equal, math.inf
    grid = [i / 4 for i in range(5)]
    for first in grid if smooth else (0.0,):
        for second in grid:
            third = 1 - first - second
            if third < 0:
                continue
            mixed = candidates @ np.array([first, second, third])
            squares = np.expm1(np.clip(mixed - truth, -1, 1)) ** 2
            error = float(np.mean(squares if trust is None else trust * squares))
            if error < best_error:
                best, best_error = (first, second, third), error
    rows = len(truth) if trust is None else float(trust.sum())
    decided = rows / (rows + 600)
    a, b, c = (
        decided * share + (1 - decided) * even for share, even in zip(best, equal, strict=True)
    )  # fmt: skip
    return a, b, c
