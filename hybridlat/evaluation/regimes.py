"""Regimes of networks whose cells were measured, held out in turn.

A network is judged by a model and constants that have not seen it, in several states of knowledge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hybridlat.estimate.calibration import (
    HeldOutNetwork,
    cells_at,
    fit_composition,
    measure_greedily,
)
from hybridlat.estimate.compose.composition import CALIBRATED_AT, Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.evaluation.baseline_runs import Judged, Split, Task, evaluate_baselines
from hybridlat.evaluation.cell_regimes import cell_prediction, levels_of_cells
from hybridlat.evaluation.cross_fitting import (
    FOLDS,
    CrossFitted,
    all_measured,
    cross_fit,
    even_folds,
    prediction_in,
    simulate_gate,
)
from hybridlat.evaluation.dataset import Dataset, MeasuredCell
from hybridlat.evaluation.metrics import (
    OWN,
    PERFECT,
    ConfidenceLevel,
    MethodResult,
    Prediction,
    TargetReport,
    levels,
    noise_floor,
)
from hybridlat.model.baselines import Problem, Sums, Unit
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.progress import OnMessage

CELL_SHARES = (0.05, 0.1, 0.2, 0.3)
_MEASURED, _UNSEEN = "measured", "unseen"
States = Mapping[str, Sequence[ErrorPosterior]]
Pairs = Sequence[tuple[HeldOutNetwork, Composition]]
Order = Callable[[HeldOutNetwork, Composition], Sequence[int]]


def evaluate_networks(
    dataset: Dataset,
    config: FitConfig,
    tolerances: Sequence[float],
    names: Sequence[str],
    on_message: OnMessage,
) -> TargetReport:
    """Every network of the records judged once, by a model and constants that have not seen it."""
    networks = dataset.complete_networks
    on_message(
        f"{dataset.target}: fitting {FOLDS} models, {len(networks)} networks held out in turn"
    )
    fold_of = even_folds(n.name for n in networks)
    fitted = cross_fit(dataset, networks, config, fold_of, on_message=on_message)
    pairs: list[tuple[HeldOutNetwork, Composition]] = []
    for fold, members in fitted.folds.items():
        composition = fit_composition(fitted.others(fold), config.confidence)
        pairs += [(fitted.held_out[n.name], composition) for n in members]
    gates = {f"gated@{t * 100:g}%": t for t in tolerances}
    states = _states(pairs, gates)
    by_regime = {
        regime: tuple(prediction_in(n, c, s) for (n, c), s in zip(pairs, given, strict=True))
        for regime, given in states.items()
    }
    cells = _cells(pairs)
    results = [
        *(MethodResult(r, OWN, given, fitted.predict_ms) for r, given in by_regime.items()),
        *_choices(pairs),
        MethodResult("unseen_cells", OWN, cells, fitted.predict_ms, per_cell=True),
    ]
    on_message(f"{dataset.target}: fitting baselines")
    units: tuple[Unit, ...] = ("cell", "layer")
    tasks = {u: _task(dataset, fitted, u, states, config) for u in units if _records(dataset, u)}
    results += evaluate_baselines(names, tasks, config)
    on_message(f"{dataset.target}: intervals at other confidences")
    calibration = {
        regime: _levels(pairs, given, gates.get(regime)) for regime, given in states.items()
    }
    calibration["unseen_cells"] = levels_of_cells(cells, config.confidence)
    total_s = [math.fsum(c.cost_s for c in network.cells) for network, _ in pairs]
    missing = len(dataset.networks) - len(networks)
    left_out = f"{missing} network{' is' if missing == 1 else 's are'} left out"
    return TargetReport(
        target=dataset.target,
        data_hash=dataset.data_hash,
        results=tuple(results),
        noise_floor=noise_floor([n.repeats_us for n in networks]),
        networks=len(networks),
        cells=len(dataset.cells),
        calibration=calibration,
        device_time_share={
            regime: sum(p.device_s / s for p, s in zip(by_regime[regime], total_s, strict=True))
            / len(pairs)
            for regime in gates
        },
        notes=(f"{left_out}: some of their cells could not be measured",) if missing else (),
    )


def _states(pairs: Pairs, gates: Mapping[str, float]) -> States:
    """What is known of each network in every regime."""
    starts = [composition.start(network.cells) for network, composition in pairs]
    states = {_MEASURED: [all_measured(*pair) for pair in pairs], _UNSEEN: starts}
    for regime, tolerance in gates.items():
        states[regime] = [simulate_gate(*pair, tolerance) for pair in pairs]
    for share in CELL_SHARES:
        states[f"gated_cells@{share * 100:g}%"] = [
            measure_greedily(start, network, cells_at(share, len(network.cells)))
            for start, (network, _) in zip(starts, pairs, strict=True)
        ]
    return states


def _records(dataset: Dataset, unit: Unit) -> Mapping[str, MeasuredCell]:
    return dataset.cells if unit == "cell" else dataset.layers


def _task(
    dataset: Dataset, fitted: CrossFitted, unit: Unit, states: States, config: FitConfig
) -> Task:
    """Baselines on the same folds: in ``unseen`` and gated regimes they learned from all records
    but the held-out networks', in ``measured`` from those too.

    They get the latencies that the gate measured; a baseline of layers cannot use them.
    """
    records = _records(dataset, unit)
    hashes = sorted(records)
    position = {h: i for i, h in enumerate(hashes)}
    named = dataset.groups() if unit == "cell" else {}
    problem = Problem(
        Sums.of_texts([records[h].text for h in hashes]),
        np.array([records[h].latency_us for h in hashes]),
        tuple(named.get(h) or records[h].labels.get("network", h) for h in hashes),
    )
    networks: list[Judged] = []
    split_of: dict[int, list[int]] = {fold: [] for fold in fitted.folds}
    places: list[int] = []  # in the states, of each network that is judged
    everyone = [(fold, network) for fold, members in fitted.folds.items() for network in members]
    for place, (fold, network) in enumerate(everyone):
        parts = network.cells if unit == "cell" else network.layers
        if parts and all(h in position for h, _ in parts):
            split_of[fold].append(len(networks))
            places.append(place)
            indexed = tuple((position[h], count) for h, count in parts)
            networks.append(Judged(network.name, network.latency_us, indexed, len(parts)))
    all_known: dict[str, None] = {_MEASURED: None}
    splits = [Split(np.arange(len(hashes)), range(len(networks)), all_known, config.seed)]
    for fold, judged in split_of.items():
        forbidden = dataset.forbidden(fitted.folds[fold])
        regimes = {
            regime: {
                i: tuple(given[places[i]].measured) for i in judged
                if unit == "cell" and regime != _UNSEEN
            }
            for regime, given in states.items()
            if regime != _MEASURED
        }  # fmt: skip
        train = np.array([i for i, h in enumerate(hashes) if h not in forbidden], np.intp)
        splits.append(Split(train, judged, regimes, config.seed, own=fitted.models[fold]))
    return Task(problem, np.array([records[h].cost_s for h in hashes]), networks, splits)


def share_only(network: HeldOutNetwork, composition: Composition) -> Sequence[int]:
    """The cells with the largest predicted part of the time first."""
    del composition
    uses = [-(c.latency_us or math.inf) * c.count for c in network.cells]
    return sorted(range(len(uses)), key=lambda i: (uses[i], network.cells[i].signature))


def perfect(network: HeldOutNetwork, composition: Composition) -> Sequence[int]:
    """Next the cell whose measurement brings the network nearest to its truth: it knows both."""
    uses, truth = _uses(network)
    total = sum(uses)
    left = list(range(len(uses)))
    order = []
    while left:
        off = {
            i: abs(composition.latency_us(total + truth[i] - uses[i]) - network.latency_us)
            for i in left
        }
        best = min(left, key=off.__getitem__)
        total += truth[best] - uses[best]
        left.remove(best)
        order.append(best)
    return order


def _uses(network: HeldOutNetwork) -> tuple[list[float], list[float]]:
    """What each cell takes in the network, as predicted (else measured) and as measured."""
    truth = [c.count * us for c, (us, _) in zip(network.cells, network.measured, strict=True)]
    uses = [
        t if c.latency_us is None else c.count * c.latency_us
        for c, t in zip(network.cells, truth, strict=True)
    ]
    return uses, truth


def _choices(pairs: Pairs) -> list[MethodResult]:
    """What plain ways of choosing reach at shares of the cells, the rest as predicted."""
    orders: Mapping[str, Order] = {"share_only": share_only, PERFECT: perfect}
    return [
        MethodResult(
            f"gated_cells@{share * 100:g}%", method,
            tuple(_chosen(*pair, order, share) for pair in pairs),
        )
        for share in CELL_SHARES
        for method, order in orders.items()
    ]  # fmt: skip


def _chosen(
    network: HeldOutNetwork, composition: Composition, order: Order, share: float
) -> Prediction:
    chosen = order(network, composition)[: cells_at(share, len(network.cells))]
    uses, truth = _uses(network)
    mixed = [truth[i] if i in chosen else us for i, us in enumerate(uses)]
    return Prediction(
        network.name,
        network.latency_us,
        composition.latency_us(math.fsum(mixed)),
        measured_share=math.fsum(mixed[i] for i in chosen) / math.fsum(mixed),
        device_s=math.fsum(network.cells[i].cost_s for i in chosen),
        cells=len(network.cells),
        cells_measured=len(chosen),
    )


def _cells(pairs: Pairs) -> tuple[Prediction, ...]:
    """Every distinct cell once, as the first network that has it saw it predicted."""
    seen: dict[str, Prediction] = {}
    for network, composition in pairs:
        for cell, (true_us, _) in zip(network.cells, network.measured, strict=True):
            seen.setdefault(cell.signature, cell_prediction(cell, true_us, composition.confidence))
    return tuple(seen.values())


def _levels(
    pairs: Pairs, known: Sequence[ErrorPosterior], tolerance: float | None
) -> tuple[ConfidenceLevel, ...]:
    """Coverage and width at each confidence.

    With a ``tolerance`` the gate works towards it anew; ``known`` is where it ended at the
    confidence of the compositions. Without, the state of knowledge is the same at each.
    """

    at_level: dict[float, list[Prediction]] = {}
    for level in CALIBRATED_AT:
        for (network, composition), posterior in zip(pairs, known, strict=True):
            other = composition.at(level)
            if tolerance is not None and level != composition.confidence:
                posterior = simulate_gate(network, other, tolerance)
            prediction = prediction_in(network, other, posterior)
            at_level.setdefault(level, []).append(prediction)
    return levels(at_level)
