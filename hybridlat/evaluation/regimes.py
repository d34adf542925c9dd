"""Regimes of targets whose cells were measured.

Networks are held out in turn, each judged by a model and constants that have not seen it, in
several states of knowledge. Where too few were measured whole, models learn from some of the cells
and are judged on the rest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.calibration import (
    HeldOutNetwork,
    cells_at,
    fit_composition,
    measure_greedily,
)
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.predict.source import CellLatency, stated
from hybridlat.evaluation import cross_fitting, metrics
from hybridlat.evaluation.baseline_runs import Contest, Judged, Split, evaluate_baselines
from hybridlat.evaluation.cross_fitting import FOLDS, CrossFitted, Places, at_once
from hybridlat.evaluation.dataset import Dataset, MeasuredCell, without_form
from hybridlat.evaluation.metrics import OWN, MethodResult, Prediction, TargetReport
from hybridlat.model import fit
from hybridlat.model.baselines import Problem, Sums, Unit
from hybridlat.model.cell_model import CellModel
from hybridlat.model.conformal import normal_quantile
from hybridlat.model.fit import FitConfig
from hybridlat.schema.workers import OnMessage

_SIZES = (300, 3000)
_GATED, _GATED_SHARE = "gated_cells@20%", 0.2
LARGEST_SHARE = 0.8
_MEASURED = "measured"


class _Known(NamedTuple):
    """A network, the constants that have not seen it, and what each regime knows of its cells."""

    network: HeldOutNetwork
    composition: Composition
    by_regime: Mapping[str, ErrorPosterior]


def evaluate_networks(
    dataset: Dataset,
    config: FitConfig,
    tolerances: Sequence[float],
    names: Sequence[str],
    on_message: OnMessage,
) -> TargetReport:
    """Every network of the records judged once, by a model and constants that have not seen it."""
    networks = dataset.complete_networks
    in_turn = f"{len(networks)} networks held out in turn"
    on_message(f"{dataset.target}: fitting {FOLDS} models, {in_turn}")
    fold_of = cross_fitting.even_folds(n.name for n in networks)
    fitted = cross_fitting.cross_fit(dataset, networks, config, fold_of, (), on_message)
    folds = [[fitted.held_out[n.name] for n in members] for members in fitted.folds.values()]
    others = ([n for fold in folds if fold is not mine for n in fold] for mine in folds)
    compositions = at_once(fit_composition, ((each, config.confidence) for each in others))
    gates, known = {f"gated@{t * 100:g}%": t for t in tolerances}, list[_Known]()
    for fold, composition in zip(folds, compositions, strict=True):
        for network in fold:
            by_regime = cross_fitting.states(network, composition, gates)
            count = cells_at(_GATED_SHARE, len(network.cells))
            by_regime[_GATED] = measure_greedily(by_regime["unseen"], network, count)
            known.append(_Known(network, composition, by_regime))
    regimes = (_MEASURED, "unseen", *gates, _GATED)
    answers = {r: partial(_predictions, known, r, gates.get(r)) for r in regimes}
    results = [
        MethodResult(regime, OWN, [answer(config.confidence)], fitted.predict_ms)
        for regime, answer in answers.items()
    ]
    units: tuple[Unit, ...] = ("cell", "layer") if dataset.layers else ("cell",)
    contests = {unit: _contest(dataset, fitted, unit, known, config) for unit in units}
    results += evaluate_baselines(dataset.target, names, contests, config, on_message)
    on_message(f"{dataset.target}: intervals at other confidences")
    missing = len(dataset.networks) - len(networks)
    left_out = f"{missing} network{' is' if missing == 1 else 's are'} left out"
    return TargetReport(
        target=dataset.target,
        data_hash=dataset.data_hash,
        results=tuple(results),
        noise_floor=metrics.noise_floor([n.repeats_us for n in networks]),
        networks=len(networks),
        cells=len(dataset.cells),
        calibration={regime: metrics.levels(answer) for regime, answer in answers.items()},
        notes=(f"{left_out}: some of their cells could not be measured",) if missing else (),
        cell_errors=_cell_errors(fitted.held_out.values()),
    )


def _cell_errors(networks: Iterable[HeldOutNetwork]) -> dict[str, list[float]]:
    """Relative errors of cells that were predicted, by the kind that takes most of their time."""
    errors: dict[str, list[float]] = {}
    for network in networks:
        for cell, (measured_us, _) in zip(network.cells, network.measured, strict=True):
            if cell.latency_us is not None and cell.kinds:
                kind = max(cell.kinds, key=lambda pair: pair[1])[0].rpartition("::")[2]
                errors.setdefault(kind, []).append(cell.latency_us / measured_us - 1.0)
    return errors


def _contest(
    dataset: Dataset, fitted: CrossFitted, unit: Unit, known: Sequence[_Known], config: FitConfig
) -> Contest:
    """Baselines on the same folds, with what the gate measured; a layer's cannot use that."""
    records = dataset.cells if unit == "cell" else dataset.layers
    names_of = ((h, layer.labels.get("network", h)) for h, layer in dataset.layers.items())
    of_layers = {h: without_form(name) for h, name in names_of}
    problem, costs_s = _problem(records, dataset.groups() if unit == "cell" else of_layers)
    position = {h: i for i, h in enumerate(sorted(records))}
    states_of = {one.network.name: one.by_regime for one in known}
    networks: list[Judged] = []
    splits: list[Split] = []
    for fold, members in fitted.folds.items():
        first = len(networks)
        for member in members:
            parts = member.cells if unit == "cell" else member.layers
            if parts and all(h in position for h, _ in parts):
                indexed = tuple((position[h], count) for h, count in parts)
                networks.append(Judged(member.name, member.latency_us, indexed, len(parts)))
        mine = range(first, len(networks))
        of_gate = mine if unit == "cell" else ()
        forbidden = dataset.forbidden(members)
        train = np.array([i for h, i in position.items() if h not in forbidden], np.intp)
        regimes = {
            regime: {i: tuple(states_of[networks[i].name][regime].measured) for i in of_gate}
            for regime in known[0].by_regime
            if regime != _MEASURED
        }
        splits.append(Split(train, mine, regimes, config.seed, own=fitted.models[fold]))
    everything = np.arange(len(position))
    splits.insert(0, Split(everything, range(len(networks)), {_MEASURED: None}, config.seed))
    return Contest(problem, costs_s, networks, splits)


