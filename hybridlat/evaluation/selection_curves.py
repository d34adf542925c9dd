"""Risk–coverage curves of several ways to choose which cells to measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hybridlat.estimate.compose.calibration import HeldOutNetwork, cells_at, measure_greedily
from hybridlat.estimate.compose.composition import Composition, normal_quantile
from hybridlat.estimate.compose.posterior import CellPrior
from hybridlat.evaluation.cross_fitting import CrossFitted
from hybridlat.evaluation.metrics import Prediction, mean_score, rmspe, score
from hybridlat.evaluation.results import MethodResult

SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
_RANDOM_TRIALS = 10
Order = Callable[[HeldOutNetwork, Composition], list[int]]
Pairs = Sequence[tuple[HeldOutNetwork, Composition]]


def share_only(network: HeldOutNetwork, composition: Composition) -> list[int]:
    """The cells with the largest predicted part of the time first."""
    del composition
    uses = [-(c.latency_us or math.inf) * c.count for c in network.cells]
    return sorted(range(len(uses)), key=lambda i: (uses[i], network.cells[i].signature))


def random_order(seed: int) -> Order:
    """Cells in an order that the seed and the network's name decide."""

    def order(network: HeldOutNetwork, composition: Composition) -> list[int]:
        del composition
        rng = np.random.default_rng([seed, *network.name.encode()])
        return [int(i) for i in rng.permutation(len(network.cells))]

    return order


def perfect(network: HeldOutNetwork, composition: Composition) -> list[int]:
    """Next the cell whose measurement brings the network nearest to its truth: it knows both."""
    uses, truth = _uses(network)
    total = sum(uses)
    left = list(range(len(uses)))
    order = []
    while left:
        best = min(
            left,
            key=lambda i: abs(
                composition.latency_us(total + truth[i] - uses[i]) - network.latency_us
            ),
        )
        total += truth[best] - uses[best]
        left.remove(best)
        order.append(best)
    return order


def _uses(network: HeldOutNetwork) -> tuple[list[float], list[float]]:
    truth = [c.count * us for c, (us, _) in zip(network.cells, network.measured, strict=True)]
    uses = [
        t if c.latency_us is None else c.count * c.latency_us
        for c, t in zip(network.cells, truth, strict=True)
    ]
    return uses, truth


def choices(pairs: Pairs, shares: Sequence[float]) -> list[MethodResult]:
    """What plain ways of choosing reach at shares of the cells, the rest as predicted."""
    results = []
    for share in shares:
        regime = f"gated_cells@{share * 100:g}%"
        for method, order in (("share_only", share_only), ("perfect", perfect)):
            results.append(MethodResult(regime, method, _answers(pairs, order, share)))
        trials = [_answers(pairs, random_order(seed), share) for seed in range(_RANDOM_TRIALS)]
        summary = mean_score([score(t) for t in trials])
        results.append(MethodResult(regime, "random", trials[0], summary=summary))
    return results


def _answers(pairs: Pairs, order: Order, share: float) -> tuple[Prediction, ...]:
    predictions = []
    for network, composition in pairs:
        chosen = order(network, composition)[: cells_at(share, len(network.cells))]
        uses, truth = _uses(network)
        mixed = [truth[i] if i in chosen else us for i, us in enumerate(uses)]
        predictions.append(
            Prediction(
                network.name,
                network.latency_us,
                composition.latency_us(math.fsum(mixed)),
                measured_share=math.fsum(mixed[i] for i in chosen) / math.fsum(mixed),
                device_s=math.fsum(network.cells[i].cost_s for i in chosen),
                cells=len(network.cells),
                cells_measured=len(chosen),
            )
        )
    return tuple(predictions)


def risk_coverage(
    fitted: CrossFitted, compositions: Mapping[int, Composition]
) -> dict[str, list[tuple[float, float]]]:
    """Method → [(share of cells measured, RMSPE %)]: gate, share only, random and perfect."""
    pairs = [
        (fitted.held_out[n.name], compositions[fold])
        for fold, members in fitted.folds.items()
        for n in members
    ]
    drawn: dict[str, list[tuple[float, float]]] = {"gate": []}
    posteriors = [composition.start(network.cells) for network, composition in pairs]
    for share in SHARES:
        errors = []
        for i, (network, composition) in enumerate(pairs):
            posteriors[i] = measure_greedily(
                posteriors[i], network, cells_at(share, len(network.cells))
            )
            if posteriors[i].complete:
                latency_us = composition.latency_us(posteriors[i].sum_us)
                errors.append(latency_us / network.latency_us - 1)
        _append(drawn["gate"], share, errors)
        for method, orders in (
            ("share_only", [share_only]),
            ("perfect", [perfect]),
            ("random", [random_order(s) for s in range(_RANDOM_TRIALS)]),
        ):
            trials = [
                rmspe(np.array([a.error_share for a in _answers(pairs, order, share)]))
                for order in orders
            ]
            known = [t for t in trials if t is not None]
            if known:
                drawn.setdefault(method, []).append((share, float(np.mean(known))))
    return drawn


def _append(curve: list[tuple[float, float]], share: float, errors: list[float]) -> None:
    error = rmspe(np.array(errors))
    if error is not None:
        curve.append((share, error))


def cell_interval_factor(cell: CellPrior, composition: Composition) -> float:
    """The factor by which a cell's interval reaches up and down."""
    return math.exp(normal_quantile(composition.confidence) * cell.spread_share)
