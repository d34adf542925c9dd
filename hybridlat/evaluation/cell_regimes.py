"""Regimes of lone cells, where too few networks were measured whole.

Models learn from some of the cells and are judged on the rest.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.composition import CALIBRATED_AT, normal_quantile
from hybridlat.estimate.compose.posterior import CellPrior
from hybridlat.estimate.predict.source import predicted_prior
from hybridlat.evaluation.baseline_runs import (
    Judged,
    Places,
    Split,
    Task,
    evaluate_baselines,
    of_trials,
)
from hybridlat.evaluation.cross_fitting import at_once
from hybridlat.evaluation.dataset import Dataset
from hybridlat.evaluation.metrics import (
    OWN,
    ConfidenceLevel,
    Prediction,
    TargetReport,
    levels,
)
from hybridlat.model import baselines, fit
from hybridlat.model.baselines import Problem, Sums
from hybridlat.model.cell_model import CellModel
from hybridlat.model.steady_sums import steady_fits
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.progress import OnMessage

SIZES = (300, 3000)
_GATED_SHARE = 0.2
_LARGEST_SHARE = 0.8


def random_split(count: int, train: int, seed: int) -> tuple[Places, Places]:
    """``train`` positions drawn at random, and the rest."""
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[:train]), np.sort(order[train:])


def cell_prediction(cell: CellPrior, true_us: float, confidence: float) -> Prediction:
    """A lone cell as predicted; its interval reaches by the same factor up and down."""
    if cell.latency_us is None:
        return Prediction(cell.signature, true_us, math.nan)
    factor = math.exp(normal_quantile(confidence) * cell.spread_share)
    bounds = (cell.latency_us / factor, cell.latency_us * factor)
    return Prediction(cell.signature, true_us, cell.latency_us, bounds)


def levels_of_cells(
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
    seeds: Sequence[int],
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
            regime: levels_of_cells(given[-1], config.confidence)
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
        predicted_prior(hashes[i], text, 1, answer, config.confidence)
        for i, text, answer in zip(test, wanted, answers, strict=True)
    ]
    predictions = tuple(
        cell_prediction(cell, float(problem.latencies_us[i]), config.confidence)
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
