"""From cells to the network: ``latency = overhead + scale × Σ cells``, with an interval.

The two constants are fitted per target on whole networks that were measured, to the relative error,
and pulled towards 0 and 1 where there are few of them. The interval joins two sources: the cells'
errors, whose shared part does not average out (see belief.py), and what the composition itself gets
wrong, known from networks left out of the fit. Its multiplier is a conformal quantile of held-out
networks, so that it holds what it says whatever the shape of the errors.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import InputError
from hybridlat.estimate.posterior import Belief, CellFacts, Correlation, variance_of

COMPOSITION_FORMAT = 1
_PRIOR_RESIDUAL = 0.05  # what a composition is taken to err by before any network says so
_PRIOR_NETWORKS = 4
_PRIOR_SCALE_SPREAD = 0.1
_PRIOR_OVERHEAD_SPREAD = 0.05  # of the smallest network's latency
_HUBER = 1.5


@dataclass(frozen=True, slots=True)
class NetworkInterval:
    """Latency of a network with its interval.

    ``half_width_share`` is the larger relative distance of an end from ``latency_us``.
    """

    latency_us: float
    interval_us: tuple[float, float]
    half_width_share: float
    sum_of_cells_us: float


@dataclass(frozen=True)
class Composition:
    """The constants and the calibration of one target; ``networks`` were used to fit them.

    ``residual_share`` is the spread of ln(true / composed) of networks left out of the fit, all
    cells measured. ``quantiles`` are (x, q): the interval is exp(±q·σ) where x, 0..1, is the
    cells' part of σ²; between the given x, q is interpolated.
    """

    overhead_us: float = 0.0
    scale: float = 1.0
    confidence: float = 0.9
    residual_share: float = _PRIOR_RESIDUAL
    networks: int = 0
    correlation: Correlation = field(default_factory=Correlation)
    quantiles: tuple[tuple[float, float], ...] = ()

    def latency_us(self, sum_of_cells_us: float) -> float:
        """Latency of a network whose cells sum to that."""
        return self.overhead_us + self.scale * sum_of_cells_us

    def start(self, facts: Sequence[CellFacts]) -> Belief:
        """The belief about the cells of a network, with this target's correlation."""
        return Belief.start(facts, self.correlation)

    def spread_share(self, cells_variance: float, sum_of_cells_us: float) -> tuple[float, float]:
        """Standard error of ln(latency), and the cells' part of its square."""
        composed = self.latency_us(sum_of_cells_us)
        lever = self.scale * sum_of_cells_us / composed if composed > 0 else 1.0
        cells = cells_variance * lever**2
        total = cells + self.residual_share**2
        return math.sqrt(total), (cells / total if total > 0 else 0.0)

    def multiplier(self, cells_part: float) -> float:
        """How many standard errors the interval reaches, where the cells are that part of σ²."""
        if not self.quantiles:
            return normal_quantile(self.confidence)
        points, values = zip(*self.quantiles, strict=True)
        return float(np.interp(cells_part, points, values))

    def at(self, confidence: float) -> Composition:
        """The same composition with intervals of another confidence.

        Its multipliers are scaled as a normal distribution's would be: between 0.5 and 0.99 that
        is close, and no held-out network has been asked about it.
        """
        if confidence == self.confidence:
            return self
        ratio = normal_quantile(confidence) / normal_quantile(self.confidence)
        scaled = tuple((x, q * ratio) for x, q in self.quantiles)
        return replace(self, confidence=confidence, quantiles=scaled)

    def half_width_share(self, cells_variance: float, sum_of_cells_us: float) -> float:
        """Relative half-width of the interval, upper side (the larger one)."""
        spread, part = self.spread_share(cells_variance, sum_of_cells_us)
        return math.expm1(min(self.multiplier(part) * spread, 50.0))

    def interval(self, belief: Belief) -> NetworkInterval:
        """Latency and interval of the network that a belief describes.

        Cells of which nothing is known count nothing: ask ``belief.complete`` before trusting it.
        """
        total = belief.sum_us
        latency = self.latency_us(total)
        variance = variance_of(belief.uses_us, belief.covariance)
        half = self.half_width_share(variance, total)
        return NetworkInterval(latency, (latency / (1 + half), latency * (1 + half)), half, total)

    def to_json(self) -> dict[str, object]:
        return {
            "format": COMPOSITION_FORMAT,
            "overhead_us": self.overhead_us,
            "scale": self.scale,
            "confidence": self.confidence,
            "residual_share": self.residual_share,
            "networks": self.networks,
            "correlation": self.correlation.to_json(),
            "quantiles": [list(pair) for pair in self.quantiles],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, object]) -> Composition:
        """Read back ``to_json``; InputError for another format or a missing value."""
        if body.get("format") != COMPOSITION_FORMAT:
            raise InputError(
                f"composition format {body.get('format')!r} is not {COMPOSITION_FORMAT}: "
                "train the target again with this version"
            )
        try:
            pairs: list[list[float]] = body["quantiles"]  # type: ignore[assignment]
            shared: dict[str, float] = body["correlation"]  # type: ignore[assignment]
            return cls(
                overhead_us=_number(body["overhead_us"]),
                scale=_number(body["scale"]),
                confidence=_number(body["confidence"]),
                residual_share=_number(body["residual_share"]),
                networks=int(_number(body["networks"])),
                correlation=Correlation.from_json(shared),
                quantiles=tuple((float(x), float(q)) for x, q in pairs),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the composition is damaged: {error!r}") from error


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def normal_quantile(confidence: float) -> float:
    """Two-sided quantile of the normal distribution: 1.645 at 0.9."""
    return statistics.NormalDist().inv_cdf(0.5 + confidence / 2)


def conformal_quantile(scores: Sequence[float], confidence: float) -> float | None:
    """The ⌈(n+1)·confidence⌉-th smallest score; None where n scores cannot promise that much.

    Source: Vovk, Gammerman & Shafer, "Algorithmic Learning in a Random World", 2005.
    """
    rank = math.ceil((len(scores) + 1) * confidence - 1e-9)
    return None if rank > len(scores) else sorted(scores)[max(rank, 1) - 1]


def fit_constants(
    sums_us: NDArray[np.float64], latencies_us: NDArray[np.float64]
) -> tuple[float, float]:
    """Overhead (µs, never negative) and scale that minimise the robust relative error.

    Huber's loss by iterated reweighting, with normal priors around 0 and 1 whose weight depends
    on how well the networks agree: one network moves the constants little, thirty decide them.
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
        found = np.linalg.solve(normal, right)
        if found[0] < 0:  # a network cannot take less than its cells: refit the scale alone
            found = np.array([0.0, right[1] / normal[1, 1]])
        moved = abs(found[0] - overhead) / latencies_us.min() + abs(found[1] - scale)
        overhead, scale = float(found[0]), float(found[1])
        if moved < 1e-10:
            break
    return overhead, max(scale, 1e-3)


def pooled_spread(residuals: NDArray[np.float64]) -> float:
    """Robust standard deviation around zero, pooled with a prior of four networks at 5 %."""
    size = np.abs(residuals)
    cap = 3.0 * max(1.4826 * float(np.median(size)), 1e-3)
    squares = float((np.minimum(size, cap) ** 2).sum())
    prior = _PRIOR_NETWORKS * _PRIOR_RESIDUAL**2
    return math.sqrt((squares + prior) / (len(residuals) + _PRIOR_NETWORKS))


def leave_one_out(
    sums_us: NDArray[np.float64], latencies_us: NDArray[np.float64]
) -> list[tuple[float, float]]:
    """The constants fitted without each network in turn, in order."""
    every = np.arange(len(sums_us))
    return [fit_constants(sums_us[every != i], latencies_us[every != i]) for i in every]
