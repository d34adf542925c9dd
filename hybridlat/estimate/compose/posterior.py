"""The latencies of a network's cells, and how a measured cell teaches about the others.

The errors e = ln(true / predicted) of a network's cells are a multivariate Student process around
zero. Part of each cell's variance is shared with all other cells of its network, the rest is its
own. A measured cell conditions the process (simple kriging), and the common variance is rescaled by
the surprise (Shah, Wilson & Ghahramani, "Student-t processes as alternatives to Gaussian
processes", AISTATS 2014, formula 5).

A measured whole network is an observation of ln Σ uses·exp(e), linear to first order, whose weights
are taken anew where they move (Gauss and Newton's iteration). Measured cells stay.

With the gain K the errors left have the covariance (I − KH)·P·(I − KH)ᵀ + K·R·Kᵀ, whether or not K
is the best one (Bucy & Joseph, "Filtering for Stochastic Processes", 1968). So a cell that stays is
as unsure as before (Schmidt's filter, "Application of state-space methods to navigation problems",
1966).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from hybridlat.schema.structure import LatencySource

Matrix = NDArray[np.float64]
Block = tuple[list[int], Matrix]
"""Positions of cells, and the covariance of their errors where that is known as it is."""
SHARED = 0.15
"""Part of the variance of a cell's error that all cells of a network share. With 0.3, or more among
cells of one kind and near shapes, the gate measured as much and came as near
(experiments/tried_in_vain.md)."""
UNTRUSTED_FACTOR = 2.0
"""By which a cell far from all training is less sure: networks do not show it, lone kernels do."""
DEGREES = 16.0
"""Of freedom: networks differ in how wrong their cells are."""
_MOST_STEPS = 20
_STILL = 1e-9


@dataclass(frozen=True, slots=True)
class CellPrior:
    """One distinct cell of a network, as the gate sees it.

    ``latency_us`` is of one use, if known, ``spread_share`` the standard error of its logarithm,
    ``cost_s`` the device time of measuring it. ``kinds`` are shares of its time by kind of
    operator; ``reason`` says what a prediction rests on. ``convolves`` is False where no operator
    of the cell is a convolution.
    """

    signature: str
    count: int
    latency_us: float | None
    spread_share: float
    trusted: bool = True
    source: LatencySource = "predicted"
    cost_s: float = 1.0
    kinds: tuple[tuple[str, float], ...] = ()
    reason: str = ""
    convolves: bool = True


def convolves(text: str) -> bool:
    """Whether a cell of this signature text has a convolution."""
    return "Conv" in text


@dataclass(frozen=True, slots=True)
class CellSum:
    """What ``uses`` of each cell take together; ``noise_share``: standard error of ln(sum)."""

    uses: tuple[int, ...]
    latency_us: float
    noise_share: float


@dataclass(frozen=True, eq=False)
class ErrorPosterior:
    """Mean and covariance of ln(true / stated) of every cell of one network.

    Since the ``priors`` were stated, cells were ``measured`` (µs and relative noise by position),
    and ``sums`` of cells together.
    """

    priors: tuple[CellPrior, ...]
    measured: Mapping[int, tuple[float, float]]
    prior_covariance: Matrix
    mean: Matrix
    covariance: Matrix
    sums: tuple[CellSum, ...] = ()

    @classmethod
    def start(
        cls, priors: Sequence[CellPrior], shared_share: float = SHARED, block: Block | None = None
    ) -> "ErrorPosterior":
        factors = [1.0 if f.trusted else UNTRUSTED_FACTOR for f in priors]
        spread = np.array([f.spread_share for f in priors], dtype=float) * factors
        exact = np.array([f.source == "measured" for f in priors], dtype=bool)
        shared = np.full((len(priors), len(priors)), shared_share)
        shared[exact, :] = shared[:, exact] = 0.0
        np.fill_diagonal(shared, 1.0)
        prior_covariance = shared * np.outer(spread, spread)
        if block is not None:
            prior_covariance[block[0], :] = prior_covariance[:, block[0]] = 0.0
            prior_covariance[np.ix_(block[0], block[0])] = block[1]
        return cls(tuple(priors), {}, prior_covariance, np.zeros(len(priors)), prior_covariance)

    def observe(self, measured: Mapping[int, tuple[float, float]]) -> "ErrorPosterior":
        known = {**self.measured, **measured}
        mean: Matrix = np.zeros(len(self.priors))
        covariance = self.prior_covariance.copy()
        predicted_us = [f.latency_us if f.source == "predicted" else None for f in self.priors]
        stated = [(i, us, *known[i]) for i in sorted(known) if (us := predicted_us[i]) is not None]
        if stated:
            seen = [position for position, _, _, _ in stated]
            ratios = np.log([latency_us / us for _, us, latency_us, _ in stated])
            noise = np.diag([max(noise, 1e-4) ** 2 for _, _, _, noise in stated])
            observed = covariance[np.ix_(seen, seen)] + noise
            gain = np.linalg.solve(observed, covariance[seen]).T
            gain[seen] = np.eye(len(seen))  # a measured cell takes what was measured
            mean = np.asarray(gain @ ratios)
            surprise = float(ratios @ np.linalg.solve(observed, ratios))
            factor = (DEGREES + surprise) / (DEGREES + len(seen))
            kept = np.eye(len(self.priors))
            kept[:, seen] -= gain
            # What is surprising are the predictions: the noise is as it was stated.
            covariance = factor * kept @ covariance @ kept.T + gain @ noise @ gain.T
        for i, (_, noise_share) in known.items():
            if predicted_us[i] is None:
                covariance[i] = covariance[:, i] = 0.0
                covariance[i, i] = noise_share**2
        return replace(self, measured=known, mean=mean, covariance=covariance).after_sums(self.sums)

    def after_sums(self, sums: Sequence[CellSum]) -> "ErrorPosterior":
        """The posterior given sums of cells, which ``observe`` keeps to."""
        after = reduce(ErrorPosterior._after_sum, sums, self)
        return replace(after, sums=tuple(sums)) if sums else self

    def observe_total(self, sum_us: float, noise: float) -> "ErrorPosterior":
        """The posterior given the sum of all uses, with ``noise`` of ln(sum).

        ``observe`` forgets it. Beside an unknown cell it says nothing.
        """
        return self._after_sum(CellSum(tuple([f.count for f in self.priors]), sum_us, noise))

    def _after_sum(self, known: CellSum) -> "ErrorPosterior":
        counts, noise = np.array(known.uses, dtype=float), known.noise_share
        if np.isnan(self.latencies_us[counts > 0]).any():
            return self
        moves = np.array([not self.is_measured(i) for i in range(len(self.priors))])
        start, mean = self.mean, self.mean
        uses_us = np.nan_to_num(self.latencies_us) * counts
        for _ in range(_MOST_STEPS):
            weights = uses_us / uses_us.sum()
            reach = self.covariance @ weights
            # What the sum would be at the start, seen along the weights of the present guess.
            expected = math.log(float(uses_us.sum())) + float(weights @ (start - mean))
            variance = float(weights @ reach) + noise**2
            gain = np.where(moves, reach, 0.0) / (variance or 1.0)
            moved = start + gain * (math.log(known.latency_us) - expected)
            step = float(np.abs(moved - mean).max(initial=0.0))
            uses_us, mean = uses_us * np.exp(moved - mean), moved
            if step < _STILL:
                break
        kept = np.eye(len(gain)) - np.outer(gain, weights)
        covariance = kept @ self.covariance @ kept.T + noise**2 * np.outer(gain, gain)
        return replace(self, mean=mean, covariance=covariance)

    @cached_property
    def latencies_us(self) -> Matrix:
        """Of one use of each cell; NaN where nothing is known."""
        predicted = [math.nan if f.latency_us is None else f.latency_us for f in self.priors]
        latencies_us: Matrix = np.array(predicted, dtype=float) * np.exp(self.mean)
        for position, (latency_us, _) in self.measured.items():
            latencies_us[position] = latency_us
        return latencies_us

    @cached_property
    def uses_us(self) -> Matrix:
        """Of all uses of each cell; 0 where nothing is known."""
        counts = np.array([f.count for f in self.priors], dtype=float)
        return np.where(np.isnan(self.latencies_us), 0.0, self.latencies_us * counts)

    @cached_property
    def sum_us(self) -> float:
        return float(self.uses_us.sum())

    @property
    def unconvolved_share(self) -> float:
        """Part of the time, 0..1, in cells without a convolution, by the latencies known."""
        others = [i for i, one in enumerate(self.priors) if not one.convolves]
        return float(self.uses_us[others].sum() / (self.sum_us or 1.0))

    @cached_property
    def variance_share(self) -> float:
        """Variance of ln(sum of cells), to first order."""
        if self.sum_us <= 0:
            return 0.0
        weights = self.uses_us / self.sum_us
        return max(float(weights @ self.covariance @ weights), 0.0)

    def is_measured(self, position: int) -> bool:
        return position in self.measured or self.priors[position].source == "measured"

    @cached_property
    def unmeasured(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.priors)) if not self.is_measured(i))

    @cached_property
    def required(self) -> tuple[int, ...]:
        one = self.priors
        return tuple(i for i in self.unmeasured if one[i].latency_us is None or not one[i].trusted)

    @property
    def complete(self) -> bool:
        return not bool(np.isnan(self.latencies_us).any())

    @property
    def measured_share(self) -> float:
        measured = [i for i in range(len(self.priors)) if self.is_measured(i)]
        return float(self.uses_us[measured].sum() / self.sum_us) if self.sum_us > 0 else 0.0
