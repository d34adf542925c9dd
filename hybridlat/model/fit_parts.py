"""Pieces of a fit: the smooth surface, the trees, known ground. Training packages load inside."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.geometry import COLUMN, Geometry
from hybridlat.model.length_scales import tune
from hybridlat.model.parts import (
    RANGED,
    Array,
    Floats,
    KnownGround,
    Surface,
    combinations_of,
    matern,
    places,
)

SMOOTH: tuple[str, ...] = (
    "log2_c_in", "log2_c_out", "log2_h_in", "k_h", "stride", "log2_m", "log2_k", "log2_weight_size",
    "log2_activation_size", "log2_best_wave_time", "log2_wave_time_128x128",
    "log2_wave_time_64x64", "log2_compute_to_memory", "log2_roofline", "log2_batch", "log2_groups",
    "kind", "depthwise", "has_add", "activation", "align_c_in", "log2_size_to_last_cache", "prior",
    "context", "log2_run", "log2_length",
)  # fmt: skip
"""Features that the surface is smooth in; constant ones drop out of each fit."""
MANY_ROWS = 5000
"""From here on trees alone may be better, and forests have use for more leaves."""
_LEAST_NOISE = 0.03  # of the variance: less lets single kernel choices bend the surface
_TUNING_ROWS = 320
_LANDMARKS = 640


def choose(count: int, wanted: int, seed: int) -> NDArray[np.intp]:
    """``wanted`` of ``count`` positions at random (all if there are fewer), in order."""
    picked = np.random.default_rng(seed).permutation(count)[:wanted]
    return np.sort(picked)


def tune_surface(rows: Floats, values: Array, columns: Sequence[int], seed: int) -> dict[str, Any]:
    """Length scales and noise of the process by marginal likelihood on some of the rows."""
    taken = choose(len(rows), _TUNING_ROWS, seed)
    part = rows[taken][:, list(columns)].astype(float)
    varying = part.std(axis=0) > 1e-6
    kept = np.asarray(columns, np.intp)[varying]
    if len(kept) == 0:
        return {"columns": kept, "noise": 1.0, "shift": np.zeros(0), "scale": np.ones(0)}
    part = part[:, varying]
    shift, spread = part.mean(axis=0), part.std(axis=0)
    scales, noise = tune((part - shift) / spread, values[taken], (_LEAST_NOISE, 1.0))
    return {
        "columns": kept,
        "shift": shift,
        "scale": spread * scales,
        "noise": noise,
    }


def fit_surface(
    rows: Floats, values: Array, weights: Array, tuned: dict[str, Any], points: int, seed: int
) -> Surface:
    """Mean of the process on ``points`` inducing rows (subset of regressors).

    Rows of small weight count as noisier. Solved in double precision, served in single.
    """
    level = float(np.average(values, weights=weights))
    empty = np.zeros((0, len(tuned["columns"])), np.float32)
    surface = Surface(
        tuned["columns"], np.asarray(tuned["shift"], np.float32),
        np.asarray(tuned["scale"], np.float32), empty, np.zeros(0, np.float32), level,
    )  # fmt: skip
    if len(tuned["columns"]) == 0:
        return surface
    scaled = surface.scaled(rows)
    inducing = scaled[choose(len(rows), points, seed)]
    normal = tuned["noise"] * matern(inducing, inducing).astype(float)
    right = np.zeros(len(inducing))
    for start in range(0, len(scaled), 4096):
        part = slice(start, start + 4096)
        block = matern(scaled[part], inducing).astype(float)
        weighted = block * (weights[part] / weights.mean())[:, None]
        normal += weighted.T @ block
        right += weighted.T @ (values[part] - level)
    normal[np.diag_indices_from(normal)] += 1e-5 * np.trace(normal) / len(normal)
    solved = np.linalg.solve(normal, right)
    return Surface(
        surface.columns, surface.shift, surface.scale, inducing, solved.astype(np.float32), level
    )


def no_surface() -> Surface:
    """A surface that says nothing of any kernel."""
    none = np.zeros(0, np.float32)
    return Surface(np.zeros(0, np.intp), none, none, none.reshape(0, 0), none, 0.0)


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


def fit_spread(rows: Floats, absolute: Array, weights: Array, seed: int) -> Any:
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


def merged(boosted: Any, forest: Any, shares: tuple[float, float]) -> bytes:
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
    for place, tree in enumerate(trees):
        tree["id"] = place
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


def known_ground(geometry: Geometry, codes: NDArray[np.intp], ops: int, seed: int) -> KnownGround:
    """Ranges per operator, landmarks by farthest-point choice, combinations met, and the limits.

    The limits are what nearly all kernels would need if each were new: kernels of one random half
    are held against the ground of the other. A triple of sizes that those hardly ever miss is
    telling when it is missed: its weight is the negative logarithm of how often that happens.
    """
    values = geometry.values[:, [COLUMN[name] for name in RANGED]]
    low = np.full((ops, len(RANGED)), np.inf)
    high = np.full((ops, len(RANGED)), -np.inf)
    for code in range(ops):
        mine = values[codes == code]
        low[code], high[code] = mine.min(axis=0), mine.max(axis=0)
    points, triples = places(geometry, codes), combinations_of(geometry)
    ground = KnownGround(
        low, high, _spread_out(points, _LANDMARKS), 1.0, np.unique(triples),
        np.zeros(len(triples), np.float32), 1.0,
    )  # fmt: skip
    order = np.random.default_rng(seed).permutation(len(points))
    left, right = order[: len(order) // 2], order[len(order) // 2 :]
    half = replace(
        ground, landmarks=_spread_out(points[left], _LANDMARKS), met=np.unique(triples[:, left])
    )
    new = geometry.one_by_one(right)
    reach = max(float(np.quantile(half.strangeness(new, codes[right])[1], 0.98)), 0.5)
    rarely = (half.unmet(new).sum(axis=1) + 1) / (len(right) + 1)
    weights = -np.log(rarely).astype(np.float32)
    strange = replace(half, reach=reach, weights=weights).strangeness(new, codes[right])[0]
    limit = max(float(np.quantile(strange, 0.93)), 1.0)
    return replace(ground, reach=reach, weights=weights, limit=limit)


def _spread_out(points: Floats, count: int) -> Floats:
    """At most ``count`` of the points, each next one the farthest from those chosen before."""
    unique = np.unique(points, axis=0)
    if len(unique) <= count:
        return unique
    chosen = [int(np.square(unique - unique.mean(axis=0)).sum(axis=1).argmin())]
    distance = np.square(unique - unique[chosen[0]]).sum(axis=1)
    while len(chosen) < count and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.square(unique - unique[chosen[-1]]).sum(axis=1))
    return unique[chosen]


def best_shares(
    candidates: Array, truth: Array, surface: bool = True
) -> tuple[float, float, float]:
    """Shares of surface, boosted trees and forest: between equal and the best out of fold.

    The error is the relative one that is reported, with single misses held at a factor of e. On
    some hundred rows the best mix is mostly luck, and equal shares beat it (seen on V100 slices
    that no reported figure uses); on thousands it is not. Without a ``surface`` its share is 0.
    """
    equal = (1 / 3, 1 / 3, 1 / 3) if surface else (0.0, 0.5, 0.5)
    best, best_error = equal, math.inf
    grid = [i / 4 for i in range(5)]
    for first in grid if surface else (0.0,):
        for second in grid:
            third = 1 - first - second
            if third < 0:
                continue
            mixed = candidates @ np.array([first, second, third])
            error = float(np.mean(np.expm1(np.clip(mixed - truth, -1, 1)) ** 2))
            if error < best_error:
                best, best_error = (first, second, third), error
    trust = len(truth) / (len(truth) + 600)
    a, b, c = (
        trust * share + (1 - trust) * even for share, even in zip(best, equal, strict=True)
    )  # fmt: skip
    return a, b, c
