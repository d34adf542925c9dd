"""What a fit explains (kernels of the training cells, each one's share of its cell), and its trees.

Trees of XGBoost and of scikit-learn's forest are written as one file of trees.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import MissingExtra
from hybridlat.model.applicability_domain import ApplicabilityDomain
from hybridlat.model.cell_model import CellModel
from hybridlat.model.gaussian_process import Array, Floats, no_gp_mean
from hybridlat.model.geometry import Geometry, View
from hybridlat.model.xgboost_runtime import Booster
from hybridlat.schema.device import Device

LEAST_ROWS = 20
FOLDS = 5
MODEL_SHARE = 0.1
"""What a model gets wrong of a cell by itself: noise well below it does not matter."""
MANY_ROWS = 5000
"""From here on trees alone may be better, and forests have use for more leaves."""
_SOUND = 0.2  # trust of a measurement whose noise is twice what the model itself gets wrong


@dataclass(frozen=True)
class FitConfig:
    """Everything but the records that a fit depends on.

    ``priors`` are models of other targets: the one that explains the records best is taken as a
    start, if it helps.
    """

    device: Device
    precision: str = "fp32"
    seed: int = 0
    priors: tuple[CellModel, ...] = ()
    confidence: float = 0.9


def check_installed() -> None:
    """MissingExtra where the packages that fit a model are missing: checked before long work."""
    if importlib.util.find_spec("sklearn") is None:
        raise MissingExtra("scikit-learn", "train", "training a model")


def records_hash(texts: Sequence[str], latencies_us: Sequence[float] | Array) -> str:
    """Names the training set: the same rows in any order give the same hash."""
    rows = sorted(f"{text}{us!r}" for text, us in zip(texts, map(float, latencies_us), strict=True))
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:32]


def trust_of(noise_shares: Array) -> Array:
    """Weight of rows by their noise, 1 for an exact one: what is left of what a model misses."""
    noise = np.maximum(np.nan_to_num(noise_shares, nan=math.inf, posinf=math.inf), 0.0)
    return np.asarray(MODEL_SHARE**2 / (MODEL_SHARE**2 + noise**2))


def make_folds(groups: Sequence[str], seed: int) -> NDArray[np.intp]:
    """A fold for every row; rows of a group share one, unless there are fewer groups than folds."""
    names = sorted(set(groups))
    random = np.random.default_rng(seed)
    if len(names) < FOLDS:
        return np.asarray(random.permutation(len(groups)) % FOLDS)
    fold_of = dict(zip(names, random.permutation(len(names)) % FOLDS, strict=True))
    return np.array([fold_of[name] for name in groups])


def choose_prior(
    cells: Geometry, truth: Array, base: Array, priors: Sequence[CellModel]
) -> tuple[CellModel | None, tuple[float, float]]:
    """The prior whose log ratio explains these cells' best by a line, if it explains half."""
    best: tuple[float, CellModel | None, tuple[float, float]] = (0.5, None, (0.0, 0.0))
    total = np.bincount(cells.cell, base, cells.cells)
    values = np.log(truth / total)
    for prior in priors:
        ratio = np.log(prior.predict_geometry(cells).latency_us / total)
        good = np.isfinite(ratio)
        if good.mean() < 0.8 or np.std(ratio[good]) < 1e-6:
            continue
        slope, offset = np.polyfit(ratio[good], values[good], 1)
        left = np.var(values[good] - offset - slope * ratio[good]) / max(np.var(values), 1e-12)
        if left < best[0]:
            best = (float(left), prior, (float(offset), float(slope)))
    return best[1], best[2]


@dataclass
class TrainingProblem:
    """Training rows by kernel: what is to be explained, and how rows belong together."""

    cells: Geometry
    truth: Array
    cell_folds: NDArray[np.intp]
    view: View
    base: Array
    floor_us: float
    ops: tuple[str, ...]
    codes: NDArray[np.intp]
    seed: int
    trust: Array | None = None

    @classmethod
    def make(
        cls, cells: Geometry, truth: Array, folds: NDArray[np.intp], config: FitConfig
    ) -> TrainingProblem:
        view = View(cells, config.device, config.precision)
        kernels = np.bincount(cells.cell, minlength=cells.cells)
        # Half of what the fastest cells take is launch and latency that no roofline knows.
        floor = 0.5 * float(np.quantile(truth / np.maximum(kernels, 1), 0.01))
        ops = cells.met_ops()
        return cls(
            cells, truth, folds, view, view.roofline_us + floor, floor, ops,
            cells.codes(ops), config.seed,
        )  # fmt: skip

    def blank_model(self, confidence: float) -> CellModel:
        """A model without trees, to compute rows with."""
        none, ranges = np.zeros(0, np.float32), np.zeros((0, 0))
        domain = ApplicabilityDomain(
            ranges, ranges, none.reshape(0, 0), 1.0, np.zeros(0, np.int64), none, 1.0
        )
        nothing: Booster = None  # type: ignore[assignment]
        return CellModel(
            self.view.device, self.view.precision, self.ops, self.floor_us, no_gp_mean(), 1.0,
            nothing, nothing, domain, 1.0, confidence,
        )  # fmt: skip

    def trusted_rows(self) -> NDArray[np.bool_]:
        """Kernels whose measurement says more than its noise; all where too few do."""
        everything = np.ones(len(self.cells.cell), bool)
        if self.trust is None:
            return everything
        sound = self.trust[self.cells.cell] >= _SOUND
        return sound if sound.sum() >= LEAST_ROWS else everything

    def shared_out(self, kernel_us: Array) -> Array:
        """Each cell's measured latency, divided among its kernels in the ratio of ``kernel_us``."""
        total = np.bincount(self.cells.cell, kernel_us, self.cells.cells)
        return kernel_us * (self.truth / total)[self.cells.cell]

    def apportion(self, rows: Floats, prior: Array, weights: Array) -> Array:
        """Latency of every kernel, where only the sums of some cells are known.

        Who takes how much of a cell is learned in rounds: rough trees learn from the division so
        far and divide again, each fold by trees that have not seen it. The first round learns from
        kernels that were measured alone, if there are enough.
        """
        cells, base = self.cells, self.base
        alone = np.bincount(cells.cell, minlength=cells.cells)[cells.cell] == 1
        fold = self.cell_folds[cells.cell]
        kernel_us = self.shared_out(base * np.exp(prior))
        for turn in range(4):
            values = np.log(kernel_us / base) - prior
            first = turn == 0 and alone.sum() >= LEAST_ROWS
            teachers = alone if first else np.ones(len(rows), bool)
            guess = np.zeros(len(rows))
            for k in range(FOLDS):
                inside = teachers & (fold != k)
                if inside.any():
                    made = fit_rough(rows[inside], values[inside], weights[inside], self.seed)
                    guess[fold == k] = served(made).predict(rows[fold == k])
            kernel_us = self.shared_out(base * np.exp(prior + guess))
        return kernel_us


def served(made: Any) -> Booster:
    """XGBoost's trees as predictions evaluate them."""
    return Booster(bytes(made.save_raw("ubj")), made.num_features())


def _boosted(
    rows: Floats, values: Array, weights: Array, seed: int, trees: int, **parameters: object
) -> Any:
    import xgboost

    common = {
        "subsample": 0.7, "colsample_bynode": 0.3, "base_score": 0.0, "nthread": 1, "seed": seed,
        "tree_method": "hist",
    }  # fmt: skip
    data = xgboost.DMatrix(rows, values, weight=weights)
    return xgboost.train({**common, **parameters}, data, trees)


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
