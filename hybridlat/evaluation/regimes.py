"""Regimes of targets with measured cells: networks held out in turn, or lone cells.

A network is judged by a model and constants that have not seen it, in several states of knowledge.
Where too few networks were measured whole, models learn from some of the cells and are judged on
the rest.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.calibration import (
    HeldOutNetwork,
    cells_at,
    fit_composition,
    measure_greedily,
)
from hybridlat.estimate.compose.composition import CALIBRATED_AT, Composition, normal_quantile
from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior
from hybridlat.estimate.predict import priors
from hybridlat.evaluation.cross_fitting import (
    FOLDS,
    CrossFitted,
    Judged,
    Split,
    Task,
    all_measured,
    at_once,
    cross_fit,
    evaluate_baselines,
    even_folds,
    of_trials,
    prediction_in,
    random_split,
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
from hybridlat.model import baselines, fit
from hybridlat.model.baselines import Problem, Sums, Unit
from hybridlat.model.cell_model import CellModel
from hybridlat.model.steady_sums import steady_fits
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.progress import OnMessage

CELL_SHARES = (0.05, 0.1, 0.2, 0.3)
SIZES = (300, 3000)
SEEDS = (0, 1, 2)
_GATED_SHARE = 0.2
_LARGEST_SHARE = 0.8
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
    folds: int = FOLDS,
) -> TargetReport:
    """Every network of the records judged once, by a model and constants that have not seen it."""
    networks = dataset.complete_networks
    on_message(
        f"{dataset.target}: fitting {folds} models, {len(networks)} networks held out in turn"
    )
    fold_of = even_folds((n.name for n in networks), folds)
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
    calibration["unseen_cells"] = _levels_of_cells(cells, config.confidence)
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
            seen.setdefault(cell.signature, _cell(cell, true_us, composition.confidence))
    return tuple(seen.values())


def _cell(cell: CellPrior, true_us: float, confidence: float) -> Prediction:
    """A lone cell as predicted; its interval reaches by the same factor up and down."""
    if cell.latency_us is None:
        return Prediction(cell.signature, true_us, math.nan)
    factor = math.exp(normal_quantile(confidence) * cell.spread_share)
    bounds = (cell.latency_us / factor, cell.latency_us * factor)
    return Prediction(cell.signature, true_us, cell.latency_us, bounds)


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


def _levels_of_cells(
    predictions: Sequence[Prediction], confidence: float
) -> tuple[ConfidenceLevel, ...]:
    """Predicted cells: their intervals of ``confidence``, stretched as users get to see them."""
    unit = normal_quantile(confidence)

    def at(level: float, prediction: Prediction) -> Prediction:
        if prediction.interval_us is None or not math.isfinite(prediction.predicted_us):
            return prediction
        low, high = prediction.interval_us
        ratio = normal_quantile(level) / unit
        us = prediction.predicted_us
        bounds = (us * (low / us) ** ratio, us * (high / us) ** ratio)
        return dataclasses.replace(prediction, interval_us=bounds)

    return levels({level: [at(level, a) for a in predictions] for level in CALIBRATED_AT})


def evaluate_cells(
    dataset: Dataset,
    config: FitConfig,
    names: Sequence[str],
    on_message: OnMessage,
    seeds: Sequence[int] = SEEDS,
) -> TargetReport:
    """``cells@N`` for N of 300, 3,000 and four fifths, and ``gated_cells@20%``; means of seeds."""
    hashes = sorted(dataset.cells)
    records = [dataset.cells[h] for h in hashes]
    truth = np.array([r.latency_us for r in records])
    costs_s = np.array([r.cost_s for r in records])
    largest = int(len(hashes) * _LARGEST_SHARE)
    sizes = [n for n in SIZES if n < largest] + [largest]
    problem = Problem(Sums.of_texts([r.text for r in records]), truth, tuple(hashes))
    gated = f"gated_cells@{_GATED_SHARE * 100:g}%"
    trials = [(size, seed) for size in sizes for seed in seeds]
    answers = at_once(
        _trial, ((problem, dataclasses.replace(config, seed=seed), size) for size, seed in trials)
    )
    own: dict[str, list[tuple[Prediction, ...]]] = {}
    spent_s: dict[str, list[float]] = {}
    splits = []
    for size, seed in trials:
        label = f"trained on {size:,} cells, seed {seed}"
        on_message(f"{dataset.target}: {OWN}, {label}")
        model, predictions, took_s, order = next(answers)
        train, test = random_split(len(hashes), size, seed)
        regimes: dict[str, dict[int, tuple[int, ...]]] = {f"cells@{size}": {}}
        own.setdefault(f"cells@{size}", []).append(predictions)
        if size == largest:
            chosen = order[: math.ceil(_GATED_SHARE * len(test))]
            regimes[gated] = {int(test[i]): (0,) for i in chosen}
            own.setdefault(gated, []).append(_with_measured(predictions, chosen, costs_s[test]))
        for regime in regimes:
            spent_s.setdefault(regime, []).append(took_s)
        splits.append(Split(train, test.tolist(), regimes, seed, seed, model, label))
    next(answers, None)
    results = [
        of_trials(regime, OWN, given, 1e3 * float(np.mean(spent_s[regime])), True)
        for regime, given in own.items()
    ]
    networks = [
        Judged(h, us, ((i, 1),))
        for i, (h, us) in enumerate(zip(hashes, truth.tolist(), strict=True))
    ]
    task = Task(problem, costs_s, networks, splits, per_cell=True)
    results += evaluate_baselines(
        names, {"cell": task}, config, lambda text: on_message(f"{dataset.target}: {text}")
    )
    layered = [n for n in names if baselines.load(n).units[0] == "layer"]
    unjudged = f"{dataset.target}: {' and '.join(layered)} cannot be judged"
    return TargetReport(
        target=dataset.target,
        data_hash=dataset.data_hash,
        results=tuple(results),
        noise_floor=None,
        networks=0,
        cells=len(hashes),
        calibration={
            regime: _levels_of_cells(given[-1], config.confidence)
            for regime, given in own.items()
            if regime != gated
        },
        notes=(f"{unjudged}: no unfused layers are recorded",) if layered else (),
    )


@steady_fits()
def _trial(
    problem: Problem, config: FitConfig, size: int
) -> tuple[CellModel, tuple[Prediction, ...], float, NDArray[np.intp]]:
    """In a worker, perhaps: a model of ``size`` cells, and its answers to all others.

    With the seconds that they took, and the order in which cells would be measured: those that
    must be come first, then those that the model is least sure of.
    """
    texts, hashes = problem.sums.texts, problem.groups
    train, test = random_split(len(hashes), size, config.seed)
    model = fit.fit_model(
        [texts[i] for i in train], problem.latencies_us[train], [hashes[i] for i in train], config
    )
    wanted = [texts[i] for i in test]
    began = time.perf_counter()
    answers = model.predict(wanted)
    took_s = time.perf_counter() - began
    cells = [
        priors.predicted(hashes[i], text, 1, answer, config.confidence)
        for i, text, answer in zip(test, wanted, answers, strict=True)
    ]
    predictions = tuple(
        _cell(cell, float(problem.latencies_us[i]), config.confidence)
        for i, cell in zip(test, cells, strict=True)
    )
    doubts = [math.inf if cell.must_be_measured else cell.spread_share for cell in cells]
    return model, predictions, took_s, np.argsort(-np.array(doubts), kind="stable")


def _with_measured(
    predictions: Sequence[Prediction], chosen: Iterable[int], costs_s: NDArray[np.float64]
) -> tuple[Prediction, ...]:
    """The same answers with some of the cells measured."""
    answers = list(predictions)
    for i in chosen:
        us = answers[i].true_us
        answers[i] = Prediction(answers[i].name, us, us, (us, us), 1.0, float(costs_s[i]))
    return tuple(answers)
