"""What a fit explains: the kernels of the training cells, and each one's share of its cell."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.applicability_domain import ApplicabilityDomain
from hybridlat.model.cell_model import CellModel
from hybridlat.model.fit_trees import fit_rough
from hybridlat.model.gaussian_process import Array, Floats, no_gp_mean
from hybridlat.model.geometry import Geometry, View
from hybridlat.model.xgboost_runtime import Booster
from hybridlat.schema.device import Device

LEAST_ROWS = 20
_SOUND = 0.2  # trust of a measurement whose noise is twice what the model itself gets wrong
FOLDS = 5
MODEL_SHARE = 0.1
"""What a model gets wrong of a cell by itself: noise well below it does not matter."""


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
        empty = np.zeros(0, np.float32)
        gp_mean = no_gp_mean()
        flat = empty.reshape(0, 0)
        ranges = np.zeros((0, 0))
        domain = ApplicabilityDomain(ranges, ranges, flat, 1.0, np.zeros(0, np.int64), empty, 1.0)
        nothing: Booster = None  # type: ignore[assignment]
        return CellModel(
            self.view.device, self.view.precision, self.ops, self.floor_us, gp_mean, 1.0,
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


def apportion(problem: TrainingProblem, rows: Floats, prior: Array, weights: Array) -> Array:
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
        for k in range(FOLDS):
            inside = teachers & (fold != k)
            if inside.any():
                made = fit_rough(rows[inside], values[inside], weights[inside], problem.seed)
                trees = Booster(bytes(made.save_raw("ubj")), rows.shape[1])
                guess[fold == k] = trees.predict(rows[fold == k])
        kernel_us = problem.shared_out(problem.base * np.exp(prior + guess))
    return kernel_us
