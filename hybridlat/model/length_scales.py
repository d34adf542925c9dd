"""Length scales of a Gaussian process by marginal likelihood, quickly.

The gradient for all length scales together is a matrix product: with W a weight for each pair of
rows, Σ W(x−x')² over pairs is 2·(Σ x²·W1 − xᵀWx), so no array of pairs × features is ever made.
Formulas: Rasmussen & Williams, "Gaussian Processes for Machine Learning", 2006, sections 4.2, 5.4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.gaussian_process import Array

START_SCALE = 4.0
START_NOISE = 0.05
SCALE_BOUNDS = (0.5, 100.0)
VARIANCE_BOUNDS = (1e-5, 1e5)


def tune(rows: Array, values: Array, noise_bounds: tuple[float, float]) -> tuple[Array, float]:
    """Length scales (one a column) of a Matérn 3/2 process, and its noise to signal variance.

    ``rows`` should have columns of about unit spread; ``values`` are brought to mean 0 and spread
    1 here, and ``noise_bounds`` hold for the noise variance in those units.
    """
    from scipy.optimize import minimize

    spread = float(values.std()) or 1.0
    standard = (values - values.mean()) / spread
    columns = rows.shape[1]
    start = np.log([1.0, *[START_SCALE] * columns, START_NOISE])
    bounds = [VARIANCE_BOUNDS, *[SCALE_BOUNDS] * columns, noise_bounds]
    found: Any = minimize(
        _loss, start, args=(rows, standard), jac=True, method="L-BFGS-B",
        bounds=[(math.log(low), math.log(high)) for low, high in bounds],
    )  # fmt: skip
    best = np.exp(found.x)
    return np.asarray(best[1:-1], np.float64), float(best[-1] / best[0])


def _loss(
    logs: NDArray[np.float64], rows: Array, values: Array
) -> tuple[float, NDArray[np.float64]]:
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
    of_scales = np.square(points).T @ pairs.sum(axis=1) - np.einsum(
        "ij,ij->j", points, pairs @ points
    )
    gradient = np.concatenate(
        [[0.5 * float((outer * signal).sum())], of_scales, [0.5 * noise * float(np.trace(outer))]]
    )
    return loss, gradient
