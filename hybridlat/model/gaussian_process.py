"""The mean of a Gaussian process as plain arrays: what of a latency is smooth in its shape.

The first half is what predicting needs; the second fits it. Length scales come from the marginal
likelihood. The gradient for all of them together is a matrix product. With W a weight for each pair
of rows, Σ W(x−x')² over pairs is 2·(Σ x²·W1 − xᵀWx): no array of pairs × features is ever made.
Formulas: Rasmussen & Williams, "Gaussian Processes for Machine Learning", 2006, sections 4.2, 5.4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hybridlat.model.geometry import Array, Float32, Positions

CHUNK = 1024  # rows at a time, so that a block of kernel values stays in the cache


def squared_distances(left: Float32, right: Float32) -> Float32:
    """All squared distances between two sets of points."""
    product: Float32 = left @ right.T
    product *= -2
    product += (left * left).sum(axis=1)[:, None]
    product += (right * right).sum(axis=1)[None, :]
    np.maximum(product, 0, out=product)
    return product


def matern(left: Float32, right: Float32) -> Float32:
    """Matérn 3/2 covariance of unit variance: (1 + √3·d)·exp(−√3·d)."""
    scaled = squared_distances(left, right)
    scaled *= 3
    np.sqrt(scaled, out=scaled)
    result = np.exp(-scaled)
    scaled += 1
    result *= scaled
    return result


@dataclass(frozen=True)
class GaussianProcessMean:
    """Mean of a Gaussian process over a few features, carried by at most some hundred points.

    ``columns`` are positions in the feature matrix, ``shift`` and ``scale`` bring them to the
    process's own length scales, ``points`` are the inducing points (already scaled).
    """

    columns: Positions
    shift: Float32
    scale: Float32
    points: Float32
    weights: Float32
    level: float

    def scaled(self, rows: Float32) -> Float32:
        return (rows[:, self.columns] - self.shift) / self.scale

    def predict(self, rows: Float32, chunk: int = CHUNK) -> Array:
        """The mean at each row; with a ``chunk`` of 1 no bit of it hangs on the other rows."""
        result = np.full(len(rows), self.level)
        for start in range(0, len(rows) if len(self.points) else 0, chunk):
            part = slice(start, start + chunk)
            result[part] += matern(self.scaled(rows[part]), self.points) @ self.weights
        return result


TunedProcess = tuple[GaussianProcessMean, float]  # a mean of 0, and the noise
SMOOTH: tuple[str, ...] = (
    "log2_c_in", "log2_c_out", "log2_h_in", "k_h", "stride", "log2_m", "log2_k", "log2_weight_size",
    "log2_activation_size", "log2_best_wave_time", "log2_wave_time_128x128",
    "log2_wave_time_64x64", "log2_compute_to_memory", "log2_roofline", "log2_batch", "log2_groups",
    "kind", "depthwise", "has_add", "activation", "align_c_in", "log2_size_to_last_cache", "prior",
    "context", "log2_run", "log2_length",
)  # fmt: skip
"""Features that the process is smooth in; constant ones drop out of each fit."""
_TUNING_ROWS = 320
_POINTS = 448  # inducing points: its cost in the served model
_START = (1.0, 4.0, 0.05)  # variance, length scales, noise
_BOUNDS = ((1e-5, 1e5), (0.5, 100.0), (0.03, 1.0))
"""Of the same; less noise than a share of the variance lets single kernel choices bend the mean."""


def _loss(logs: Array, rows: Array, values: Array) -> tuple[float, Array]:
    """Negative log marginal likelihood less its constant, and its gradient."""
    variance, noise = math.exp(logs[0]), math.exp(logs[-1])
    points = rows / np.exp(logs[1:-1])
    size = np.square(points).sum(axis=1)
    squared = np.maximum(size[:, None] + size[None, :] - 2 * points @ points.T, 0.0)
    distance = np.sqrt(3 * squared)
    falling = np.exp(-distance)
    signal = variance * (1 + distance) * falling
    covariance = signal + (noise + 1e-10) * np.eye(len(rows))
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros(len(logs))
    inverse_root = np.linalg.inv(root)
    inverse = inverse_root.T @ inverse_root
    weights = inverse @ values
    loss = 0.5 * float(values @ weights) + float(np.log(np.diag(root)).sum())
    # d loss = ½ tr((K⁻¹ − ααᵀ)·dK), and d signal / d ln(scale_j) = 3·variance·e^(−√3·d)·Δ_j².
    outer = inverse - np.outer(weights, weights)
    pairs = outer * (3 * variance * falling)
    each = np.einsum("ij,ij->j", points, pairs @ points)
    of_scales = np.square(points).T @ pairs.sum(axis=1) - each
    of_variance, of_noise = 0.5 * (outer * signal).sum(), 0.5 * noise * np.trace(outer)
    return loss, np.array([of_variance, *of_scales, of_noise])


def _choose(count: int, most: int, seed: int) -> Positions:
    """``most`` of ``count`` positions at random (all if there are fewer), in order."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


def tune_gp(rows: Float32, values: Array, columns: Sequence[int], seed: int) -> TunedProcess:
    """A mean of 0 on length scales by marginal likelihood on some of the rows, and the noise.

    Length scales are of columns of unit spread, the noise is over the signal's variance.
    """
    from scipy.optimize import minimize

    taken = _choose(len(rows), _TUNING_ROWS, seed)
    part = rows[taken][:, list(columns)].astype(float)
    varying = part.std(axis=0) > 1e-6
    part = part[:, varying]
    shift, scale, noise = part.mean(axis=0), part.std(axis=0), 1.0
    if varying.any():
        chosen, counts = values[taken], (1, len(scale), 1)
        data = (part - shift) / scale, (chosen - chosen.mean()) / (float(chosen.std()) or 1.0)
        start, bounds = np.repeat(_START, counts), np.repeat(_BOUNDS, counts, axis=0)
        how: Any = {"jac": True, "method": "L-BFGS-B", "bounds": np.log(bounds)}
        best = np.exp(minimize(_loss, np.log(start), data, **how).x)
        scale, noise = scale * best[1:-1], float(best[-1] / best[0])
    varied, none = np.asarray(columns, np.intp)[varying], np.zeros(0, np.float32)
    units = shift.astype(np.float32), scale.astype(np.float32)
    return GaussianProcessMean(varied, *units, none.reshape(0, len(varied)), none, 0.0), noise


def fit_gp_mean(
    rows: Float32, values: Array, weights: Array, tuned: TunedProcess, seed: int
) -> GaussianProcessMean:
    """Mean of a ``tuned`` process on inducing rows (subset of regressors).

    Rows of small weight count as noisier. Solved in double precision, served in single.
    """
    gp_mean, noise = tuned
    level = float(np.average(values, weights=weights))
    if len(gp_mean.columns) == 0:
        return replace(gp_mean, level=level)
    scaled = gp_mean.scaled(rows)
    inducing = scaled[_choose(len(rows), _POINTS, seed)]
    normal = noise * matern(inducing, inducing).astype(float)
    right = np.zeros(len(inducing))
    for start in range(0, len(scaled), 4096):
        part = slice(start, start + 4096)
        block = matern(scaled[part], inducing).astype(float)
        weighted = block * (weights[part] / weights.mean())[:, None]
        normal += weighted.T @ block
        right += weighted.T @ (values[part] - level)
    normal[np.diag_indices_from(normal)] += 1e-5 * np.trace(normal) / len(normal)
    solved = np.linalg.solve(normal, right).astype(np.float32)
    return replace(gp_mean, points=inducing, weights=solved, level=level)
