"""The cells of a network to measure so that its latency is known well enough.

The gate looks for the set of cells with the least device time after which the network's interval is
within the tolerance. A measurement is worth the drop of the network's variance, (K·w)ᵢ² / Kᵢᵢ with
K the covariance of the cells' errors and w their shares of the time. Unknown cells and those
outside what the model was trained on are always measured. So may be the network, at its own cost.

The caller goes round: ``next_step`` → measure → ``posterior.observe``, until nothing is left.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior, Matrix

EXPECTED_NOISE_SHARE = 0.01
"""Relative noise that a cell or a network is expected to have once measured."""
_CLOSE_ENOUGH = 1.02


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """Positions of cells to measure, by worth, with their device time and the interval after it."""

    positions: tuple[int, ...]
    cost_s: float
    half_width_share: float


@dataclass(frozen=True, slots=True)
class Step:
    """What to measure next: cells by position, and whether the network as a whole."""

    positions: tuple[int, ...] = ()
    network: bool = False

    def __bool__(self) -> bool:
        return self.network or bool(self.positions)


def plan(
    posterior: ErrorPosterior,
    composition: Composition,
    tolerance: float,
    refused: Collection[int] = (),
) -> MeasurementPlan:
    """A cheap set of cells that brings the interval within ``tolerance``, or 2 % of the best.

    ``refused`` are positions that cannot be measured. A wider tolerance never costs more.
    """
    required = tuple([i for i in posterior.required if i not in refused])
    candidates = [i for i in posterior.unmeasured if i not in refused and i not in required]
    state = Projection(posterior, composition).after(required)
    aim = max(tolerance, state.after(candidates).half_width_share * _CLOSE_ENOUGH)
    chosen: tuple[int, ...] = ()
    if state.half_width_share > aim:
        best = _cheap_set(state, candidates, aim)
        chosen = tuple(best[i] for i, _ in by_worth(state, best))
    positions = (*required, *chosen)
    cost = math.fsum(posterior.priors[i].cost_s for i in positions)
    return MeasurementPlan(positions, cost, state.after(chosen).half_width_share)


def next_step(
    posterior: ErrorPosterior,
    composition: Composition,
    tolerance: float,
    refused: Collection[int] = (),
    network_s: float | None = None,
    network_anyway: bool = False,
) -> Step:
    """What to measure next: nothing when the interval suffices or nothing would help.

    Unknown cells come alone; then the first half of the plan, since what it teaches may make the
    rest needless. ``network_s`` is the device time of measuring the network; None where it
    cannot be, or was. It is measured instead of cells where it costs no more or comes nearer, and
    besides cells that are unknown and cost as much, or by ``network_anyway``.
    """
    required = [i for i in posterior.required if i not in refused]
    unknown = tuple(i for i in required if posterior.priors[i].latency_us is None)
    if unknown:
        unknown_s = math.fsum(posterior.priors[i].cost_s for i in unknown)
        return Step(unknown, network_s is not None and (network_anyway or unknown_s >= network_s))
    best = plan(posterior, composition, tolerance, refused)
    rest = len(best.positions) - len(required)
    cells = best.positions[: len(required) + max(1, math.ceil(rest / 2))]
    if network_s is None:
        return Step(cells)
    if not cells and best.half_width_share <= tolerance:
        return Step()
    half_width = composition.measured_half_width_share(EXPECTED_NOISE_SHARE)
    if best.half_width_share <= tolerance:
        instead = half_width <= tolerance and network_s <= best.cost_s
    else:
        # Where no cell would help either, the answer should at least not rest on a guess.
        nearer = half_width < best.half_width_share / _CLOSE_ENOUGH
        instead = nearer or (not cells and bool(posterior.unmeasured))
    return Step((), True) if instead else Step(cells, network_anyway)


class Projection:
    """The width of a network's interval once some of its cells are measured."""

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

    @property
    def half_width_share(self) -> float:
        return float(self.widths_of(np.array([self.variance]))[0])

    def widths_of(self, variances: Matrix) -> Matrix:
        sum_us = self.posterior.sum_us
        return self.composition.half_width_shares(np.maximum(variances, 0.0), sum_us)

    def after(self, positions: Sequence[int]) -> "Projection":
        if not positions:
            return self
        seen = list(positions)
        noise = np.eye(len(seen)) * EXPECTED_NOISE_SHARE**2
        rows = self.covariance[seen]
        gain = self.covariance[:, seen] @ np.linalg.solve(rows[:, seen] + noise, rows)
        return Projection(self.posterior, self.composition, self.covariance - gain)


def _cheap_set(state: Projection, candidates: Sequence[int], aim: float) -> Sequence[int]:
    """The cheapest of sets that are the first cells by worth, or worth for cost, and one more."""
    # Every set looked at is independent of the aim: that is what makes the cost fall, never rise,
    # with a wider tolerance.
    costs = np.array([state.posterior.priors[i].cost_s for i in candidates])
    least, cheapest = math.inf, candidates
    for weights in (costs, None) if np.ptp(costs) else (None,):
        taken: list[int] = []
        for index, left in by_worth(state, candidates, weights):
            spent = float(costs[taken].sum())
            if spent >= least:
                break
            enough = np.where(state.widths_of(left) <= aim, costs, np.inf)
            enough[taken] = np.inf
            last = int(enough.argmin())
            if spent + enough[last] < least:
                least = spent + float(enough[last])
                cheapest = [candidates[i] for i in (*taken, last)]
            taken.append(index)
    return cheapest


def by_worth(
    state: Projection, candidates: Sequence[int], costs: Matrix | None = None
) -> Iterator[tuple[int, Matrix]]:
    """Indices of ``candidates`` by worth, or worth for the cost, once those before are measured.

    Beside each stands what would be left of the variance with any other in its place.
    """
    seen = list(candidates)
    covariance = state.covariance[seen][:, seen]
    reach, variance = state.reach[seen], state.variance
    left = np.ones(len(seen), np.bool_)
    for _ in seen:
        own = covariance.diagonal() + EXPECTED_NOISE_SHARE**2
        worth = np.where(left, reach * reach / own, -1.0)
        index = int((worth if costs is None else worth / costs).argmax())
        yield index, variance - worth
        row = covariance[index]
        gain = row / own[index]
        variance = max(variance - float(worth[index]), 0.0)
        reach = reach - reach[index] * gain
        covariance = covariance - row[:, None] * gain
        left[index] = False
