"""Fit a CellModel to measured cells: the training half of :mod:`.cell_model`, never loaded to
predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import InputError
from hybridlat.model.applicability_domain import fit_domain
from hybridlat.model.cell_model import CellModel, cell_sums, feature_rows, log_bias_factor
from hybridlat.model.conformal import conformal_quantile
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
from hybridlat.model.geometry import Geometry, View, geometry, problem_of
from hybridlat.model.training_problem import (
    FOLDS,
    LEAST_ROWS,
    SOUND,
    FitConfig,
    check_installed,
    choose_prior,
    make_folds,
    records_hash,
    trust_of,
)
from hybridlat.model.trees import (
    MANY_ROWS,
    fit_boosted,
    fit_error_scale,
    fit_rough,
    scaled,
    served,
)
from hybridlat.model.xgboost_runtime import Booster

_POINTS = 448  # inducing points of the Gaussian process: its cost in the served model


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
    noise = np.zeros(len(truth)) if noise_shares is None else np.asarray(noise_shares, float)
    names = [groups[i] for i in usable]
    folds = make_folds(names, config.seed)
    several = 1 < len(set(names)) < len(names)
    fit = _Fit(cells, truth[usable], folds, trust_of(noise[usable]), config)
    model = fit.model(for_cells=not several)
    model.card["records_hash"] = records_hash(texts, latencies_us)
    return model


class _Fit:
    """One fit: kernels of the training cells, what of each is to be explained, and by what."""

    def __init__(
        self,
        cells: Geometry,
        truth: Array,
        cell_folds: NDArray[np.intp],
        trust: Array,
        config: FitConfig,
    ) -> None:
        self.cells, self.truth, self.config, self.seed = cells, truth, config, config.seed
        self.trust, self.fold = trust[cells.cell], cell_folds[cells.cell]
        view = View(cells, config.device, config.precision)
        kernels = np.bincount(cells.cell, minlength=cells.cells)
        # Half of what the fastest cells take is launch and latency that no roofline knows.
        self.floor_us = 0.5 * float(np.quantile(truth / np.maximum(kernels, 1), 0.01))
        self.base = view.roofline_us + self.floor_us
        self.ops = cells.met_ops()
        self.codes = cells.codes(self.ops)
        self.started = choose_prior(cells, truth, self.base, config.priors)
        self.rows, self.prior = feature_rows(
            cells, self.codes, view, self.base, self.ops, *self.started
        )
        together = kernels[cells.cell]
        self.weights = 1.0 / together * self.trust
        kernel_us = self._shared_out(self.base * np.exp(self.prior))
        if kernels.max() > 1:
            self.weights *= np.where(together > 1, 0.5, 1.0)
            kernel_us = self._apportioned(together == 1)
        self.values = np.log(kernel_us / self.base) - self.prior
        columns = [
            i
            for i, name in enumerate(feature_names(self.ops))
            if name in SMOOTH or name.startswith("op=")
        ]
        # Kernels whose measurement says more than its noise; all where too few do.
        sound = self.trust >= SOUND
        taken = sound if sound.sum() >= LEAST_ROWS else slice(None)
        self.tuned = tune_gaussian_process(self.rows[taken], self.values[taken], columns, self.seed)

    def _shared_out(self, kernel_us: Array) -> Array:
        """Each cell's measured latency, divided among its kernels in the ratio of ``kernel_us``."""
        total = np.bincount(self.cells.cell, kernel_us, self.cells.cells)
        return kernel_us * (self.truth / total)[self.cells.cell]

    def _apportioned(self, alone: NDArray[np.bool_]) -> Array:
        """Latency of every kernel, where only the sums of some cells are known.

        In rounds: rough trees learn from the division so far (first from kernels measured
        ``alone``, if there are enough) and divide again, each fold by trees that have not seen it.
        """
        kernel_us = self._shared_out(self.base * np.exp(self.prior))
        for turn in range(4):
            values = np.log(kernel_us / self.base) - self.prior
            first = turn == 0 and alone.sum() >= LEAST_ROWS
            teachers = alone if first else np.ones(len(self.rows), bool)
            guess = np.zeros(len(self.rows))
            for k in range(FOLDS):
                inside, outside = teachers & (self.fold != k), self.fold == k
                if inside.any():
                    data = (self.rows[inside], values[inside], self.weights[inside])
                    guess[outside] = served(fit_rough(*data, self.seed)).predict(self.rows[outside])
            kernel_us = self._shared_out(self.base * np.exp(self.prior + guess))
        return kernel_us

    def model(self, for_cells: bool) -> CellModel:
        """Fit the parts, out of fold for their shares and the intervals, then on all rows."""
        n, cells, config, fold = len(self.rows), self.cells, self.config, self.fold
        smooths = self._gp_helps()
        smooth = out_of_fold(fold, self._gp_mean, self.rows) if smooths else np.zeros(n)
        rows = self.rows.copy()
        rows[:, -1] = smooth
        boosted_values = out_of_fold(fold, lambda taken: served(self._boosted(rows, taken)), rows)
        candidates = np.stack([smooth, boosted_values], axis=1)
        share = best_share(candidates, self.values, self.trust) if smooths else 0.0
        every = np.ones(n, bool)
        boosted = scaled(self._boosted(rows, every), 1 - share)
        missed = candidates @ np.array([share, 1 - share]) - self.values
        kernel_us = self.base * np.exp(self.prior + self.values + missed)
        cell_us = np.bincount(cells.cell, kernel_us, cells.cells)
        error = np.abs(np.log(cell_us / self.truth))
        error_scale, quantile, expected = self._intervals(rows, kernel_us, error)
        log_bias = best_log_bias(cell_us, expected, self.truth) if for_cells else 0.0
        relative = cell_us * log_bias_factor(log_bias, expected) / self.truth - 1
        card: dict[str, object] = {
            "rows": cells.cells,
            "operators": list(self.ops),
            "shares": {"surface": share, "boosted": 1 - share},
            "confidence": config.confidence,
            "out_of_fold": {
                "rmspe": round(100 * float(np.sqrt(np.mean(relative**2))), 3),
                "mape": round(100 * float(np.mean(np.abs(relative))), 3),
            },
        }
        return CellModel(
            config.device,
            config.precision,
            self.ops,
            self.floor_us,
            self._gp_mean(every) if smooths else no_gp_mean(),
            share,
            boosted,
            error_scale,
            fit_domain(cells, self.codes, len(self.ops), self.seed),
            quantile,
            config.confidence,
            log_bias,
            *self.started,
            card,
        )

    def _gp_helps(self) -> bool:
        """Whether trees do better with the process's answer: of many operators it can mislead."""
        if len(self.rows) < MANY_ROWS:
            return True
        outside, inside, inner = self.fold == 0, self.fold != 0, self.fold == 1
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
        data = (self.rows[taken], self.values[taken], self.weights[taken])
        return fit_gp_mean(*data, self.tuned, _POINTS, self.seed)

    def _boosted(self, rows: Floats, taken: NDArray[np.bool_]) -> Any:
        return fit_boosted(rows[taken], self.values[taken], self.weights[taken], self.seed)

    def _intervals(
        self, rows: Floats, kernel_us: Array, error: Array
    ) -> tuple[Booster, float, Array]:
        """The trees of expected errors, and the split-conformal factor that makes them hold."""
        per_kernel = error[self.cells.cell]

        def fitted(taken: NDArray[np.bool_]) -> Booster:
            data = (rows[taken], per_kernel[taken], self.weights[taken])
            return served(fit_error_scale(*data, self.seed))

        expected = np.maximum(np.exp(out_of_fold(self.fold, fitted, rows)) - 0.01, 0.002)
        of_cells = cell_sums(self.cells, kernel_us, expected)[1]
        quantile = conformal_quantile(error / of_cells, self.config.confidence)
        return fitted(np.ones(len(rows), bool)), quantile, of_cells


