"""The mean of a Gaussian process as plain arrays: what of a latency is smooth in its shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
CHUNK = 1024  # rows at a time, so that a block of kernel values stays in the cache


def squared_distances(left: Floats, right: Floats) -> Floats:
    """All squared distances between two sets of points."""
    product: Floats = left @ right.T
    product *= -2
    product += (left * left).sum(axis=1)[:, None]
    product += (right * right).sum(axis=1)[None, :]
    np.maximum(product, 0, out=product)
    return product


def matern(left: Floats, right: Floats) -> Floats:
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

    columns: NDArray[np.intp]
    shift: Floats
    scale: Floats
    points: Floats
    weights: Floats
    level: float

    def scaled(self, rows: Floats) -> Floats:
        return (rows[:, self.columns] - self.shift) / self.scale

    def predict(self, rows: Floats, chunk: int = CHUNK) -> Array:
        """The mean at each row; with a ``chunk`` of 1 no bit of it hangs on the other rows."""
        result = np.full(len(rows), self.level)
        if len(self.points):
            for start in range(0, len(rows), chunk):
                part = slice(start, start + chunk)
                result[part] += matern(self.scaled(rows[part]), self.points) @ self.weights
        return result