def _problem(
    records: Mapping[str, MeasuredCell], groups: Mapping[str, str]
) -> tuple[Problem, NDArray[np.float64]]:
    """Cells or layers in the order of their hashes, and what measuring each costs in seconds."""
    ordered = sorted(records.items())
    latencies_us = np.array([r.latency_us for _, r in ordered])
    names = tuple(groups.get(h, h) for h, _ in ordered)
    problem = Problem(Sums.of_texts([r.text for _, r in ordered]), latencies_us, names)
    return problem, np.array([r.cost_s for _, r in ordered])


def _predictions(
    known: Sequence[_Known], regime: str, tolerance: float | None, confidence: float
) -> list[Prediction]:
    """At a confidence, in a state of knowledge; with a ``tolerance`` the gate gets there anew."""
    predictions = []
    for network, composition, by_regime in known:
        other, posterior = composition.at(confidence), by_regime[regime]
        if tolerance is not None and confidence != composition.confidence:
            posterior = cross_fitting.simulate_gate(network, other, tolerance)
        predictions.append(cross_fitting.prediction_in(network, other, posterior))
    return predictions


def evaluate_cells(
    dataset: Dataset,
    config: FitConfig,
    names: Sequence[str],
    on_message: OnMessage,
    seeds: Sequence[int],
) -> TargetReport:
    """``cells@N`` for N of 300, 3,000 and four fifths, and ``gated_cells@20%``; means of seeds."""
    problem, costs_s = _problem(dataset.cells, {})
    hashes, truth = problem.groups, problem.latencies_us.tolist()
    largest = int(len(hashes) * LARGEST_SHARE)
    sizes = [n for n in _SIZES if n < largest] + [largest]
    draws = [(replace(config, seed=seed), size) for size in sizes for seed in seeds]
    noise = np.array([cell.spread_share for _, cell in sorted(dataset.cells.items())])
    answers = at_once(_trial, ((problem, noise, *draw) for draw in draws))
    calibration, results, splits = dict[str, metrics.Levels](), list[MethodResult](), list[Split]()
    gated: list[list[Prediction]] = []
    for size in sizes:
        regime, trials, spent_s = f"cells@{size}", list[list[Prediction]](), list[float]()
        for seed in seeds:
            on_message(f"{dataset.target}: {OWN}, trained on {size:,} cells, seed {seed}")
            train, test, model, predicted, took_s = next(answers)
            spent_s.append(took_s)
            cells = [(hashes[i], truth[i], one) for i, one in zip(test, predicted, strict=True)]
            trials.append(_cell_predictions(cells, config.confidence))
            measured: dict[str, dict[int, tuple[int, ...]]] = {regime: {}}
            if size == largest:
                # A fifth: those that must be measured, then those the model is least sure of.
                spreads = [one.spread_share if one.trusted else math.inf for one in predicted]
                count = math.ceil(_GATED_SHARE * len(cells))
                chosen = np.argsort(-np.array(spreads), kind="stable")[:count].tolist()
                measured[_GATED] = {test[i]: (0,) for i in chosen}
                gated.append([*trials[-1]])
                for i in chosen:
                    name, us, _ = cells[i]
                    cost_s = float(costs_s[test[i]])
                    gated[-1][i] = Prediction(name, us, us, (us, us), 1.0, cost_s)
            splits.append(Split(train, test, measured, seed, seed, model))
        predict_ms = 1e3 * float(np.mean(spent_s))
        results.append(MethodResult(regime, OWN, trials, predict_ms, per_cell=True))
        if size == largest:
            results.append(MethodResult(_GATED, OWN, gated, predict_ms, per_cell=True))
        calibration[regime] = metrics.levels(partial(_cell_predictions, cells))
    next(answers, None)
    each = enumerate(zip(hashes, truth, strict=True))
    networks = [Judged(h, us, ((i, 1),)) for i, (h, us) in each]
    contest = Contest(problem, costs_s, networks, splits, per_cell=True)
    results += evaluate_baselines(dataset.target, names, {"cell": contest}, config, on_message)
    return TargetReport(
        target=dataset.target,
        data_hash=dataset.data_hash,
        results=tuple(results),
        noise_floor=None,
        networks=0,
        cells=len(hashes),
        calibration=calibration,
    )


