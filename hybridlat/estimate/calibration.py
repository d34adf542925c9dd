"""Fit a composition to networks that were measured whole, their cells predicted without them.

How errors of cells go together is assumed (``Correlation``): fitted, it served the gate worse
(experiments/tried_in_vain.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hybridlat.estimate.compose.composition import CALIBRATED_AT, PRIOR_RESIDUAL, Composition
from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior, Matrix
from hybridlat.estimate.gate import Projection, by_worth
from hybridlat.model.conformal import conformal_quantile, normal_quantile, rank_of

STAGES = (0.0, 0.1, 0.3, 1.0)
"""Shares of a network's cells, the most worthwhile measured, at which intervals are calibrated."""
_PRIOR_NETWORKS = 4
_PRIOR_SCALE_SPREAD = 0.1
_PRIOR_OVERHEAD_SPREAD = 0.05  # of the smallest network's latency
_HUBER = 1.5


@dataclass(frozen=True)
class HeldOutNetwork:
    """A network with its ``cells`` as a model without it states them, and (µs, noise) of each."""

    name: str
    latency_us: float
    cells: tuple[CellPrior, ...]
    measured: tuple[tuple[float, float], ...]

    @property
    def sum_of_measured_us(self) -> float:
        return sum(c.count * us for c, (us, _) in zip(self.cells, self.measured, strict=True))

    def truth(self, positions: Sequence[int]) -> dict[int, tuple[float, float]]:
        return {i: self.measured[i] for i in positions}


def cells_at(share: float, cells: int) -> int:
    """The number of distinct cells that is a share of them: at least one when above 0."""
    return math.ceil(share * cells - 1e-9)


def measure_greedily(
    posterior: ErrorPosterior, network: HeldOutNetwork, measured: int
) -> ErrorPosterior:
    """The posterior with so many cells measured one by one, unknown ones first, then by worth."""
    while len(posterior.measured) < measured and posterior.unmeasured:
        unknown = [i for i in posterior.required if posterior.priors[i].latency_us is None]
        first, _ = next(by_worth(Projection(posterior, Composition()), posterior.unmeasured))
        best = unknown[0] if unknown else posterior.unmeasured[first]
        posterior = posterior.observe(network.truth([best]))
    return posterior


def fit_composition(networks: Sequence[HeldOutNetwork], confidence: float = 0.9) -> Composition:
    """Constants and interval; networks are judged by constants without."""
    ordered = sorted(networks, key=lambda n: (n.name, n.latency_us))
    if not ordered:
        return Composition(confidence=confidence)
    sums = np.array([n.sum_of_measured_us for n in ordered])
    latencies = np.array([n.latency_us for n in ordered])
    overhead, scale = fit_constants(sums, latencies)
    without = leave_one_out(sums, latencies)
    each = zip(latencies, sums, without, strict=True)
    residuals = np.array([math.log(t / (o + s * x)) for t, x, (o, s) in each])
    base = Composition(
        overhead_us=overhead,
        scale=scale,
        confidence=confidence,
        residual_share=pooled_spread(residuals),
        networks=len(ordered),
    )
    return _calibrated(ordered, base, without)


def _calibrated(
    networks: Sequence[HeldOutNetwork], base: Composition, without: Sequence[tuple[float, float]]
) -> Composition:
    parts, scores = ({stage: list[float]() for stage in STAGES} for _ in range(2))
    for network, (overhead, scale) in zip(networks, without, strict=True):
        alone = replace(base, overhead_us=overhead, scale=scale)
        posterior = alone.start(network.cells)
        for stage in STAGES:
            posterior = measure_greedily(posterior, network, cells_at(stage, len(network.cells)))
            if not posterior.complete:
                continue  # no latency yet: such a network is never judged in this state
            total = posterior.sum_us
            of_cells, variance = alone.variances(posterior.variance_share, total)
            error = abs(math.log(network.latency_us / alone.latency_us(total)))
            parts[stage].append(of_cells / variance)
            scores[stage].append(error / math.sqrt(variance))
    # Constants and spread were fitted to the same networks: three degrees of freedom.
    fitted = math.sqrt((len(networks) + 3.0) / max(len(networks) - 3.0, 1.0))
    # Sixty networks fix a 90 % quantile to within 4 points of coverage. The stages are of the same
    # networks, so each is drawn half-way to all together.
    together = _multiplier([s for stage in STAGES for s in scores[stage]], base.confidence)
    own = {stage: _multiplier(scores[stage], base.confidence) for stage in STAGES if scores[stage]}
    multipliers = {stage: fitted * (alone + together) / 2 for stage, alone in own.items()}
    quantiles = sorted((float(np.mean(parts[stage])), q) for stage, q in multipliers.items())
    relative = [s / q for stage, q in multipliers.items() for s in scores[stage]]
    levels = _levels(relative, base.confidence, len(networks))
    return replace(base, quantiles=tuple(quantiles), levels=levels)


