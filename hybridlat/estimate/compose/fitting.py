"""Fit the constants and the correlation of cell errors to networks that the model had not seen.

The correlation is of maximum likelihood under a multivariate Student distribution of each network's
errors, by coordinate descent over a fixed grid, with a weak pull towards the defaults.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hybridlat.estimate.compose import posterior
from hybridlat.estimate.compose.composition import PRIOR_RESIDUAL
from hybridlat.estimate.compose.posterior import CellPrior, Correlation, Matrix

_PRIOR_NETWORKS = 4
_PRIOR_SCALE_SPREAD = 0.1
_PRIOR_OVERHEAD_SPREAD = 0.05  # of the smallest network's latency
_HUBER = 1.5
_GRIDS: dict[str, tuple[float, ...]] = {
    "network": (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6),
    "kind": (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6),
    "near": (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9),
    "length_scale": (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.5),
    "inflation": (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 4.5),
    "untrusted_factor": (1.0, 1.25, 1.5, 2.0, 2.5, 3.0),
    "degrees": (4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0),
}
_PULL = {"network": 5.0, "kind": 5.0, "near": 2.0, "degrees": 0.01}
_PULL |= dict.fromkeys(("length_scale", "inflation", "untrusted_factor"), 0.5)
_SCALES = ("length_scale", "inflation", "untrusted_factor", "degrees")  # pulled in ratio
_MOST_SHARED = 0.95
_MOST_CELLS = 80
_CLIP = 4.0
_SWEEPS = 4


class _Sample:
    """Standardised errors of one network with what the correlation needs of its cells."""

    def __init__(self, cells: Sequence[tuple[CellPrior, float]]) -> None:
        ordered = sorted(cells, key=lambda item: (-item[0].count * item[1], item[0].signature))
        priors, errors = list[CellPrior](), list[float]()
        for prior, measured_us in ordered:
            is_predicted = prior.source == "predicted" and prior.spread_share > 0
            if is_predicted and prior.latency_us is not None and len(priors) < _MOST_CELLS:
                priors.append(prior)
                errors.append(math.log(measured_us / prior.latency_us) / prior.spread_share)
        self.errors: Matrix = np.clip(np.array(errors), -_CLIP, _CLIP)
        self.strange = np.array([not prior.trusted for prior in priors], dtype=bool)
        self.kinds = posterior.kind_similarity(priors)
        self.squared = posterior.squared_distances(priors)

    def log_likelihood(self, chosen: Correlation) -> float:
        count, degrees = len(self.errors), chosen.degrees
        root = np.linalg.cholesky(chosen.between(self.kinds, self.squared))
        white = np.linalg.solve(
            root, self.errors / np.where(self.strange, chosen.untrusted_factor, 1.0)
        )
        surprise = float(white @ white) / chosen.inflation
        log_determinant = 2.0 * float(np.log(np.diag(root)).sum())
        log_determinant += count * math.log(chosen.inflation)
        log_determinant += 2.0 * int(self.strange.sum()) * math.log(chosen.untrusted_factor)
        return (
            math.lgamma((degrees + count) / 2)
            - math.lgamma(degrees / 2)
            - count / 2 * math.log(degrees * math.pi)
            - log_determinant / 2
            - (degrees + count) / 2 * math.log1p(surprise / degrees)
        )


def fit_correlation(networks: Sequence[Sequence[tuple[CellPrior, float]]]) -> Correlation:
    """The correlation under which the errors of held-out networks are most likely.

    Each network is a list of (cell as it was predicted, measured latency in µs), of which the 80
    predicted ones with most time are used. Fewer than two such networks give the defaults.
    """
    best = default = Correlation()
    samples = [sample for sample in map(_Sample, networks) if len(sample.errors) > 1]
    if len(samples) < 2:
        return default

    def score(chosen: Correlation) -> float:
        pull = sum(
            weight * math.log(getattr(chosen, name) / getattr(default, name)) ** 2
            if name in _SCALES
            else weight * (getattr(chosen, name) - getattr(default, name)) ** 2
            for name, weight in _PULL.items()
        )
        return sum(s.log_likelihood(chosen) for s in samples) - pull

    reached = score(best)
    for _ in range(_SWEEPS):
        before = best
        for name, grid in _GRIDS.items():
            for value in grid:
                tried = structs.replace(best, **{name: value})
                if tried.network + tried.kind + tried.near > _MOST_SHARED or tried == best:
                    continue
                likelihood = score(tried)
                if likelihood > reached + 1e-9:
                    best, reached = tried, likelihood
        if best == before:
            break
    return best


def fit_constants(
    sums_us: NDArray[np.float64], latencies_us: NDArray[np.float64]
) -> tuple[float, float]:
    """Overhead (µs, never negative) and scale that minimise the robust relative error.

    Huber's loss by iterated reweighting, with normal priors around 0 and 1.
    """
    count = len(sums_us)
    if count == 0:
        return 0.0, 1.0
    overhead_spread = _PRIOR_OVERHEAD_SPREAD * float(latencies_us.min())
    overhead, scale = 0.0, 1.0
    for _ in range(50):
        residual = (overhead + scale * sums_us) / latencies_us - 1.0
        sigma = pooled_spread(residual)
        weight = np.minimum(1.0, _HUBER * sigma / np.maximum(np.abs(residual), 1e-12))
        design = np.column_stack([1.0 / latencies_us, sums_us / latencies_us])
        normal = (design * weight[:, None]).T @ design
        right = (design * weight[:, None]).sum(axis=0)
        pull = sigma**2 / _PRIOR_SCALE_SPREAD**2
        normal = normal + np.diag([sigma**2 / overhead_spread**2, pull])
        right = right + np.array([0.0, pull])
        constants = np.linalg.solve(normal, right)
        if constants[0] < 0:  # a network cannot take less than its cells: refit the scale alone
            constants = np.array([0.0, right[1] / normal[1, 1]])
        moved = abs(constants[0] - overhead) / latencies_us.min() + abs(constants[1] - scale)
        overhead, scale = float(constants[0]), float(constants[1])
        if moved < 1e-10:
            break
    return overhead, max(scale, 1e-3)


def pooled_spread(residuals: NDArray[np.float64]) -> float:
    """Robust standard deviation around zero, pooled with a prior of four networks at 5 %."""
    size = np.abs(residuals)
    cap = 3.0 * max(1.4826 * float(np.median(size)), 1e-3)
    squares = float((np.minimum(size, cap) ** 2).sum())
    prior = _PRIOR_NETWORKS * PRIOR_RESIDUAL**2
    return math.sqrt((squares + prior) / (len(residuals) + _PRIOR_NETWORKS))


def leave_one_out(
    sums_us: NDArray[np.float64], latencies_us: NDArray[np.float64]
) -> list[tuple[float, float]]:
    """The constants fitted without each network in turn, in order."""
    every = np.arange(len(sums_us))
    return [fit_constants(sums_us[every != i], latencies_us[every != i]) for i in every]