def _trial(
    problem: Problem, noise: NDArray[np.float64], config: FitConfig, size: int
) -> tuple[Places, list[int], CellModel, list[CellLatency], float]:
    """In a worker, perhaps: ``size`` cells drawn, the others, a model, what it says, seconds."""
    order = np.random.default_rng(config.seed).permutation(len(problem.groups))
    train, test = np.sort(order[:size]), np.sort(order[size:]).tolist()
    known, texts = problem.take(train), problem.sums.texts
    model = fit.fit_model(known.sums.texts, known.latencies_us, known.groups, config, noise[train])
    began = time.perf_counter()
    answers = model.predict([texts[i] for i in test])
    took_s = time.perf_counter() - began
    return train, test, model, [stated(one, config.confidence) for one in answers], took_s


def _cell_predictions(
    cells: Sequence[tuple[str, float, CellLatency]], confidence: float
) -> list[Prediction]:
    """Lone cells as predicted, their truths beside them; intervals are even in the logarithm."""
    quantile = normal_quantile(confidence)
    predictions = []
    for name, true_us, cell in cells:
        us, bounds = math.nan, None
        if cell.latency_us is not None:
            us, factor = cell.latency_us, math.exp(quantile * cell.spread_share)
            bounds = (us / factor, us * factor)
        predictions.append(Prediction(name, true_us, us, bounds))
    return predictions