def _levels(
    relative: Sequence[float], confidence: float, networks: int
) -> tuple[tuple[float, float], ...]:
    """(confidence, factor) at every level that so many networks can promise, for all stages."""
    known: dict[float, float] = {}
    for level in sorted({*CALIBRATED_AT, confidence}) if relative else ():
        if rank_of(networks, level) <= networks:
            known.setdefault(conformal_quantile(relative, level), level)
    return tuple((level, factor) for factor, level in known.items() if factor > 0)


def _multiplier(scores: Sequence[float], confidence: float) -> float:
    """The conformal quantile; where there are too few scores, a normal one widened for that."""
    count = len(scores)
    if rank_of(count, confidence) <= count:
        return conformal_quantile(scores, confidence)
    spread = math.sqrt((sum(s * s for s in scores) + 4.0) / (count + 4.0))
    return max(normal_quantile(confidence) * spread * (1.0 + 1.0 / (count + 1)), *scores)


def fit_constants(sums_us: Matrix, latencies_us: Matrix) -> tuple[float, float]:
    """Overhead (µs, never negative) and scale that minimise the robust relative error.

    Huber's loss by iterated reweighting, with normal priors around 0 and 1.
    """
    if not len(sums_us):
        return 0.0, 1.0
    overhead_spread = _PRIOR_OVERHEAD_SPREAD * float(latencies_us.min())
    overhead, scale = 0.0, 1.0
    for _ in range(50):
        residual = (overhead + scale * sums_us) / latencies_us - 1.0
        sigma = pooled_spread(residual)
        weight = np.minimum(1.0, _HUBER * sigma / np.maximum(np.abs(residual), 1e-12))
        design = np.column_stack([1.0 / latencies_us, sums_us / latencies_us])
        weighted, pull = design * weight[:, None], sigma**2 / _PRIOR_SCALE_SPREAD**2
        normal = weighted.T @ design + np.diag([sigma**2 / overhead_spread**2, pull])
        right = weighted.sum(axis=0) + np.array([0.0, pull])
        constants = np.linalg.solve(normal, right)
        if constants[0] < 0:  # a network cannot take less than its cells: refit the scale alone
            constants = np.array([0.0, right[1] / normal[1, 1]])
        moved = abs(constants[0] - overhead) / latencies_us.min() + abs(constants[1] - scale)
        overhead, scale = float(constants[0]), float(constants[1])
        if moved < 1e-10:
            break
    return overhead, max(scale, 1e-3)


def pooled_spread(residuals: Matrix) -> float:
    """Robust standard deviation around zero, pooled with a prior of four networks at 5 %."""
    size = np.abs(residuals)
    cap = 3.0 * max(1.4826 * float(np.median(size)), 1e-3)
    squares = float((np.minimum(size, cap) ** 2).sum())
    prior = _PRIOR_NETWORKS * PRIOR_RESIDUAL**2
    return math.sqrt((squares + prior) / (len(residuals) + _PRIOR_NETWORKS))


def leave_one_out(sums_us: Matrix, latencies_us: Matrix) -> list[tuple[float, float]]:
    """The constants fitted without each network in turn, in order."""
    every = np.arange(len(sums_us))
    return [fit_constants(sums_us[every != i], latencies_us[every != i]) for i in every]
