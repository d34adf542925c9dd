"""Fit a CellModel to measured cells; never loaded to predict."""

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hybridlat.errors import InputError, MissingExtra
from hybridlat.model.applicability_domain import fit_domain
from hybridlat.model.cell_model import CellModel, cell_sums, feature_rows, log_bias_factor
from hybridlat.model.conformal import conformal_quantile
from hybridlat.model.features import feature_names
from hybridlat.model.gaussian_process import SMOOTH, GaussianProcessMean, fit_gp_mean, tune_gp
from hybridlat.model.geometry import Array, Flags, Geometry, Positions, View, geometry, problem_of
from hybridlat.model.trees import Booster, Table
from hybridlat.schema.target import Device

LEAST_ROWS = 20
_FOLDS = 5
_MODEL_SHARE = 0.1  # what a model gets wrong of a cell: noise well below it does not matter
_SOUND = 0.2  # trust of a measurement whose noise is twice what the model itself gets wrong
_Start = tuple[CellModel | None, tuple[float, float]]  # a prior model, and its line
_MANY_ROWS = 1000  # from here on trees alone are nearer (experiments/replay_gpus.md)


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


def check_installed(purpose: str = "training a model") -> None:
    """MissingExtra where the packages that fit a model are missing: checked before long work."""
    if importlib.util.find_spec("sklearn") is None:
        raise MissingExtra("scikit-learn", "train", purpose)


def fit_model(
    texts: Sequence[str],
    latencies_us: Sequence[float] | Array,
    groups: Sequence[str],
    config: FitConfig,
    noise_shares: Sequence[float] | Array | None = None,
) -> CellModel:
    """A model of one target from measured cells; the same input gives the same model.

    ``texts`` are signature texts, ``latencies_us`` their measured latencies, ``groups`` the network
    each was met in (any constant or unique name where there is none), which no two folds of the
    inner cross-validation share. Where groups hold several rows, the relative error of sums is to
    be small; else that of single cells. By ``noise_shares``, the latencies' relative standard
    errors, noisy rows weigh less. Raises InputError for fewer than 20 usable rows, MissingExtra
    without scikit-learn.
    """
    check_installed()
    truth = np.asarray(latencies_us, float)
    sound = np.flatnonzero(np.isfinite(truth) & (truth > 0)).tolist()
    usable = [i for i in sound if not problem_of(texts[i])]
    if len(usable) < LEAST_ROWS:
        raise InputError(
            f"{len(usable)} usable rows are too few to fit a model: give at least {LEAST_ROWS}"
        )
    noise = np.zeros(len(truth)) if noise_shares is None else np.asarray(noise_shares, float)
    noise = np.maximum(np.nan_to_num(noise[usable], nan=math.inf, posinf=math.inf), 0.0)
    trust = _MODEL_SHARE**2 / (_MODEL_SHARE**2 + noise**2)  # 1 for an exact row
    names = [groups[i] for i in usable]
    cells = geometry([texts[i] for i in usable])
    fit = _Fit(cells, truth[usable], make_folds(names, config.seed), trust, config)
    return fit.model(not 1 < len(set(names)) < len(names))


def make_folds(groups: Sequence[str], seed: int) -> Positions:
    """A fold for every row; rows of a group share one, unless there are fewer groups than folds."""
    names, random = sorted(set(groups)), np.random.default_rng(seed)
    if len(names) < _FOLDS:
        return np.asarray(random.permutation(len(groups)) % _FOLDS)
    fold_of = dict(zip(names, random.permutation(len(names)) % _FOLDS, strict=True))
    return np.array([fold_of[name] for name in groups])


def _choose_prior(
    cells: Geometry, truth: Array, base: Array, priors: Sequence[CellModel]
) -> _Start:
    """The prior whose log ratio explains these cells' best by a line, if it explains half."""
    best: _Start = (None, (0.0, 0.0))
    least = 0.5
    total = np.bincount(cells.cell, base, cells.cells)
    values = np.log(truth / total)
    for prior in priors:
        ratio = np.log(prior.predict_geometry(cells).latency_us / total)
        good = np.isfinite(ratio)
        if good.mean() < 0.8 or np.std(ratio[good]) < 1e-6:
            continue
        slope, offset = np.polyfit(ratio[good], values[good], 1)
        left = np.var(values[good] - offset - slope * ratio[good]) / max(np.var(values), 1e-12)
        if left < least:
            least, best = float(left), (prior, (float(offset), float(slope)))
    return best


