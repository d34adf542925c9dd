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

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.set_selection import (
    EXPECTED_NOISE_SHARE,
    Projection,
    cheapest_set,
)

_CLOSE_ENOUGH = 1.02


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
    required = tuple([i for i in posterior.required if i not in refused])
    candidates = [i for i in posterior.unmeasured if i not in refused and i not in required]
    state = Projection(posterior, composition).after(required)
    variances = np.array([state.variance, state.variance_after(candidates)])
    now, everything = state.widths_of(variances).tolist()
    aim = max(tolerance, everything * _CLOSE_ENOUGH)
    chosen: tuple[int, ...] = ()
    if now > aim:
        chosen = cheapest_set(state, candidates, aim)
    positions = (*required, *chosen)
    cost = math.fsum(posterior.priors[i].cost_s for i in positions)
    reached = state.width_of(state.variance_after(chosen)) if chosen else now
    return MeasurementPlan(positions, cost, reached, everything <= tolerance)


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
    unknown = _unknown(posterior, refused)
    return unknown or _first_of(
        plan(posterior, composition, tolerance, refused), posterior, fraction
    )


def _unknown(posterior: ErrorPosterior, refused: Collection[int]) -> tuple[int, ...]:
    return tuple(
        i for i in posterior.required if i not in refused and posterior.priors[i].latency_us is None
    )


def _first_of(
    best: MeasurementPlan, posterior: ErrorPosterior, fraction: float = 0.5
) -> tuple[int, ...]:
    """The required cells of a plan and the first part of the others."""
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
    unknown = _unknown(posterior, refused)
    if unknown:
        unknown_s = math.fsum(posterior.priors[i].cost_s for i in unknown)
        return Step(
            unknown, network is not None and (network.anyway or unknown_s >= network.cost_s)
        )
    best = plan(posterior, composition, tolerance, refused)
    cells = _first_of(best, posterior)
    if network is None:
        return Step(cells)
    if not cells and best.half_width_share <= tolerance:
        return Step()
    half_width = composition.measured_half_width_share(network.noise_share)
    enough = half_width <= tolerance
    nearer = half_width < best.half_width_share / _CLOSE_ENOUGH
    if best.half_width_share <= tolerance:
        instead = enough and network.cost_s <= best.cost_s
    else:
        # Where no cell would help either, the answer should at least not rest on a guess.
        instead = nearer or (not cells and bool(posterior.unmeasured))
    return Step((), True) if instead else Step(cells, network.anyway)
