"""Fit a CellModel to measured cells: the training half of :mod:`.cell_model`, never loaded to
predict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import InputError
from hybridlat.model.applicability_domain import fit_domain
from hybridlat.model.cell_model import CellModel, cell_sums, log_bias_factor
from hybridlat.model.features import feature_names
from hybridlat.model.gaussian_process import (
    SMOOTH,
    Array,
    Floats,
    GaussianProcessMean,
    fit_gp_mean,
    no_gp_mean,
    tune_gaussian_process,
)
from hybridlat.model.geometry import geometry, problem_of
from hybridlat.model.training_problem import (
    FOLDS,
    LEAST_ROWS,
    MANY_ROWS,
    FitConfig,
    TrainingProblem,
    check_installed,
    choose_prior,
    fit_boosted,
    fit_error_scale,
    fit_forest,
    make_folds,
    records_hash,
    served,
    trust_of,
    weighted_ensemble,
)
from hybridlat.model.xgboost_runtime import Booster

_POINTS = 448  # inducing points of the Gaussian process: its cost in the served model
_FOREST_LIMIT = 24_000  # rows; boosting is as good beyond, and its file smaller


def fit_model(
    texts: Sequence[str],
    latencies_us: Sequence[float] | NDArray[np.float64],
    groups: Sequence[str],
    config: FitConfig,
    noise_shares: Sequence[float] | NDArray[np.float64] | None = None,
) -> CellModel:
    """A model of one target from measured cells; the same input gives the same model.

    ``texts`` are signature texts, ``latencies_us`` their measured latencies, ``groups`` the network
    each was met in (any constant or unique name where there is none): folds of the inner
    cross-validation never share a group. Where groups hold several rows, cells are to add up to
    networks, and the relative error of sums is to be small; else that of single cells.
    ``noise_shares`` are the relative standard errors of the latencies: rows measured once weigh
    less than rows measured often, as far as noise is more than what the model itself gets wrong.
    Raises InputError when fewer than 20 usable rows are given, MissingExtra without scikit-learn.
    """
    check_installed()
    truth = np.asarray(latencies_us, float)
    sound = np.flatnonzero(np.isfinite(truth) & (truth > 0)).tolist()
    usable = [i for i in sound if not problem_of(texts[i])]
    if len(usable) < LEAST_ROWS:
        raise InputError(
            f"{len(usable)} usable rows are too few to fit a model: give at least {LEAST_ROWS}"
        )
    cells = geometry([texts[i] for i in usable])
    truth = truth[usable]
    folds = make_folds([groups[i] for i in usable], config.seed)
    problem = TrainingProblem.make(cells, truth, folds, config)
    if noise_shares is not None:
        problem.trust = trust_of(np.asarray(noise_shares, float)[usable])
    blank = problem.blank_model(config.confidence)
    prior, line = choose_prior(cells, truth, problem.base, config.priors)
    fitted = _Fit.run(problem, replace(blank, prior=prior, prior_line=line))
    names = [groups[i] for i in usable]
    several = 1 < len(set(names)) < len(names)
    return fitted.model(records_hash(texts, latencies_us), for_cells=not several)


@dataclass
class _Fit:
    """One fit: rows, targets, and what the Gaussian process was tuned to."""

    problem: TrainingProblem
    start: CellModel
    rows: Floats
    prior: Array
    values: Array
    weights: Array
    tuned: dict[str, Any]

    @classmethod
    def run(cls, problem: TrainingProblem, start: CellModel) -> _Fit:
        cells = problem.cells
        rows, prior = start.rows(cells, problem.codes, problem.view, problem.base)
        kernels = np.bincount(cells.cell, minlength=cells.cells)
        weights = 1.0 / kernels[cells.cell]
        if problem.trust is not None:
            weights *= problem.trust[cells.cell]
        kernel_us = problem.shared_out(problem.base * np.exp(prior))
        columns = [
            i for i, name in enumerate(feature_names(problem.ops))
            if name in SMOOTH or name.startswith("op=")
        ]  # fmt: skip
        if kernels.max() > 1:
            weights *= np.where(kernels[cells.cell] > 1, 0.5, 1.0)
            kernel_us = problem.apportion(rows, prior, weights)
        values = np.log(kernel_us / problem.base) - prior
        sound = problem.trusted_rows()
        tuned = tune_gaussian_process(rows[sound], values[sound], columns, problem.seed)
        return cls(problem, start, rows, prior, values, weights, tuned)

    def model(self, records: str, for_cells: bool) -> CellModel:
        """Fit the parts, out of fold for their shares and the intervals, then on all rows."""
        p, n = self.problem, len(self.rows)
        fold = p.cell_folds[p.cells.cell]
        smooths = self._gp_helps(fold)
        smooth = out_of_fold(fold, self._gp_mean, self.rows) if smooths else np.zeros(n)
        rows = self.rows.copy()
        rows[:, -1] = smooth
        boosted_values = out_of_fold(fold, lambda taken: served(self._boosted(rows, taken)), rows)
        forest_values = boosted_values
        if n <= _FOREST_LIMIT:
            forest_values = out_of_fold(fold, lambda taken: self._forest(rows, taken), rows)
        candidates = np.stack([smooth, boosted_values, forest_values], axis=1)
        trust = None if p.trust is None else p.trust[p.cells.cell]
        shares = best_shares(candidates, self.values, smooths, trust)
        every = np.ones(n, bool)
        boosted = self._boosted(rows, every)
        forest = self._forest(rows, every) if n <= _FOREST_LIMIT else None
        if forest is None:
            shares = (shares[0], shares[1] + shares[2], 0.0)
        missed = candidates @ np.array(shares) - self.values
        kernel_us = p.base * np.exp(self.prior + self.values + missed)
        cell_us = np.bincount(p.cells.cell, kernel_us, p.cells.cells)
        error = np.abs(np.log(cell_us / p.truth))
        error_scale, quantile, expected = self._intervals(rows, kernel_us, error, fold)
        log_bias = best_log_bias(cell_us, expected, p.truth) if for_cells else 0.0
        card: dict[str, object] = {
            "records_hash": records,
            "rows": p.cells.cells,
            "operators": list(p.ops),
            "shares": dict(zip(("surface", "boosted", "forest"), shares, strict=True)),
            "confidence": self.start.confidence,
            "out_of_fold": _metrics(cell_us * log_bias_factor(log_bias, expected), p.truth),
        }
        return replace(
            self.start,
            gp_mean=self._gp_mean(every) if smooths else no_gp_mean(),
            gp_weight=shares[0],
            trees=Booster(weighted_ensemble(boosted, forest, shares[1:]), rows.shape[1]),
            error_scale=error_scale,
            domain=fit_domain(p.cells, p.codes, len(p.ops), p.seed),
            quantile=quantile, log_bias=log_bias, card=card,
        )  # fmt: skip

    def _gp_helps(self, fold: NDArray[np.intp]) -> bool:
        """Whether trees that are given the process's answer do better on a fold than trees alone.

        It does where rows are few; where they are many and of many operators it can lead astray.
        """
        if len(self.rows) < MANY_ROWS:
            return True
        outside, inside, inner = fold == 0, fold != 0, fold == 1
        smooth = np.zeros(len(self.rows))
        for taken, rest in ((inside & ~inner, inner), (inner, inside & ~inner), (inside, outside)):
            smooth[rest] = self._gp_mean(taken).predict(self.rows[rest])
        errors = []
        for smooth_column in (smooth, np.zeros(len(self.rows))):
            rows = self.rows.copy()
            rows[:, -1] = smooth_column
            made = served(self._boosted(rows, inside)).predict(rows[outside])
            errors.append(float(np.mean(np.abs(made - self.values[outside]))))
        return errors[0] < errors[1]

    def _gp_mean(self, taken: NDArray[np.bool_]) -> GaussianProcessMean:
        return fit_gp_mean(
            self.rows[taken], self.values[taken], self.weights[taken], self.tuned, _POINTS,
            self.problem.seed,
        )  # fmt: skip

    def _boosted(self, rows: Floats, taken: NDArray[np.bool_]) -> Any:
        return fit_boosted(rows[taken], self.values[taken], self.weights[taken], self.problem.seed)

    def _forest(self, rows: Floats, taken: NDArray[np.bool_]) -> Any:
        return fit_forest(rows[taken], self.values[taken], self.weights[taken], self.problem.seed)

    def _intervals(
        self, rows: Floats, kernel_us: Array, error: Array, fold: NDArray[np.intp]
    ) -> tuple[Booster, float, Array]:
        """The ensemble of expected errors, and the factor that makes intervals of it hold.

        Split conformal, normalised: the score of a cell is its out-of-fold error over the error
        expected of it by trees that have not seen its fold either.
        """
        p = self.problem
        per_kernel = error[p.cells.cell]

        def fitted(taken: NDArray[np.bool_]) -> Booster:
            data = (rows[taken], per_kernel[taken], self.weights[taken])
            return served(fit_error_scale(*data, p.seed))

        expected = np.maximum(np.exp(out_of_fold(fold, fitted, rows)) - 0.01, 0.002)
        of_cells = cell_sums(p.cells, kernel_us, expected)[1]
        scores = np.sort(error / of_cells)
        rank = math.ceil((len(scores) + 1) * self.start.confidence) - 1
        quantile = float(scores[min(rank, len(scores) - 1)])
        return fitted(np.ones(len(rows), bool)), quantile, of_cells


def out_of_fold(
    fold: NDArray[np.intp], fitted: Callable[[NDArray[np.bool_]], Any], rows: Floats
) -> Array:
    """What is predicted of every row by what is ``fitted`` to the rows of the other folds."""
    result = np.zeros(len(rows))
    for k in range(FOLDS):
        result[fold == k] = fitted(fold != k).predict(rows[fold == k])
    return result


def best_shares(
    candidates: Array, truth: Array, smooth: bool = True, trust: Array | None = None
) -> tuple[float, float, float]:
    """Shares of the Gaussian process, boosted trees and forest: between equal and the best ones.

    The error is the relative one that is reported, with single misses held at a factor of e. On
    some hundred rows the best choice is mostly luck, and equal shares beat it; on thousands it is
    not. Without a ``smooth`` part its share is 0. Rows count by their ``trust``.
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
    a, b, c = (decided * own + (1 - decided) * even for own, even in zip(best, equal, strict=True))
    return a, b, c


def best_log_bias(predicted: NDArray[Any], spread: Array, truth: Array) -> float:
    """The log-bias with the least relative error, single misses held at a factor of e."""
    middle = np.log(predicted / truth)

    def error(log_bias: float) -> float:
        log_error = middle + np.log(log_bias_factor(log_bias, spread))
        return float(np.mean(np.expm1(np.clip(log_error, -1, 1)) ** 2))

    return min((0.0, 0.5, 1.0, 1.5), key=error)


def _metrics(predicted: NDArray[Any], truth: Array) -> dict[str, float]:
    relative = (predicted - truth) / truth
    return {
        "rmspe": round(100 * float(np.sqrt(np.mean(relative**2))), 3),
        "mape": round(100 * float(np.mean(np.abs(relative))), 3),
    }
