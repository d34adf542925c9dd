"""Fit a CellModel to measured cells: the training half of model.py, never loaded to predict."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import InputError
from hybridlat.model import features
from hybridlat.model import fit_parts as parts
from hybridlat.model.cell_model import CellModel, cell_sums, lean_factor
from hybridlat.model.geometry import Geometry, geometry, problem_of
from hybridlat.model.parts import Array, Floats, KnownGround, Surface, feature_names
from hybridlat.model.xgboost_runtime import Booster
from hybridlat.schema.device import Device

LEAST_ROWS = 20
MODEL_SHARE = 0.1
"""What a model gets wrong of a cell by itself: noise well below it does not matter."""
_FOLDS = 5
_POINTS = 448  # inducing points of the surface: its cost in the served model
_FOREST_LIMIT = 24_000  # rows; boosting is as good beyond, and its file smaller


def fit_model(
    texts: Sequence[str],
    latencies_us: Sequence[float] | NDArray[np.float64],
    groups: Sequence[str],
    device: Device,
    seed: int = 0,
    *,
    precision: str = "fp32",
    priors: Sequence[CellModel] = (),
    confidence: float = 0.9,
    noise_shares: Sequence[float] | NDArray[np.float64] | None = None,
) -> CellModel:
    """A model of one target from measured cells; the same input gives the same model.

    ``texts`` are signature texts, ``latencies_us`` their measured latencies, ``groups`` the network
    each was met in (any constant or unique name where there is none): folds of the inner
    cross-validation never share a group. ``priors`` are models of other targets: the one that
    explains these rows best is taken as a start, if it helps.
    ``noise_shares`` are the relative standard errors of the latencies: rows measured once weigh
    less than rows measured often, as far as noise is more than what the model itself gets wrong.
    Where groups hold several rows, cells are to add up to networks, and the relative error of sums
    is to be small; else that of single cells.
    Raises InputError when fewer than 20 usable rows are given.
    """
    truth = np.asarray(latencies_us, float)
    sound = np.flatnonzero(np.isfinite(truth) & (truth > 0)).tolist()
    usable = [i for i in sound if not problem_of(texts[i])]
    if len(usable) < LEAST_ROWS:
        raise InputError(
            f"{len(usable)} usable rows are too few to fit a model: give at least {LEAST_ROWS}"
        )
    cells = geometry([texts[i] for i in usable])
    truth = truth[usable]
    folds = make_folds([groups[i] for i in usable], seed)
    problem = _Problem.make(cells, truth, folds, device, precision, seed)
    if noise_shares is not None:
        problem.trust = trust_of(np.asarray(noise_shares, float)[usable])
    blank = problem.blank_model(confidence)
    prior, line = choose_prior(cells, truth, problem.base, priors)
    fitted = _Fit.run(problem, replace(blank, prior=prior, prior_line=line))
    names = [groups[i] for i in usable]
    several = 1 < len(set(names)) < len(names)
    return fitted.model(records_hash(texts, latencies_us), lean=not several)


def trust_of(noise_shares: Array) -> Array:
    """Weight of rows by their noise, 1 for an exact one: what is left of what a model misses."""
    noise = np.maximum(np.nan_to_num(noise_shares, nan=math.inf, posinf=math.inf), 0.0)
    return np.asarray(MODEL_SHARE**2 / (MODEL_SHARE**2 + noise**2))


def records_hash(texts: Sequence[str], latencies_us: Sequence[float] | Array) -> str:
    """Names the training set: the same rows in any order give the same hash."""
    rows = sorted(f"{text}{us!r}" for text, us in zip(texts, map(float, latencies_us), strict=True))
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:32]


def make_folds(groups: Sequence[str], seed: int) -> NDArray[np.intp]:
    """A fold for every row; rows of a group share one, unless there are fewer groups than folds."""
    names = sorted(set(groups))
    random = np.random.default_rng(seed)
    if len(names) < _FOLDS:
        return np.asarray(random.permutation(len(groups)) % _FOLDS)
    place = dict(zip(names, random.permutation(len(names)) % _FOLDS, strict=True))
    return np.array([place[name] for name in groups])


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
class _Problem:
    """Training rows by kernel: what is to be explained, and how rows belong together."""

    cells: Geometry
    truth: Array
    cell_folds: NDArray[np.intp]
    view: features.View
    base: Array
    floor_us: float
    ops: tuple[str, ...]
    codes: NDArray[np.intp]
    seed: int
    trust: Array | None = None

    @classmethod
    def make(
        cls, cells: Geometry, truth: Array, folds: NDArray[np.intp], device: Device,
        precision: str, seed: int,
    ) -> _Problem:  # fmt: skip
        view = features.View(cells, device, precision)
        kernels = np.bincount(cells.cell, minlength=cells.cells)
        # Half of what the fastest cells take is launch and latency that no roofline knows.
        floor = 0.5 * float(np.quantile(truth / np.maximum(kernels, 1), 0.01))
        ops = cells.met_ops()
        return cls(
            cells, truth, folds, view, view.roofline_us + floor, floor, ops,
            cells.codes(ops), seed,
        )  # fmt: skip

    def blank_model(self, confidence: float) -> CellModel:
        """A model without trees, to compute rows with."""
        empty = np.zeros(0, np.float32)
        surface = parts.no_surface()
        flat = empty.reshape(0, 0)
        ranges = np.zeros((0, 0))
        ground = KnownGround(ranges, ranges, flat, 1.0, np.zeros(0, np.int64), empty, 1.0)
        nothing: Booster = None  # type: ignore[assignment]
        return CellModel(
            self.view.device, self.view.precision, self.ops, self.floor_us, surface, 1.0,
            nothing, nothing, ground, 1.0, confidence,
        )  # fmt: skip

    def shared_out(self, kernel_us: Array) -> Array:
        """Each cell's measured latency, divided among its kernels in the ratio of ``kernel_us``."""
        total = np.bincount(self.cells.cell, kernel_us, self.cells.cells)
        return kernel_us * (self.truth / total)[self.cells.cell]


