"""Fit a composition to networks that were measured whole, their cells predicted without them.

How errors of cells go together is assumed (``SHARED``): fitted, it served the gate worse
(experiments/tried_in_vain.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.composition import (
    CALIBRATED_AT,
    Composition,
    SummedNetwork,
    machine_composition,
)
from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior
from hybridlat.estimate.gate import Projection, by_worth
from hybridlat.model.conformal import conformal_quantile, normal_quantile, rank_of

_STAGES = (0.0, 0.1, 0.3, 1.0)
"""Shares of a network's cells, the most worthwhile measured, at which intervals are calibrated."""
_RATIO_SPREAD, _USUAL_SPREAD, _OWN_SPREAD = 0.1, 0.05, 0.02
"""Before any network says so: of the logarithm of a ratio around 1, of networks without
convolutions, and of others."""
_LEAST_SPREAD = 1e-3  # by which networks err that agree with their cells, or are alone
_DEGREES = 4.0  # of freedom, of what cells leave of networks


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

    @cached_property
    def unconvolved_share(self) -> float:
        """Part of the measured time, 0..1, in cells without a convolution."""
        each_us = zip(self.cells, self.measured, strict=True)
        others_us = math.fsum(c.count * us for c, (us, _) in each_us if not c.convolves)
        return others_us / self.sum_of_measured_us

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
    """Scale and interval of a target; the scale is found as that of a machine in use."""
    ordered = sorted(networks, key=lambda n: (n.name, n.latency_us))
    if not ordered:
        return Composition(confidence=confidence)
    ratio, spread = fit_unconvolved(ordered)
    plain = Composition(unconvolved_ratio=ratio)
    summed = [
        SummedNetwork(
            n.latency_us, plain.of_network(n.unconvolved_share).latency_us(n.sum_of_measured_us)
        )
        for n in ordered
    ]
    general = replace(
        machine_composition(summed, 0.0),
        confidence=confidence,
        degrees=None,
        unconvolved_ratio=ratio,
        unconvolved_spread=spread,
    )
    parts, scores = ({stage: list[float]() for stage in _STAGES} for _ in range(2))
    for network in ordered:
        posterior = general.start(network.cells)
        for stage in _STAGES:
            posterior = measure_greedily(posterior, network, cells_at(stage, len(network.cells)))
            if not posterior.complete:
                continue  # no latency yet: such a network is never judged in this state
            base, total = general.for_cells(posterior), posterior.sum_us
            of_cells, variance = base.variances(posterior.variance_share, total)
            error = abs(math.log(network.latency_us / base.latency_us(total)))
            parts[stage].append(of_cells / variance)
            scores[stage].append(error / math.sqrt(variance))
    # Scale and spread were fitted to the same networks: two degrees of freedom.
    fitted = math.sqrt((len(ordered) + 2.0) / max(len(ordered) - 2.0, 1.0))
    # Sixty networks fix a 90 % quantile to within 4 points of coverage. The stages are of the same
    # networks, so each is drawn half-way to all together.
    together = _multiplier([s for stage in _STAGES for s in scores[stage]], confidence)
    own = {stage: _multiplier(scores[stage], confidence) for stage in _STAGES if scores[stage]}
    multipliers = {stage: fitted * (alone + together) / 2 for stage, alone in own.items()}
    quantiles = sorted((float(np.mean(parts[stage])), q) for stage, q in multipliers.items())
    relative = [s / q for stage, q in multipliers.items() for s in scores[stage]]
    level_of: dict[float, float] = {}  # by factor, of those that so many networks can promise
    for level in sorted({*CALIBRATED_AT, confidence}) if relative else ():
        if rank_of(len(ordered), level) <= len(ordered):
            level_of.setdefault(conformal_quantile(relative, level), level)
    levels = tuple((level, factor) for factor, level in level_of.items() if factor > 0)
    return replace(general, quantiles=tuple(quantiles), levels=levels)


def fit_unconvolved(networks: Sequence[HeldOutNetwork]) -> tuple[float, float]:
    """How much longer cells without a convolution take in a network than alone, and the spread.

    The likeliest, where ln(network / sum of its cells) errs as Student's distribution: by a part
    that all networks have, and one that grows with the share of such cells.
    """
    from scipy.optimize import minimize

    shares = np.array([n.unconvolved_share for n in networks])
    logs = np.array([math.log(n.latency_us / n.sum_of_measured_us) for n in networks])

    def surprise(terms: NDArray[np.float64]) -> float:
        level, log_ratio, log_own, log_spread = terms
        variances = np.exp(2 * log_own) + (np.exp(log_spread) * shares) ** 2 + _LEAST_SPREAD**2
        errors = logs - level - np.log1p(np.expm1(log_ratio) * shares)
        tails = (_DEGREES + 1) * np.log1p(errors**2 / (_DEGREES * variances))
        prior = (log_ratio / _RATIO_SPREAD) ** 2 + (log_spread - math.log(_USUAL_SPREAD)) ** 2
        return float(np.sum(np.log(variances) + tails) + prior) / 2

    start = [float(np.median(logs)), 0.0, math.log(_OWN_SPREAD), math.log(_USUAL_SPREAD)]
    _, log_ratio, _, log_spread = minimize(surprise, start, method="Nelder-Mead").x
    return math.exp(log_ratio), math.exp(log_spread)


def _multiplier(scores: Sequence[float], confidence: float) -> float:
    """The conformal quantile; where there are too few scores, a normal one widened for that."""
    count = len(scores)
    if rank_of(count, confidence) <= count:
        return conformal_quantile(scores, confidence)
    spread = math.sqrt((sum(s * s for s in scores) + 4.0) / (count + 4.0))
    return max(normal_quantile(confidence) * spread * (1.0 + 1.0 / (count + 1)), *scores)