def out_of_fold(
    fold: NDArray[np.intp], fitted: Callable[[NDArray[np.bool_]], Any], rows: Floats
) -> Array:
    """What is predicted of every row by what is ``fitted`` to the rows of the other folds."""
    result = np.zeros(len(rows))
    for k in range(FOLDS):
        result[fold == k] = fitted(fold != k).predict(rows[fold == k])
    return result


def best_share(candidates: Array, truth: Array, trust: Array) -> float:
    """Share of the Gaussian process beside boosted trees: between a half and the best one.

    ``candidates`` are what both predict out of fold. The error is the relative one that is
    reported, with single misses held at a factor of e. On some hundred rows the best choice is
    mostly luck, and a half beats it; on thousands it is not. Rows count by their ``trust``.
    """

    def error(share: float) -> float:
        squares = np.expm1(np.clip(candidates @ np.array([share, 1 - share]) - truth, -1, 1)) ** 2
        return float(np.mean(trust * squares))

    best = min((i / 4 for i in range(5)), key=error)
    decided = float(trust.sum()) / (float(trust.sum()) + 600)
    return decided * best + (1 - decided) / 2


def best_log_bias(predicted: NDArray[Any], spread: Array, truth: Array) -> float:
    """The log-bias with the least relative error, single misses held at a factor of e."""
    middle = np.log(predicted / truth)

    def error(log_bias: float) -> float:
        log_error = middle + np.log(log_bias_factor(log_bias, spread))
        return float(np.mean(np.expm1(np.clip(log_error, -1, 1)) ** 2))

    return min((0.0, 0.5, 1.0, 1.5), key=error)
