"""Packs without whole networks: judged per cell, trained on N random rows, tested on the rest."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.predict import priors
from hybridlat.evaluation.confidence_levels import ConfidenceLevel, of_cells
from hybridlat.evaluation.dataset import Dataset
from hybridlat.evaluation.metrics import Prediction, Score, mean_score, score
from hybridlat.evaluation.results import OWN, MethodResult, TargetReport
from hybridlat.evaluation.selection_curves import cell_interval_factor
from hybridlat.evaluation.splits import random_split
from hybridlat.model import baselines
from hybridlat.model.steady_sums import steady_fits
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.progress import OnMessage

SIZES = (300, 3000)
SEEDS = (0, 1, 2)
GATED_SHARE = 0.2
_MOST_FOR_LARGEST = 0.8
_OWN_MODEL = "model_only"  # by itself our own answers where nothing was measured: not fitted twice


def evaluate_cells(
    dataset: Dataset,
    config: FitConfig,
    names: Sequence[str],
    on_message: OnMessage,
    seeds: Sequence[int] = SEEDS,
) -> TargetReport:
    """``cells@N`` for N of 300, 3,000 and four fifths, and ``gated_cells@20%``; means of seeds."""
    import joblib

    hashes = sorted(dataset.cells)
    texts = [dataset.cells[h].text for h in hashes]
    truth = np.array([dataset.cells[h].latency_us for h in hashes])
    costs = np.array([dataset.cells[h].cost_s for h in hashes])
    largest = int(len(hashes) * _MOST_FOR_LARGEST)
    sizes = [n for n in SIZES if n < largest] + [largest]
    results: list[MethodResult] = []
    chosen: dict[int, NDArray[np.intp]] = {}
    data = _Data(hashes, texts, truth, costs)
    methods = [OWN, *(n for n in names if baselines.load(n).unit == "cell")]
    calibration: dict[str, tuple[ConfidenceLevel, ...]] = {}
    ours: dict[tuple[int, int], tuple[tuple[Prediction, ...], float]] = {}
    fitted = iter(
        joblib.Parallel(return_as="generator", pre_dispatch="n_jobs")(
            joblib.delayed(_trial)(data, config, method, size, seed)
            for method in methods
            if method != _OWN_MODEL
            for size in sizes
            for seed in seeds
        )
    )
    for method in methods:
        for size in sizes:
            trials: list[Score] = []
            gated: list[Score] = []
            predictions: tuple[Prediction, ...] = ()
            measured: tuple[Prediction, ...] = ()
            spent = 0.0
            for seed in seeds:
                if method != _OWN_MODEL:
                    on_message(
                        f"{dataset.target}: {method}, trained on {size:,} cells, seed {seed}"
                    )
                _, test = random_split(len(hashes), size, seed)
                if method == OWN:
                    predictions, took, order = next(fitted)
                    ours[size, seed] = predictions, took
                    if size == largest:
                        chosen[seed] = order[: math.ceil(GATED_SHARE * len(test))]
                elif method == _OWN_MODEL:
                    own_predictions, took = ours[size, seed]
                    predictions = tuple(
                        dataclasses.replace(a, interval_us=None) for a in own_predictions
                    )
                else:
                    predictions, took, _ = next(fitted)
                spent += 1e3 * took / len(seeds)
                trials.append(score(predictions))
                if size == largest:
                    measured = _measure(data, predictions, test, chosen[seed])
                    gated.append(score(measured))
            results.append(
                MethodResult(f"cells@{size}", method, predictions, spent, True, mean_score(trials))
            )
            if gated:
                regime = f"gated_cells@{GATED_SHARE * 100:g}%"
                results.append(
                    MethodResult(regime, method, measured, spent, True, mean_score(gated))
                )
            if method == OWN:
                calibration[f"cells@{size}"] = of_cells(predictions, config.confidence)
    next(fitted, None)  # joblib warns of answers that are left before their end
    return TargetReport(
        target=dataset.target,
        data_hash=dataset.data_hash,
        results=tuple(results),
        noise_floor=None,
        noise_within_5=None,
        networks=0,
        cells=len(hashes),
        calibration=calibration,
        notes=_notes(dataset, names),
    )


def _notes(dataset: Dataset, names: Sequence[str]) -> tuple[str, ...]:
    layers = [n for n in names if baselines.load(n).unit == "layer"]
    if not layers:
        return ()
    return (
        f"{dataset.target}: {' and '.join(layers)} cannot be judged: "
        "no unfused layers are recorded",
    )


class _Data:
    """The rows of one target, in the order of their hashes."""

    def __init__(
        self,
        hashes: Sequence[str],
        texts: Sequence[str],
        truth: NDArray[np.float64],
        costs: NDArray[np.float64],
    ) -> None:
        self.hashes, self.texts, self.truth, self.costs = hashes, texts, truth, costs


@steady_fits()
def _trial(
    data: _Data, config: FitConfig, method: str, size: int, seed: int
) -> tuple[tuple[Prediction, ...], float, NDArray[np.intp]]:
    """In a worker, perhaps: answers, seconds to predict them, and ours the order of the gate."""
    train, test = random_split(len(data.hashes), size, seed)
    if method == OWN:
        return _own(data, config, train, test, seed)
    return *_baseline(data, config, method, train, test, seed), np.zeros(0, np.intp)


def _own(
    data: _Data, config: FitConfig, train: NDArray[np.intp], test: NDArray[np.intp], seed: int
) -> tuple[tuple[Prediction, ...], float, NDArray[np.intp]]:
    """Answers on the test cells, seconds to predict them, and the order the gate measures in."""
    from hybridlat.model.fit import fit_model

    model = fit_model(
        [data.texts[i] for i in train],
        data.truth[train],
        [data.hashes[i] for i in train],
        dataclasses.replace(config, seed=seed),
    )
    wanted = [data.texts[i] for i in test]
    began = time.perf_counter()
    cell_predictions = model.predict(wanted)
    took = time.perf_counter() - began
    level = Composition(confidence=config.confidence)
    predictions = []
    spreads = []
    for i, text, prediction in zip(test, wanted, cell_predictions, strict=True):
        cell = priors.predicted(data.hashes[i], text, 1, prediction, config.confidence)
        latency = math.nan if cell.latency_us is None else cell.latency_us
        factor = cell_interval_factor(cell, level)
        interval = None if cell.latency_us is None else (latency / factor, latency * factor)
        predictions.append(Prediction(data.hashes[i], float(data.truth[i]), latency, interval))
        # What must be measured comes first; then what the model is least sure of.
        spreads.append(math.inf if cell.must_be_measured else cell.spread_share)
    return tuple(predictions), took, np.argsort(-np.array(spreads), kind="stable")


def _baseline(
    data: _Data,
    config: FitConfig,
    name: str,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    seed: int,
) -> tuple[tuple[Prediction, ...], float]:
    model = baselines.load(name)(config.device, config.precision, seed)
    model.fit(
        [baselines.TrainingRow(data.texts[i], float(data.truth[i]), data.hashes[i]) for i in train]
    )
    wanted = [data.texts[i] for i in test]
    began = time.perf_counter()
    answers = model.predict(wanted)
    took = time.perf_counter() - began
    return tuple(
        Prediction(data.hashes[i], float(data.truth[i]), float(us))
        for i, us in zip(test, answers, strict=True)
    ), took


def _measure(
    data: _Data, predictions: Sequence[Prediction], test: NDArray[np.intp], chosen: NDArray[np.intp]
) -> tuple[Prediction, ...]:
    """The same answers with some of the cells played back as measured."""
    measured = {int(i) for i in chosen}
    return tuple(
        Prediction(
            a.name, a.true_us, a.true_us, (a.true_us, a.true_us), 1.0, float(data.costs[test[i]])
        )
        if i in measured
        else a
        for i, a in enumerate(predictions)
    )
