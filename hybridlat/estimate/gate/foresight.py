"""What is foreseen of a network's interval once some of its cells are measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior, Matrix

EXPECTED_NOISE_SHARE = 0.01
"""Relative noise that a cell is expected to have once measured."""


class Foresight:
    """Covariance of a network's cells with some of them taken as measured.

    ``reach`` is the covariance of each cell's error with that of the sum.
    """

    def __init__(
        self, posterior: ErrorPosterior, composition: Composition, covariance: Matrix | None = None
    ) -> None:
        self.posterior = posterior
        self.composition = composition
        self.covariance = posterior.covariance if covariance is None else covariance
        total = posterior.sum_us
        self.weights = posterior.uses_us / total if total > 0 else posterior.uses_us
        self.reach: Matrix = self.covariance @ self.weights
        self.variance = max(float(self.weights @ self.reach), 0.0)

    def width_of(self, variance: float) -> float:
        return self.composition.half_width_share(variance, self.posterior.sum_us)

    def widths_of(self, variances: Matrix) -> Matrix:
        sum_us = self.posterior.sum_us
        return self.composition.half_width_shares(np.maximum(variances, 0.0), sum_us)

    def after(self, positions: tuple[int, ...]) -> Foresight:
        """The state once these cells are measured with the usual noise."""
        if not positions:
            return self
        seen = list(positions)
        covariance = self.covariance - self.covariance[:, seen] @ np.linalg.solve(
            self._observed(seen), self.covariance[seen]
        )
        return Foresight(self.posterior, self.composition, covariance)

    def variance_after(self, positions: Sequence[int]) -> float:
        """The variance once these cells are measured: quicker than the whole state."""
        if not positions:
            return self.variance
        seen = list(positions)
        reach = self.reach[seen]
        known = float(reach @ np.linalg.solve(self._observed(seen), reach))
        return max(self.variance - known, 0.0)

    def _observed(self, seen: list[int]) -> Matrix:
        block = self.covariance[np.ix_(seen, seen)]
        return block + np.eye(len(seen)) * EXPECTED_NOISE_SHARE**2

    def gains(self, positions: list[int]) -> Matrix:
        """By how much measuring each alone would lower the variance."""
        own = np.diag(self.covariance)[positions] + EXPECTED_NOISE_SHARE**2
        return np.asarray(self.reach[positions] ** 2 / own)
