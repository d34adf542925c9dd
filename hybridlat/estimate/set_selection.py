"""The cheapest set of cells that brings a network's interval within an aim.

With few candidates every set is tried; with more, two greedy orders are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior, Matrix

EXPECTED_NOISE_SHARE = 0.01
"""Relative noise that a cell is expected to have once measured."""
_EXACT_CELLS = 9  # up to here every set is tried: 512 of them take about 10 ms


class Projection:
    """The width of a network's interval once some of its cells are measured.

    ``covariance`` is that of the cells' errors, ``reach`` that of each with the error of the sum.
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

    def after(self, positions: tuple[int, ...]) -> Projection:
        """The state once these cells are measured with the usual noise."""
        if not positions:
            return self
        seen = list(positions)
        covariance = self.covariance - self.covariance[:, seen] @ np.linalg.solve(
            self._observed(seen), self.covariance[seen]
        )
        return Projection(self.posterior, self.composition, covariance)

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

    def gains(self, positions: Sequence[int]) -> Matrix:
        """By how much measuring each alone would lower the variance."""
        seen = list(positions)
        own = self.covariance.diagonal()[seen] + EXPECTED_NOISE_SHARE**2
        return np.asarray(self.reach[seen] ** 2 / own)


def cheapest_set(state: Projection, candidates: list[int], aim: float) -> tuple[int, ...]:
    """The cheapest set found whose measurement brings the half-width within ``aim``.

    In the order of what its cells are worth; all candidates where no set does.
    """
    if len(candidates) <= _EXACT_CELLS:
        return _by_worth(state, _exact(state, candidates, aim))
    return _greedy(state, candidates, aim)


def _exact(state: Projection, candidates: list[int], aim: float) -> tuple[int, ...]:
    order = _cheapest_first(tuple(state.posterior.priors[i].cost_s for i in candidates))
    enough = state.widths_of(_variances(state, candidates)) <= aim
    first = int(np.argmax(enough[order]))
    mask = int(order[first])
    if not enough[mask]:
        return tuple(candidates)
    return tuple(c for i, c in enumerate(candidates) if mask >> i & 1)


@lru_cache(maxsize=256)
def _cheapest_first(costs: tuple[float, ...]) -> NDArray[np.intp]:
    """Every set of positions as a bit mask, by cost, then by position."""
    sets = sorted(
        (math.fsum(costs[i] for i in chosen), chosen)
        for size in range(len(costs) + 1)
        for chosen in itertools.combinations(range(len(costs)), size)
    )
    return np.array([sum(1 << i for i in chosen) for _, chosen in sets], np.intp)


@lru_cache(maxsize=_EXACT_CELLS + 1)
def _sets_by_size(count: int) -> tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]:
    """(positions of each set, its bit mask) for every size from one."""
    sets = []
    for size in range(1, count + 1):
        chosen = np.array(list(itertools.combinations(range(count), size)), np.intp)
        sets.append((chosen, (1 << chosen).sum(axis=1)))
    return tuple(sets)


def _variances(state: Projection, candidates: list[int]) -> Matrix:
    """Variance once each set of candidates is measured with the usual noise, by bit mask."""
    block = state.covariance[np.ix_(candidates, candidates)]
    block = block + EXPECTED_NOISE_SHARE**2 * np.eye(len(candidates))
    reach = state.reach[candidates]
    variances = np.full(1 << len(candidates), state.variance)
    for chosen, masks in _sets_by_size(len(candidates)):
        pulls = reach[chosen]
        blocks = block[chosen[:, :, None], chosen[:, None, :]]
        solved = np.linalg.solve(blocks, pulls[:, :, None])[:, :, 0]
        variances[masks] -= (pulls * solved).sum(axis=1)
    return variances


def _greedy(state: Projection, candidates: list[int], aim: float) -> tuple[int, ...]:
    """The better of two greedy orders, per cost and not, the most worthwhile cells first."""
    # Every set looked at (a prefix of an order and one cell more) is independent of the aim: that
    # is what makes the cost fall, never rise, with a wider tolerance.
    costs = np.array([state.posterior.priors[i].cost_s for i in candidates])
    by_cost = np.argsort(costs, kind="stable")
    cheapest: tuple[float, tuple[int, ...]] | None = None
    by_worth = True
    for weights in (costs, None):
        taken: tuple[int, ...] = ()
        spent, alike = 0.0, True
        for pick in _picks(state, candidates, weights):
            enough = pick.left & (state.widths_of(pick.variances) <= aim)
            enough_alone = by_cost[enough[by_cost]]
            if enough_alone.size:
                cost = spent + float(costs[enough_alone[0]])
                if cheapest is None or cost < cheapest[0]:
                    cheapest, by_worth = (cost, (*taken, candidates[enough_alone[0]])), alike
            if cheapest is not None and spent >= cheapest[0]:
                break
            taken = (*taken, candidates[pick.position])
            spent += float(costs[pick.position])
            alike &= pick.is_most
        if alike:  # the other order is the same
            break
    chosen = tuple(candidates) if cheapest is None else cheapest[1]
    return chosen if cheapest is not None and by_worth else _by_worth(state, chosen)


class _Pick(NamedTuple):
    """One step of a greedy order; every array has a place for each candidate.

    ``left`` says which are still to be taken, ``variances`` are what would be left of the variance
    if the step took each of them; it takes the one at ``position``, which is the most worthwhile of
    them if ``is_most``.
    """

    left: NDArray[np.bool_]
    variances: Matrix
    position: int
    is_most: bool


def _picks(state: Projection, candidates: Sequence[int], costs: Matrix | None) -> Iterator[_Pick]:
    """All candidates in a greedy order: what each is worth once those before it are measured.

    With ``costs`` what it is worth for its cost.
    """
    seen = list(candidates)
    covariance = state.covariance[np.ix_(seen, seen)]
    reach, variance = state.reach[seen], state.variance
    left = np.ones(len(seen), np.bool_)
    for _ in seen:
        own = covariance.diagonal() + EXPECTED_NOISE_SHARE**2
        worth = np.where(left, reach * reach / own, -1.0)
        most = int(worth.argmax())
        index = most if costs is None else int((worth / costs).argmax())
        yield _Pick(left.copy(), variance - worth, index, index == most)
        row = covariance[index]
        gain = row / own[index]
        variance = max(variance - float(worth[index]), 0.0)
        reach = reach - reach[index] * gain
        covariance = covariance - row[:, None] * gain
        left[index] = False


def _by_worth(state: Projection, chosen: tuple[int, ...]) -> tuple[int, ...]:
    if len(chosen) < 2:
        return chosen
    return tuple(chosen[pick.position] for pick in _picks(state, chosen, None))
