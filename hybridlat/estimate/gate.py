"""Which cells of a network must be measured so that its latency is known well enough.

The gate works on the network: it looks for the set of cells with the smallest device time after
which the network's interval is within the tolerance. What a measurement is worth is the drop of the
network's variance, (K·w)ᵢ² / Kᵢᵢ with K the covariance of the cells' errors and w their shares of
the time: a cell counts for its own error and for what it teaches about cells like it. Unknown cells
and cells outside what the model was trained on are always measured, or the estimate is refused.

The network as a whole is one more thing to measure, with its own cost: then its latency is known
whatever its cells are (``next_step``).

The gate measures nothing itself. The caller goes round: ``choose`` or ``next_step`` → measure →
``posterior.observe``, until nothing is left to choose; after each round the remaining predictions
have moved and the plan is made afresh.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.composition import Composition
from hybridlat.estimate.posterior import ErrorPosterior, Matrix

EXPECTED_NOISE_SHARE = 0.01
"""Relative noise that a cell is expected to have once measured."""
_EXACT_CELLS = 9  # up to here every set is tried: 512 of them take about 10 ms
_CLOSE_ENOUGH = 1.02
_PICKS_AT_ONCE = 8  # steps of a greedy order that are judged together


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """What the gate would measure, in the order of what it is worth.

    ``positions`` index the posterior's cells, ``cost_s`` is their device time, ``half_width_share``
    what the interval is expected to be afterwards. Where not even all cells would be enough
    ``reachable`` is False, and the plan comes within 2 % of the best interval there is.
    """

    positions: tuple[int, ...]
    cost_s: float
    half_width_share: float
    reachable: bool


@dataclass(frozen=True, slots=True)
class NetworkAction:
    """Measuring the network as a whole: its device time, and how it is expected to be known then.

    ``noise_share`` is the relative standard error of its latency. ``anyway`` says that it is wanted
    besides the cells: the machine's composition has still to be learned from whole networks.
    """

    cost_s: float
    noise_share: float = EXPECTED_NOISE_SHARE
    anyway: bool = False


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
    """The cheapest set of cells found that brings the interval within ``tolerance``.

    ``refused`` are positions that cannot be measured (they failed, or nothing may be). With up to
    nine candidates the set is the cheapest of all; with more, the best of two greedy orders, each
    ended by the single cell that suffices cheapest. A wider tolerance never costs more.
    """
    required, candidates = _choices(posterior, refused)
    state = _State(posterior, composition).after(required)
    now, everything, aim = _aim(state, candidates, tolerance)
    chosen: tuple[int, ...] = ()
    if now > aim:
        if len(candidates) <= _EXACT_CELLS:
            chosen = _by_worth(state, _exact(state, candidates, aim))
        else:
            chosen = _greedy(state, candidates, aim)
    positions = (*required, *chosen)
    cost = math.fsum(posterior.priors[i].cost_s for i in positions)
    reached = state.width_of(state.variance_after(chosen)) if chosen else now
    return MeasurementPlan(positions, cost, reached, everything <= tolerance)


def would_measure(
    posterior: ErrorPosterior,
    composition: Composition,
    tolerance: float,
    refused: Collection[int] = (),
) -> bool:
    """Whether ``plan`` holds any cell, which is told in a fraction of the time."""
    required, candidates = _choices(posterior, refused)
    if required or not candidates:
        return bool(required)
    now, _, aim = _aim(_State(posterior, composition), candidates, tolerance)
    return now > aim


def _choices(
    posterior: ErrorPosterior, refused: Collection[int]
) -> tuple[tuple[int, ...], list[int]]:
    """The cells that must be measured, and the others that may be."""
    required = tuple([i for i in posterior.required if i not in refused])
    open_ = [i for i in posterior.unmeasured if i not in refused and i not in required]
    return required, open_


def _aim(state: _State, candidates: Sequence[int], tolerance: float) -> tuple[float, float, float]:
    """The half-width now, with all candidates measured, and the one that is worth aiming at."""
    variances = np.array([state.variance, state.variance_after(candidates)])
    now, everything = state.widths_of(variances).tolist()
    return now, everything, max(tolerance, everything * _CLOSE_ENOUGH)


def choose(
    posterior: ErrorPosterior,
    composition: Composition,
    tolerance: float,
    refused: Collection[int] = (),
    fraction: float = 0.5,
) -> tuple[int, ...]:
    """What to measure next: empty when the interval suffices or nothing would help.

    Unknown cells come alone, since the network cannot be judged without them; then the first
    ``fraction`` of the plan (at least one cell), since what it teaches may make the rest needless.
    """
    unknown = tuple(
        i for i in posterior.required if i not in refused and posterior.priors[i].latency_us is None
    )
    if unknown:
        return unknown
    best = plan(posterior, composition, tolerance, refused)
    must = sum(1 for i in best.positions if i in posterior.required)
    rest = best.positions[must:]
    return best.positions[:must] + rest[: max(1, math.ceil(fraction * len(rest)))]


def next_step(
    posterior: ErrorPosterior,
    composition: Composition,
    tolerance: float,
    refused: Collection[int] = (),
    network: NetworkAction | None = None,
) -> Step:
    """What to measure next, the network as a whole among it; nothing when the interval suffices.

    ``network`` None: it cannot be measured whole, or was. Where every cell has a latency, it is
    measured instead of cells when that costs no more than the cells that would be needed, or when
    no cells would do and it brings the interval further, or at least off predictions. Cells of
    which nothing is known are measured in any case, and where they are most of the network's work
    it is measured with them, since that costs little more.
    """
    cells = choose(posterior, composition, tolerance, refused)
    if network is None:
        return Step(cells)
    if any(posterior.priors[i].latency_us is None for i in cells):
        unknown_s = math.fsum(posterior.priors[i].cost_s for i in cells)
        return Step(cells, network.anyway or unknown_s >= network.cost_s)
    found = plan(posterior, composition, tolerance, refused)
    asked = bool(cells) or found.half_width_share > tolerance
    if not asked:
        return Step()
    half_width = composition.measured_half_width_share(network.noise_share)
    enough = half_width <= tolerance
    nearer = half_width < found.half_width_share / _CLOSE_ENOUGH
    if found.half_width_share <= tolerance:
        instead = enough and network.cost_s <= found.cost_s
    else:
        # Where no cell would help either, the answer should at least not rest on a guess.
        instead = nearer or (not cells and bool(posterior.unmeasured))
    return Step((), True) if instead else Step(cells, network.anyway)


def ranking(posterior: ErrorPosterior, per_cost: bool = False) -> Iterator[int]:
    """The unmeasured cells, the most worthwhile first, given what is known now."""
    state = _State(posterior, Composition())
    left = list(posterior.unmeasured)
    while left:
        worth = state.gains(left)
        if per_cost:
            worth = worth / np.array([posterior.priors[i].cost_s for i in left])
        best = left[int(np.argmax(worth))]
        yield best
        left.remove(best)
        state = state.after((best,))


class _State:
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

    def after(self, positions: tuple[int, ...]) -> _State:
        """The state once these cells are measured with the usual noise."""
        if not positions:
            return self
        seen = list(positions)
        covariance = self.covariance - self.covariance[:, seen] @ np.linalg.solve(
            self._observed(seen), self.covariance[seen]
        )
        return _State(self.posterior, self.composition, covariance)

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


def _exact(state: _State, candidates: list[int], aim: float) -> tuple[int, ...]:
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
    found = []
    for size in range(1, count + 1):
        chosen = np.array(list(itertools.combinations(range(count), size)), np.intp)
        found.append((chosen, (1 << chosen).sum(axis=1)))
    return tuple(found)


def _variances(state: _State, candidates: list[int]) -> Matrix:
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


@dataclass(frozen=True, slots=True)
class _Pick:
    """One step of a greedy order; every array has a place for each candidate.

    ``left`` says which are still to be taken, ``variances`` are what would be left of the variance
    if the step took each of them; it takes the one at ``index``, which is the most worthwhile of
    them if ``is_most``.
    """

    left: NDArray[np.bool_]
    variances: Matrix
    index: int
    is_most: bool


def _greedy(state: _State, candidates: list[int], aim: float) -> tuple[int, ...]:
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
        for pick, enough in _judged(state, _picks(state, candidates, weights), aim):
            found = by_cost[enough[by_cost]]
            if found.size:
                cost = spent + float(costs[found[0]])
                if cheapest is None or cost < cheapest[0]:
                    cheapest, by_worth = (cost, (*taken, candidates[found[0]])), alike
            if cheapest is not None and spent >= cheapest[0]:
                break
            taken = (*taken, candidates[pick.index])
            spent += float(costs[pick.index])
            alike &= pick.is_most
        if alike:  # the other order is the same
            break
    chosen = tuple(candidates) if cheapest is None else cheapest[1]
    return chosen if cheapest is not None and by_worth else _by_worth(state, chosen)


def _picks(state: _State, candidates: Sequence[int], costs: Matrix | None) -> Iterator[_Pick]:
    """All candidates in a greedy order: what each is worth once those before it are measured.

    With ``costs`` what it is worth for its cost.
    """
    seen = list(candidates)
    covariance = state.covariance[np.ix_(seen, seen)]
    reach, variance = state.reach[seen], state.variance
    left = np.ones(len(seen), np.bool_)
    for _ in seen:
        own = covariance.diagonal() + EXPECTED_NOISE_SHARE**2
        worth = reach * reach / own
        worth[~left] = -1.0
        most = int(worth.argmax())
        index = most if costs is None else int((worth / costs).argmax())
        yield _Pick(left.copy(), variance - worth, index, index == most)
        row = covariance[index]
        gain = row / own[index]
        variance = max(variance - float(worth[index]), 0.0)
        reach = reach - reach[index] * gain
        covariance = covariance - row[:, None] * gain
        left[index] = False


def _judged(
    state: _State, picks: Iterator[_Pick], aim: float
) -> Iterator[tuple[_Pick, NDArray[np.bool_]]]:
    """Each step with which of its cells would bring the interval within ``aim``."""
    while some := list(itertools.islice(picks, _PICKS_AT_ONCE)):
        widths = state.widths_of(np.concatenate([pick.variances for pick in some]))
        for pick, enough in zip(some, (widths <= aim).reshape(len(some), -1), strict=True):
            yield pick, enough & pick.left


def _by_worth(state: _State, chosen: tuple[int, ...]) -> tuple[int, ...]:
    if len(chosen) < 2:
        return chosen
    return tuple(chosen[pick.index] for pick in _picks(state, chosen, None))
