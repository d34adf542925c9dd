"""The cells of a network to measure so that its latency is known well enough.

The gate looks for the set of cells with the least device time after which the network's interval is
within the tolerance. A measurement is worth the drop of the network's variance, (K·w)ᵢ² / Kᵢᵢ with
K the covariance of the cells' errors and w their shares of the time. Unknown cells and those
outside what the model was trained on are always measured. So may be the network, at its own cost.

The caller goes round: ``next_step`` → measure → ``posterior.observe``, until nothing is left.

Training plays the same with networks that were held out, and calibrates intervals at several shares
of measured cells. How errors of cells go together is assumed (``SHARED``): fitted, it served the
gate worse (experiments/tried_in_vain.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hybridlat.estimate.compose.composition import CALIBRATED_AT, Composition
from hybridlat.estimate.compose.machine import SummedNetwork, machine_composition
from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior, Matrix
from hybridlat.model.conformal import conformal_quantile, normal_quantile, rank_of

EXPECTED_NOISE_SHARE = 0.01
"""Relative noise that a cell or a network is expected to have once measured."""
_CLOSE_ENOUGH = 1.02
_STAGES = (0.0, 0.1, 0.3, 1.0)  # shares of cells measured at which intervals are calibrated


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

    def after(self, positions: Sequence[int]) -> Projection:
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
    """Scale and interval of a target; the scale is found as that of a machine in use."""
    ordered = sorted(networks, key=lambda n: (n.name, n.latency_us))
    if not ordered:
        return Composition(confidence=confidence)
    summed = [SummedNetwork(n.latency_us, n.sum_of_measured_us) for n in ordered]
    base = replace(machine_composition(summed, 0.0), confidence=confidence, degrees=None)
    parts, scores = ({stage: list[float]() for stage in _STAGES} for _ in range(2))
    for network in ordered:
        posterior = base.start(network.cells)
        for stage in _STAGES:
            posterior = measure_greedily(posterior, network, cells_at(stage, len(network.cells)))
            if not posterior.complete:
                continue  # no latency yet: such a network is never judged in this state
            total = posterior.sum_us
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
    return replace(base, quantiles=tuple(quantiles), levels=levels)


def _multiplier(scores: Sequence[float], confidence: float) -> float:
    """The conformal quantile; where there are too few scores, a normal one widened for that."""
    count = len(scores)
    if rank_of(count, confidence) <= count:
        return conformal_quantile(scores, confidence)
    spread = math.sqrt((sum(s * s for s in scores) + 4.0) / (count + 4.0))
    return max(normal_quantile(confidence) * spread * (1.0 + 1.0 / (count + 1)), *scores)
