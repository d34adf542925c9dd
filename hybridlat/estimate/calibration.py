"""Fit a composition to networks that were measured whole, their cells predicted without them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from hybridlat.estimate.compose import fitting
from hybridlat.estimate.compose.composition import CALIBRATED_AT, Composition
from hybridlat.estimate.compose.posterior import CellPrior, Correlation, ErrorPosterior
from hybridlat.estimate.gate import Projection
from hybridlat.model.conformal import conformal_quantile, normal_quantile, rank_of

STAGES = (0.0, 0.1, 0.3, 1.0)
"""Shares of a network's cells, the most worthwhile measured, at which intervals are calibrated."""
_KEPT = (1.0, 0.5, 0.25, 0.0)
_MOVED = (0.0, 0.5, 1.0)
_SETTLING_SHARES = (0.05, 0.1, 0.2, 0.3)


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
        gains = Projection(posterior, Composition()).gains(posterior.unmeasured)
        best = unknown[0] if unknown else posterior.unmeasured[int(gains.argmax())]
        posterior = posterior.observe(network.truth([best]))
    return posterior


def tune_network_correlation(
    networks: Sequence[HeldOutNetwork], fitted: Correlation
) -> Correlation:
    """The fitted correlation with less shared by networks, or by kinds instead, if that is better.

    Likelihood gives that part too much where one family of networks errs together.
    """
    best, least = fitted, math.inf
    for kept, moved in itertools.product(_KEPT, _MOVED):
        network = fitted.network * kept
        most = 0.95 - fitted.near - network
        kind = min(fitted.kind + (fitted.network - network) * moved, most)
        tried = structs.replace(fitted, network=network, kind=kind)
        error = _error_left(networks, tried)
        if error < least - 1e-12:
            best, least = tried, error
    return best


def _error_left(networks: Sequence[HeldOutNetwork], correlation: Correlation) -> float:
    """Sum over shares of the RMS error of the networks' sums, single errors capped at 20 %."""
    squares = np.zeros(len(_SETTLING_SHARES))
    for network in networks:
        posterior = ErrorPosterior.start(network.cells, correlation)
        for index, share in enumerate(_SETTLING_SHARES):
            posterior = measure_greedily(posterior, network, cells_at(share, len(network.cells)))
            error = posterior.sum_us / network.sum_of_measured_us - 1.0
            squares[index] += min(abs(error), 0.2) ** 2
    return float(np.sqrt(squares / max(len(networks), 1)).sum())


def fit_composition(networks: Sequence[HeldOutNetwork], confidence: float = 0.9) -> Composition:
    """Constants, correlation of errors and interval; networks are judged by constants without."""
    ordered = sorted(networks, key=lambda n: (n.name, n.latency_us))
    if not ordered:
        return Composition(confidence=confidence)
    cells = [[(c, us) for c, (us, _) in zip(n.cells, n.measured, strict=True)] for n in ordered]
    correlation = tune_network_correlation(ordered, fitting.fit_correlation(cells))
    sums = np.array([n.sum_of_measured_us for n in ordered])
    latencies = np.array([n.latency_us for n in ordered])
    overhead, scale = fitting.fit_constants(sums, latencies)
    without = fitting.leave_one_out(sums, latencies)
    each = zip(latencies, sums, without, strict=True)
    residuals = np.array([math.log(t / (o + s * x)) for t, x, (o, s) in each])
    base = Composition(
        overhead_us=overhead,
        scale=scale,
        confidence=confidence,
        residual_share=fitting.pooled_spread(residuals),
        networks=len(ordered),
        correlation=correlation,
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
    # Spread and correlation were fitted to the same networks: about three degrees of freedom.
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
    multipliers: dict[float, float] = {}
    for level in sorted({*CALIBRATED_AT, confidence}) if relative else ():
        if rank_of(networks, level) <= networks:
            multiplier = conformal_quantile(relative, level)
            if multiplier > max(multipliers.values(), default=0.0):
                multipliers[level] = multiplier
    return tuple(multipliers.items())


def _multiplier(scores: Sequence[float], confidence: float) -> float:
    """The conformal quantile; where there are too few scores, a normal one widened for that."""
    count = len(scores)
    if rank_of(count, confidence) <= count:
        return conformal_quantile(scores, confidence)
    spread = math.sqrt((sum(s * s for s in scores) + 4.0) / (count + 4.0))
    return max(normal_quantile(confidence) * spread * (1.0 + 1.0 / (count + 1)), *scores)