class _Fit:
    """One fit: kernels of the training cells, what of each is to be explained, and by what."""

    def __init__(
        self, cells: Geometry, truth: Array, cell_folds: Positions, trust: Array, config: FitConfig
    ) -> None:
        self.cells, self.truth, self.config, self.seed = cells, truth, config, config.seed
        self.trust, self.fold = trust[cells.cell], cell_folds[cells.cell]
        view = View(cells.values, config.device, config.precision)
        kernels = np.bincount(cells.cell, minlength=cells.cells)
        # Half of what the fastest cells take is launch and latency that no roofline knows.
        self.floor_us = 0.5 * float(np.quantile(truth / np.maximum(kernels, 1), 0.01))
        self.base = view.roofline_us + self.floor_us
        self.ops = cells.met_ops()
        self.codes = codes = cells.codes(self.ops)
        self.start = _choose_prior(cells, truth, self.base, config.priors)
        self.rows, self.prior = feature_rows(cells, codes, view, self.base, self.ops, *self.start)
        together = kernels[cells.cell]
        self.weights = 1.0 / together * self.trust * np.where(together > 1, 0.5, 1.0)
        self.table = Table(self.rows, self.weights, self.seed)
        kernel_us = self._shared_out(np.zeros(len(self.rows)))
        if kernels.max() > 1:
            kernel_us = self._apportioned(kernel_us, together == 1)
        self.values = np.log(kernel_us / self.base) - self.prior
        self.smooths = len(self.rows) < _MANY_ROWS
        names = enumerate(feature_names(self.ops) if self.smooths else ())
        columns = [i for i, name in names if name in SMOOTH or name.startswith("op=")]
        # Kernels whose measurement says more than its noise; all where too few do.
        sound = self.trust >= _SOUND
        taken = sound if sound.sum() >= LEAST_ROWS else slice(None)
        self.tuned = tune_gp(self.rows[taken], self.values[taken], columns, self.seed)

    def _shared_out(self, guess: Array) -> Array:
        """Each cell's measured latency, divided among its kernels as ``guess`` and prior say."""
        kernel_us = self.base * np.exp(self.prior + guess)
        total = np.bincount(self.cells.cell, kernel_us, self.cells.cells)
        return kernel_us * (self.truth / total)[self.cells.cell]

    def _apportioned(self, kernel_us: Array, alone: Flags) -> Array:
        """Latency of every kernel from a first division, where some cells' sums alone are known.

        In rounds: rough trees learn from the division so far (first from kernels measured
        ``alone``, if there are enough) and divide again, each fold by trees that have not seen it.
        """
        for turn in range(4):
            values = np.log(kernel_us / self.base) - self.prior
            first = turn == 0 and alone.sum() >= LEAST_ROWS
            teachers = alone if first else np.ones(len(self.rows), bool)

            def rough(taken: Flags, values: Array = values, teachers: Flags = teachers) -> Booster:
                rows = taken & teachers if (taken & teachers).any() else taken
                return self.table.grown(rows, values, 100, max_depth=4, eta=0.1)

            kernel_us = self._shared_out(self._out_of_fold(rough, self.table))
        return kernel_us

    def model(self, for_cells: bool) -> CellModel:
        """Fit the parts, out of fold for their shares and the intervals, then on all rows."""
        cells, config, table, smooths = self.cells, self.config, self.table, self.smooths
        every, smooth = np.ones(len(self.rows), bool), np.zeros(len(self.rows))
        if smooths:
            smooth = self._out_of_fold(self._gp_mean, table)
            table = table.with_last(smooth)
        boosted = self._out_of_fold(partial(self._boosted, table), table)
        candidates = np.stack([smooth, boosted], axis=1)
        share = _best_share(candidates, self.values, self.trust) if smooths else 0.0
        # Kernels and cells as they are predicted out of fold.
        kernel_us = self.base * np.exp(self.prior + candidates @ np.array([share, 1 - share]))
        cell_us = np.bincount(cells.cell, kernel_us, cells.cells)
        error = np.abs(np.log(cell_us / self.truth))
        error_scale, quantile, expected = self._intervals(table, kernel_us, error)

        def ratios(log_bias: float) -> Array:
            return cell_us * log_bias_factor(log_bias, expected) / self.truth

        biases = (0.0, 0.5, 1.0, 1.5) if for_cells else (0.0,)
        log_bias = min(biases, key=lambda bias: _relative_error(np.log(ratios(bias))))
        relative = ratios(log_bias) - 1
        rmspe, mape = 100 * np.sqrt(np.mean(relative**2)), 100 * np.mean(np.abs(relative))
        return CellModel(
            config.device,
            config.precision,
            self.ops,
            self.floor_us,
            self._gp_mean(every) if smooths else self.tuned[0],
            share,
            self._boosted(table, every, 1 - share),
            error_scale,
            fit_domain(cells, self.codes, len(self.ops), self.seed),
            quantile,
            config.confidence,
            log_bias,
            *self.start,
            card={
                "rows": cells.cells,
                "operators": list(self.ops),
                "shares": {"surface": share, "boosted": 1 - share},
                "confidence": config.confidence,
                "out_of_fold": {"rmspe": round(float(rmspe), 3), "mape": round(float(mape), 3)},
            },
        )

    def _out_of_fold(self, fitted: Callable[[Flags], Any], table: Table) -> Array:
        """What is predicted of every row by what is ``fitted`` to the rows of the other folds."""
        result = np.zeros(len(self.fold))
        for k in range(_FOLDS):
            mine = self.fold == k
            result[mine] = fitted(~mine).predict(table.rows[mine])
        return result

    def _gp_mean(self, taken: Flags) -> GaussianProcessMean:
        data = (self.rows[taken], self.values[taken], self.weights[taken])
        return fit_gp_mean(*data, self.tuned, self.seed)

    def _boosted(self, table: Table, taken: Flags, share: float = 1.0) -> Booster:
        """Gradient boosting (XGBoost) of a share of the values, in trees as rows are many."""
        count = int(taken.sum())
        depth, leaves, eta = 4 if count < 800 else 6 if count < 2000 else 8, 192, 0.065
        trees = 200 if count < 10_000 else 350
        if count >= 50_000:
            depth, leaves, eta, trees = 0, 330, 0.12, 200
        shape: dict[str, Any] = {"max_depth": depth, "max_leaves": leaves, "eta": eta, "lambda": 1}
        shape |= {"grow_policy": "lossguide", "min_child_weight": 2}
        return table.grown(taken, share * self.values, trees, **shape)

    def _intervals(
        self, table: Table, kernel_us: Array, error: Array
    ) -> tuple[Booster, float, Array]:
        """The trees of expected errors, and the split-conformal factor that makes them hold."""
        values = np.log(error[self.cells.cell] + 0.01)

        def fitted(taken: Flags) -> Booster:
            """Where the model tends to miss: small trees on the size of out-of-fold errors."""
            shape = {"max_depth": 4 if taken.sum() > 2000 else 3, "eta": 0.06}
            return table.grown(taken, values, 80, **shape, min_child_weight=10)

        expected = np.maximum(np.exp(self._out_of_fold(fitted, table)) - 0.01, 0.002)
        of_cells = cell_sums(self.cells, kernel_us, expected)[1]
        quantile = conformal_quantile(error / of_cells, self.config.confidence)
        return fitted(np.ones(len(values), bool)), quantile, of_cells


def _relative_error(log_error: Array, trust: Array | float = 1.0) -> float:
    """The mean square that is reported, single misses held at a factor of e."""
    return float(np.mean(trust * np.expm1(np.clip(log_error, -1, 1)) ** 2))


def _best_share(candidates: Array, truth: Array, trust: Array) -> float:
    """Share of the Gaussian process beside boosted trees: between a half and the best one.

    ``candidates`` are what both predict out of fold. On some hundred rows the best choice is
    mostly luck, and a half beats it; on thousands it is not. Rows count by their ``trust``.
    """

    def error(share: float) -> float:
        return _relative_error(candidates @ np.array([share, 1 - share]) - truth, trust)

    best = min((i / 4 for i in range(5)), key=error)
    decided = float(trust.sum()) / (float(trust.sum()) + 600)
    return decided * best + (1 - decided) / 2