def _divided(problem: _Problem, rows: Floats, prior: Array, weights: Array) -> Array:
    """Latency of every kernel, where only the sums of some cells are known.

    Who takes how much of a cell is learned in rounds: rough trees learn from the division so far
    and divide again, each fold by trees that have not seen it. The first round learns from kernels
    that were measured alone, if there are enough.
    """
    cells = problem.cells
    alone = np.bincount(cells.cell, minlength=cells.cells)[cells.cell] == 1
    fold = problem.cell_folds[cells.cell]
    kernel_us = problem.shared_out(problem.base * np.exp(prior))
    for turn in range(4):
        values = np.log(kernel_us / problem.base) - prior
        teachers = alone if turn == 0 and alone.sum() >= LEAST_ROWS else np.ones(len(rows), bool)
        guess = np.zeros(len(rows))
        for k in range(_FOLDS):
            inside = teachers & (fold != k)
            if inside.any():
                made = parts.fit_rough(rows[inside], values[inside], weights[inside], problem.seed)
                trees = Booster(bytes(made.save_raw("ubj")), rows.shape[1])
                guess[fold == k] = trees.predict(rows[fold == k])
        kernel_us = problem.shared_out(problem.base * np.exp(prior + guess))
    return kernel_us


@dataclass
class _Fit:
    """One fit: rows, targets, out-of-fold answers of the three candidates, and their mix."""

    problem: _Problem
    start: CellModel
    rows: Floats
    prior: Array
    values: Array
    weights: Array
    tuned: dict[str, Any]

    @classmethod
    def run(cls, problem: _Problem, start: CellModel) -> _Fit:
        cells = problem.cells
        rows, prior = start.rows(cells, problem.codes, problem.view, problem.base)
        kernels = np.bincount(cells.cell, minlength=cells.cells)
        weights = 1.0 / kernels[cells.cell]
        if problem.trust is not None:
            weights *= problem.trust[cells.cell]
        kernel_us = problem.shared_out(problem.base * np.exp(prior))
        columns = [
            i for i, name in enumerate(feature_names(problem.ops))
            if name in parts.SMOOTH or name.startswith("op=")
        ]  # fmt: skip
        if kernels.max() > 1:
            weights *= np.where(kernels[cells.cell] > 1, 0.5, 1.0)
            kernel_us = _divided(problem, rows, prior, weights)
        values = np.log(kernel_us / problem.base) - prior
        tuned = parts.tune_surface(rows, values, columns, problem.seed)
        return cls(problem, start, rows, prior, values, weights, tuned)

    def model(self, records: str, lean: bool) -> CellModel:
        """Fit the parts, out of fold for their mix and the intervals, then on all rows."""
        p, n = self.problem, len(self.rows)
        fold = p.cell_folds[p.cells.cell]
        smooth = np.zeros(n)
        smooths = self._surface_helps(fold)
        if smooths:
            for k in range(_FOLDS):
                inside, outside = fold != k, fold == k
                smooth[outside] = self._surface(inside).predict(self.rows[outside])
        rows = self.rows.copy()
        rows[:, -1] = smooth
        candidates = np.stack([smooth, np.zeros(n), np.zeros(n)], axis=1)
        for k in range(_FOLDS):
            inside, outside = fold != k, fold == k
            boosted, forest = self._trees(rows, inside)
            candidates[outside, 1] = self._served(boosted).predict(rows[outside])
            candidates[outside, 2] = (
                candidates[outside, 1] if forest is None else forest.predict(rows[outside])
            )
        shares = parts.best_shares(candidates, self.values, surface=smooths)
        boosted, forest = self._trees(rows, np.ones(n, bool))
        if forest is None:
            shares = (shares[0], shares[1] + shares[2], 0.0)
        missed = candidates @ np.array(shares) - self.values
        kernel_us = p.base * np.exp(self.prior + self.values + missed)
        error = np.abs(np.log(np.bincount(p.cells.cell, kernel_us, p.cells.cells) / p.truth))
        spread, quantile, expected = self._intervals(rows, kernel_us, error, fold)
        cell_us = np.bincount(p.cells.cell, kernel_us, p.cells.cells)
        leaning = best_lean(cell_us, expected, p.truth) if lean else 0.0
        trees = Booster(parts.merged(boosted, forest, shares[1:]), rows.shape[1])
        card: dict[str, object] = {
            "records_hash": records,
            "rows": p.cells.cells,
            "operators": list(p.ops),
            "shares": dict(zip(("surface", "boosted", "forest"), shares, strict=True)),
            "confidence": self.start.confidence,
            "out_of_fold": _metrics(cell_us * lean_factor(leaning, expected), p.truth),
        }
        return replace(
            self.start,
            surface=self._surface(np.ones(n, bool)) if smooths else parts.no_surface(),
            mix=shares[0], trees=trees, spread=spread,
            ground=parts.known_ground(p.cells, p.codes, len(p.ops), p.seed),
            quantile=quantile, lean=leaning, card=card,
        )  # fmt: skip

    def _surface_helps(self, fold: NDArray[np.intp]) -> bool:
        """Whether trees that are told the surface's answer do better on a fold than trees alone.

        It does where rows are few; where they are many and of many operators it can lead astray.
        """
        if len(self.rows) < parts.MANY_ROWS:
            return True
        outside, inside = fold == 0, fold != 0
        smooth = np.zeros(len(self.rows))
        inner = fold == 1
        smooth[inside & inner] = self._surface(inside & ~inner).predict(self.rows[inside & inner])
        smooth[inside & ~inner] = self._surface(inner).predict(self.rows[inside & ~inner])
        smooth[outside] = self._surface(inside).predict(self.rows[outside])
        errors = []
        for told in (smooth, np.zeros(len(self.rows))):
            rows = self.rows.copy()
            rows[:, -1] = told
            made = self._served(self._boosted(rows, inside)).predict(rows[outside])
            errors.append(float(np.mean(np.abs(made - self.values[outside]))))
        return errors[0] < errors[1]

    def _surface(self, taken: NDArray[np.bool_]) -> Surface:
        return parts.fit_surface(
            self.rows[taken], self.values[taken], self.weights[taken], self.tuned, _POINTS,
            self.problem.seed,
        )  # fmt: skip

    def _trees(self, rows: Floats, taken: NDArray[np.bool_]) -> tuple[Any, Any]:
        data = (rows[taken], self.values[taken], self.weights[taken], self.problem.seed)
        forest = parts.fit_forest(*data) if len(rows) <= _FOREST_LIMIT else None
        return self._boosted(rows, taken), forest

    def _boosted(self, rows: Floats, taken: NDArray[np.bool_]) -> Any:
        return parts.fit_boosted(
            rows[taken], self.values[taken], self.weights[taken], self.problem.seed
        )

    def _served(self, boosted: Any) -> Booster:
        raw: bytes = bytes(boosted.save_raw("ubj"))
        return Booster(raw, self.rows.shape[1])

    def _intervals(
        self, rows: Floats, kernel_us: Array, error: Array, fold: NDArray[np.intp]
    ) -> tuple[Booster, float, Array]:
        """The ensemble of expected errors, and the factor that makes intervals of it hold.

        Split conformal, normalised: the score of a cell is its out-of-fold error over the error
        expected of it by trees that have not seen its fold either.
        """
        p = self.problem
        per_kernel = error[p.cells.cell]
        expected = np.zeros(len(rows))
        for k in range(_FOLDS):
            inside, outside = fold != k, fold == k
            made = parts.fit_spread(rows[inside], per_kernel[inside], self.weights[inside], p.seed)
            expected[outside] = self._served(made).predict(rows[outside])
        expected = np.maximum(np.exp(expected) - 0.01, 0.002)
        of_cells = cell_sums(p.cells, kernel_us, expected)[1]
        scores = np.sort(error / of_cells)
        rank = math.ceil((len(scores) + 1) * self.start.confidence) - 1
        quantile = float(scores[min(rank, len(scores) - 1)])
        made = parts.fit_spread(rows, per_kernel, self.weights, p.seed)
        return self._served(made), quantile, of_cells


def best_lean(predicted: NDArray[Any], spread: Array, truth: Array) -> float:
    """The lean with the least relative error out of fold, single misses held at a factor of e."""
    middle = np.log(predicted / truth)

    def error(lean: float) -> float:
        log_error = middle + np.log(lean_factor(lean, spread))
        return float(np.mean(np.expm1(np.clip(log_error, -1, 1)) ** 2))

    return min((0.0, 0.5, 1.0, 1.5), key=error)


def _metrics(predicted: NDArray[Any], truth: Array) -> dict[str, float]:
    relative = (predicted - truth) / truth
    return {
        "rmspe": round(100 * float(np.sqrt(np.mean(relative**2))), 3),
        "mape": round(100 * float(np.mean(np.abs(relative))), 3),
    }
