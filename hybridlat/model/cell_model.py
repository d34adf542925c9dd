"""The learned model of one target: latency of a cell from its signature, with an interval.

A kernel's latency is (roofline + floor)·exp(smooth share + trees): the mean of a Gaussian
process carries what shape alone explains, trees the jumps of tiles and kernel choice. A cell's
is the sum over its kernels. A second ensemble and a conformal factor make the intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hybridlat.graph.operators import KINDS, kind_of
from hybridlat.model import features
from hybridlat.model.applicability_domain import ApplicabilityDomain, error_without_training
from hybridlat.model.gaussian_process import CHUNK, GaussianProcessMean
from hybridlat.model.geometry import Array, Float32, Geometry, Positions, View, geometry, problem_of
from hybridlat.model.trees import Booster
from hybridlat.schema.structure import CellPrediction
from hybridlat.schema.target import Device

UNKNOWN_FACTOR = 3.0
"""By which the interval of a kernel without training is wider, both ways."""
_MOST_REMEMBERED = 20_000


class Predictions(NamedTuple):
    """Arrays over cells: what ``CellModel.predict`` wraps into one object a cell.

    ``novelty`` above 1 is not trusted; ``latency_us`` is NaN where nothing is known.
    """

    latency_us: Array
    low_us: Array
    high_us: Array
    novelty: Array


@dataclass
class CellModel:
    """Predicts cells it has not seen; ``card`` says what it was trained on.

    ``ops`` are the operators it was trained on; ``gp_weight`` the share of the Gaussian process in
    the sum; ``error_scale`` says how far off a kernel tends to be, ``quantile`` is the conformal
    factor from that to the interval's half-width. ``domain`` is where the model is trusted.
    ``log_bias`` moves a latency below the middle of its interval where errors are large. A relative
    error punishes the overestimate more (the best point of a lognormal has a log-bias of 1.5), but
    cells that are added up to networks must not all be moved.
    """

    device: Device
    precision: str
    ops: tuple[str, ...]
    floor_us: float
    gp_mean: GaussianProcessMean
    gp_weight: float
    trees: Booster
    error_scale: Booster
    domain: ApplicabilityDomain
    quantile: float
    confidence: float
    log_bias: float = 0.0
    prior: "CellModel | None" = None
    prior_line: tuple[float, float] = (0.0, 0.0)
    card: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cells: dict[str, CellPrediction] = {}
        self._kernels: dict[bytes, tuple[float, ...]] = {}

    def predict(self, texts: Sequence[str]) -> list[CellPrediction]:
        """One prediction per signature text, in order; never raises for a strange cell."""
        known = self._cells
        if len(known) > _MOST_REMEMBERED:
            known.clear()
        # Some may be of another make than this version reads.
        problems = {text: problem_of(text) for text in texts if text not in known}
        known |= {t: CellPrediction(None, None, False, p) for t, p in problems.items() if p}
        if new := [text for text, problem in problems.items() if not problem]:
            known.update(zip(new, self._predict_new(geometry(new)), strict=True))
        return [known[text] for text in texts]

    def _predict_new(self, cells: Geometry) -> list[CellPrediction]:
        values = self._remembered(cells)
        made, codes, strange = self._predictions(cells, *values), self._codes(cells), values[2]
        answers = []
        rows = zip(*(column.tolist() for column in made), strict=True)
        for cell, (us, low_us, high_us, novelty) in enumerate(rows):
            if novelty <= 1:
                answers.append(CellPrediction(us, (low_us, high_us), True))
                continue
            first, behind = np.searchsorted(cells.cell, [cell, cell + 1])
            reason = "it holds no kernel"
            if first < behind:
                row = int(first + strange[first:behind].argmax())
                if codes[row] >= 0 and math.isinf(novelty):
                    reason = f"a form of {cells.op(row)} that training never met"
                else:
                    kernel = cells.one_by_one(slice(row, row + 1))
                    reason = self.domain.reason(kernel, int(codes[row]))
            known = None if math.isnan(us) else us
            interval = None if known is None else (low_us, high_us)
            answers.append(CellPrediction(known, interval, False, reason))
        return answers

    def _remembered(self, cells: Geometry) -> Array:
        """``_kernel_values`` as rows; new cells are made of kernels that others hold too."""
        known, keys = self._kernels, [row.tobytes() for row in cells.values]
        if len(known) > _MOST_REMEMBERED:
            known.clear()
        new = {key: row for row, key in enumerate(keys) if key not in known}
        if new:
            # One by one: the last bit of a product hangs on its other rows.
            made = self._kernel_values(cells.one_by_one(np.array([*new.values()])), 1)
            rows = zip(*(column.tolist() for column in made), strict=True)
            known.update(zip(new, rows, strict=True))
        return np.array([known[key] for key in keys]).reshape(-1, 3).T

    def predict_geometry(self, cells: Geometry, chunk: int = CHUNK) -> Predictions:
        """The same for geometry that is at hand, as arrays: for hundreds of thousands of cells."""
        return self._predictions(cells, *self._kernel_values(cells, chunk))

    def _predictions(
        self, cells: Geometry, kernel_us: Array, expected: Array, strange: Array
    ) -> Predictions:
        """Cells from their kernels: latency, error to be expected, and novelty of each."""
        latency, spread = cell_sums(cells, kernel_us, expected)
        # What kernels without training may take beyond what is predicted widens their cell by as
        # much: half of a cell may be known well, whatever is said of the other half.
        unknown = np.isinf(strange)
        most = np.exp(self.quantile * expected) * UNKNOWN_FACTOR
        beyond = np.bincount(cells.cell, np.where(unknown, most - 1, 0) * kernel_us, cells.cells)
        _, of_known = cell_sums(cells, kernel_us, np.where(unknown, 0, expected))
        half = self.quantile * of_known + np.log1p(beyond / latency)
        point = latency * log_bias_factor(self.log_bias, spread)
        novelty = np.where(np.isnan(latency), np.inf, 0.0)
        np.maximum.at(novelty, cells.cell, strange)
        return Predictions(point, latency * np.exp(-half), latency * np.exp(half), novelty)

    def _codes(self, cells: Geometry) -> Positions:
        """Positions in ``ops``; -1 for a pool that gives out places too: it shares no code."""
        names = ("kind", "m", "item_bytes", "out_bytes")
        kind, made, item_bytes, out_bytes = map(cells.column, names)
        places = (kind == KINDS["pool"]) & (out_bytes > 1.5 * made * item_bytes)
        return np.where(places, -1, cells.codes(self.ops))

    def _kernel_values(self, cells: Geometry, chunk: int) -> tuple[Array, Array, Array]:
        """Of every kernel: µs (NaN: unknown), expected error and novelty (infinite: untrained)."""
        codes = self._codes(cells)
        view = View(cells.values, self.device, self.precision)
        base = view.roofline_us + self.floor_us
        rows, prior = feature_rows(
            cells, codes, view, base, self.ops, self.prior, self.prior_line, chunk
        )
        smooth = rows[:, -1] = self.gp_mean.predict(rows, chunk)
        log_ratio = prior + self.gp_weight * smooth + self.trees.predict(rows)
        kernel_us = base * np.exp(np.clip(log_ratio, -20, 20))
        expected = np.maximum(np.exp(self.error_scale.predict(rows)) - 0.01, 0.002)
        untrained = np.flatnonzero((codes < 0) & (self.device.kind == "cpu"))
        centre, half = error_without_training(cells.one_by_one(untrained))
        kernel_us[untrained] *= np.exp(centre)
        expected[untrained] = (half - math.log(UNKNOWN_FACTOR)) / self.quantile
        known_kind = np.isin(view.kind, [kind_of(op) for op in self.ops])
        kernel_us = np.where(known_kind, kernel_us, np.nan)
        unmet = (self.device.kind == "cpu") & self.domain.unmet_forms(cells, codes)
        novelty = np.where(unmet, np.inf, self.domain.novelty(cells, codes, chunk))
        return kernel_us, expected, novelty


def feature_rows(
    cells: Geometry,
    codes: Positions,
    view: View,
    base: Array,
    ops: Sequence[str],
    prior: CellModel | None,
    prior_line: tuple[float, float],
    chunk: int = CHUNK,
) -> tuple[Float32, Array]:
    """The feature matrix (the process's column still 0), and what the prior model says."""
    rows = features.matrix(view, len(ops) + 2)
    known = np.flatnonzero(codes >= 0)
    rows[known, len(features.NAMES) + codes[known]] = 1
    if prior is None:
        return rows, np.zeros(len(codes))
    prior_us = prior.predict_geometry(cells.one_by_one(), chunk).latency_us
    ratio = np.nan_to_num(np.log(prior_us / base))
    rows[:, -2] = ratio
    return rows, prior_line[0] + prior_line[1] * ratio


def cell_sums(cells: Geometry, kernel_us: Array, expected: Array) -> tuple[Array, Array]:
    """Latency of every cell, and the error expected of its logarithm.

    Errors of a cell's kernels are taken as half shared and half independent.
    """
    count = cells.cells
    latency = np.bincount(cells.cell, kernel_us, count)
    absolute = kernel_us * expected
    shared = np.bincount(cells.cell, absolute, count)
    alone = np.sqrt(np.bincount(cells.cell, absolute**2, count))
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(0.5 * shared**2 + 0.5 * alone**2) / latency
    empty = np.bincount(cells.cell, minlength=count) == 0
    return np.where(empty, np.nan, latency), spread


def log_bias_factor(log_bias: float, spread: Array) -> Array:
    """exp(−log_bias·σ²), σ being the standard error of the logarithm (at most one half)."""
    sigma = np.minimum(1.25 * spread, 0.5)  # of a normal error the mean size is 0.8 of its sigma
    return np.asarray(np.exp(-log_bias * sigma**2), np.float64)
