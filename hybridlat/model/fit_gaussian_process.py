"""Fit the smooth part of a model: length scales by marginal likelihood, then its mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.gaussian_process import Array, Floats, GaussianProcessMean, matern
from hybridlat.model.length_scales import tune

SMOOTH: tuple[str, ...] = (
    "log2_c_in", "log2_c_out", "log2_h_in", "k_h", "stride", "log2_m", "log2_k", "log2_weight_size",
    "log2_activation_size", "log2_best_wave_time", "log2_wave_time_128x128",
    "log2_wave_time_64x64", "log2_compute_to_memory", "log2_roofline", "log2_batch", "log2_groups",
    "kind", "depthwise", "has_add", "activation", "align_c_in", "log2_size_to_last_cache", "prior",
    "context", "log2_run", "log2_length",
)  # fmt: skip
"""Features that the process is smooth in; constant ones drop out of each fit."""
_LEAST_NOISE = 0.03  # of the variance: less lets single kernel choices bend the mean
_TUNING_ROWS = 320


def choose(count: int, wanted: int, seed: int) -> NDArray[np.intp]:
    """``wanted`` of ``count`` positions at random (all if there are fewer), in order."""
    picked = np.random.default_rng(seed).permutation(count)[:wanted]
    return np.sort(picked)


def tune_gaussian_process(
    rows: Floats, values: Array, columns: Sequence[int], seed: int
) -> dict[str, Any]:
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


def fit_gp_mean(
    rows: Floats, values: Array, weights: Array, tuned: dict[str, Any], points: int, seed: int
) -> GaussianProcessMean:
    """Mean of the process on ``points`` inducing rows (subset of regressors).

    Rows of small weight count as noisier. Solved in double precision, served in single.
    """
    level = float(np.average(values, weights=weights))
    empty = np.zeros((0, len(tuned["columns"])), np.float32)
    gp_mean = GaussianProcessMean(
        tuned["columns"], np.asarray(tuned["shift"], np.float32),
        np.asarray(tuned["scale"], np.float32), empty, np.zeros(0, np.float32), level,
    )  # fmt: skip
    if len(tuned["columns"]) == 0:
        return gp_mean
    scaled = gp_mean.scaled(rows)
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
    return GaussianProcessMean(
        gp_mean.columns, gp_mean.shift, gp_mean.scale, inducing, solved.astype(np.float32), level
    )


def no_gp_mean() -> GaussianProcessMean:
    """A mean that says nothing of any kernel."""
    none = np.zeros(0, np.float32)
    return GaussianProcessMean(np.zeros(0, np.intp), none, none, none.reshape(0, 0), none, 0.0)
