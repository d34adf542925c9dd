"""Held-out networks: which are held out, models and baselines fitted without them, predictions.

Training and judging share this. Fits run in as many processes as ``joblib.parallel_config`` says,
one where it says nothing, with the same result.

A baseline learns from sums of kernels and predicts sums: cells, layers or whole networks. What is
judged is made of such sums, so a lone cell is a network of one cell, and a network of which only
the whole is recorded is one sum.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.engines import device_sheets
from hybridlat.estimate.calibration import HeldOutNetwork
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.gate import gate
from hybridlat.estimate.lookup.models import keep_device, known_device
from hybridlat.estimate.predict import priors
from hybridlat.evaluation.dataset import Dataset, WholeNetwork
from hybridlat.evaluation.metrics import MethodResult, Prediction, mean_score, score
from hybridlat.model import baselines, fit
from hybridlat.model.baselines import Baseline, Problem, Unit
from hybridlat.model.baselines.methods import ModelOnly
from hybridlat.model.cell_model import CellModel
from hybridlat.model.steady_sums import steady_fits
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.device import Device
from hybridlat.schema.progress import OnMessage, silent
from hybridlat.schema.target import Target
from hybridlat.store import Store

FOLDS = 5
Places = NDArray[np.intp]


def fold_of(name: str, folds: int = FOLDS) -> int:
    """The fold of a network, from the hash of its name: adding others never moves it."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % folds


def even_folds(names: Iterable[str], folds: int = FOLDS) -> dict[str, int]:
    """Folds of the same size, dealt out in the order of the names' hashes."""
    ordered = sorted(set(names), key=lambda name: (hashlib.sha256(name.encode()).digest(), name))
    return {name: index % folds for index, name in enumerate(ordered)}


def random_split(count: int, train: int, seed: int) -> tuple[Places, Places]:
    """``train`` positions drawn at random, and the rest."""
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[:train]), np.sort(order[train:])


def at_once(function: Callable[..., Any], calls: Iterable[tuple[object, ...]]) -> Iterator[Any]:
    """The function's answer to each call, in order, by as many processes as joblib is set to."""
    import joblib

    jobs = (joblib.delayed(function)(*arguments) for arguments in calls)
    # joblib warns of answers that are not taken to their end.
    return iter(joblib.Parallel(return_as="generator", pre_dispatch="n_jobs")(jobs))


def device_of(target: Target, store: Store) -> Device:
    """The device that features are computed from: its data sheet, else what the model in use was
    trained with, else a micro-benchmark of this CPU that the store keeps; else TargetError."""
    device = known_device(target, store)
    if device is None:
        keep_device(target, store, device_sheets.of_target(target))
        device = known_device(target, store)
    return device or device_sheets.of_target(target)


def fit_without(dataset: Dataset, forbidden: Collection[str], config: FitConfig) -> CellModel:
    """A model of all recorded cells but the forbidden ones, in an order that the hashes decide."""
    groups = dataset.groups()
    chosen = sorted(h for h in dataset.cells if h not in forbidden)
    return fit.fit_model(
        [dataset.cells[h].text for h in chosen],
        np.array([dataset.cells[h].latency_us for h in chosen]),
        [groups[h] for h in chosen],
        config,
        [dataset.cells[h].spread_share for h in chosen],
    )


def held_out(model: CellModel, dataset: Dataset, network: WholeNetwork) -> HeldOutNetwork:
    """A network beside its truth, as a model predicts it that must not have seen it."""
    records = [dataset.cells[h] for h, _ in network.cells]
    predictions = model.predict([record.text for record in records])
    cells = tuple(
        priors.predicted(h, record.text, count, prediction, model.confidence, record.cost_s)
        for (h, count), record, prediction in zip(network.cells, records, predictions, strict=True)
    )
    measured = tuple((record.latency_us, record.spread_share) for record in records)
    return HeldOutNetwork(network.name, network.latency_us, cells, measured)


@dataclass(frozen=True)
class CrossFitted:
    """A model per fold that has not seen the fold's networks, and what it says of them.

    ``predict_ms`` is what the cells of one network take, in the mean.
    """

    folds: Mapping[int, tuple[WholeNetwork, ...]]
    models: Mapping[int, CellModel]
    held_out: Mapping[str, HeldOutNetwork]
    predict_ms: float

    def others(self, fold: int) -> list[HeldOutNetwork]:
        """The networks of all other folds, each judged by the model that has not seen it."""
        return [
            self.held_out[n.name] for f, names in self.folds.items() if f != fold for n in names
        ]


def cross_fit(
    dataset: Dataset,
    networks: Sequence[WholeNetwork],
    config: FitConfig,
    fold_of: Mapping[str, int],
    also_forbidden: Collection[str] = (),
    on_message: OnMessage = silent,
) -> CrossFitted:
    """Fit one model per fold of ``networks``, each without the fold's cells and kernels.

    ``fold_of`` is the fold of each network by name; ``on_message`` gets a line for every model.
    """
    folds = {
        fold: tuple(n for n in networks if fold_of[n.name] == fold)
        for fold in sorted({fold_of[n.name] for n in networks})
    }

    def calls() -> Iterator[tuple[object, ...]]:
        for number, members in enumerate(folds.values()):
            what = f"model {number + 1} of {len(folds)}, without {len(members)} networks"
            on_message(f"{dataset.target}: {what}")
            yield dataset, members, dataset.forbidden(members) | set(also_forbidden), config

    fitted = list(at_once(_fit_fold, calls()))
    models = {fold: model for fold, (model, _, _) in zip(folds, fitted, strict=True)}
    by_name = {n.name: n for _, members, _ in fitted for n in members}
    predict_ms = 1e3 * math.fsum(spent for _, _, spent in fitted) / max(len(by_name), 1)
    return CrossFitted(folds, models, by_name, predict_ms)


@steady_fits()
def _fit_fold(
    dataset: Dataset,
    members: Sequence[WholeNetwork],
    forbidden: Collection[str],
    config: FitConfig,
) -> tuple[CellModel, list[HeldOutNetwork], float]:
    """In a worker, perhaps: a fold's model, its networks as that model states them, seconds."""
    model = fit_without(dataset, forbidden, config)
    began = time.perf_counter()
    networks = [held_out(model, dataset, network) for network in members]
    return model, networks, time.perf_counter() - began


def simulate_gate(
    network: HeldOutNetwork, composition: Composition, tolerance: float, fraction: float = 0.25
) -> ErrorPosterior:
    """Measure what the gate asks for, from the records, until it asks no more."""
    posterior = composition.start(network.cells)
    while chosen := gate.choose(posterior, composition, tolerance, fraction=fraction):
        posterior = posterior.observe(network.truth(chosen))
    return posterior


def all_measured(network: HeldOutNetwork, composition: Composition) -> ErrorPosterior:
    """The posterior once every cell is measured."""
    return composition.start(network.cells).observe(network.truth(range(len(network.cells))))


def prediction_in(
    network: HeldOutNetwork, composition: Composition, posterior: ErrorPosterior
) -> Prediction:
    """The prediction of a network in the state of a posterior; no latency while a cell has none."""
    interval = composition.interval(posterior)
    complete = posterior.complete
    return Prediction(
        name=network.name,
        true_us=network.latency_us,
        predicted_us=interval.latency_us if complete else math.nan,
        interval_us=interval.interval_us if complete else None,
        measured_share=posterior.measured_share,
        device_s=math.fsum(network.cells[i].cost_s for i in posterior.measured),
        cells=len(network.cells),
        cells_measured=len(posterior.measured),
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """A network: its truth, and the sums of a problem that make it up, each with its count."""

    name: str
    true_us: float
    parts: tuple[tuple[int, int], ...]
    cells: int = 1


@dataclass(frozen=True)
class Split:
    """One fit of a baseline, on ``train``, and the positions of the networks that it is judged on.

    ``regimes`` maps a regime to the parts of each network that were measured, whose truth then
    stands in for the prediction; None where all were, and the baseline has learned from them.
    Splits of one ``trial`` are judged together, and figures are the mean over trials. ``own`` is
    our model of the same records, where it was fitted before.
    """

    train: Places
    judged: Sequence[int]
    regimes: Mapping[str, Mapping[int, Collection[int]] | None]
    seed: int
    trial: int = 0
    own: CellModel | None = None
    label: str = ""


@dataclass(frozen=True)
class Task:
    """What baselines of one unit are judged on. ``costs_s`` is what measuring each sum takes."""

    problem: Problem
    costs_s: NDArray[np.float64]
    networks: Sequence[Judged]
    splits: Sequence[Split]
    per_cell: bool = False

    def sums_of(self, split: Split) -> Places:
        """The sums that make up the split's networks."""
        parts = {part for i in split.judged for part, _ in self.networks[i].parts}
        return np.array(sorted(parts), np.intp)


def evaluate_baselines(
    names: Sequence[str],
    tasks: Mapping[Unit, Task],
    config: FitConfig,
    on_message: OnMessage = silent,
) -> list[MethodResult]:
    """Every named baseline that has a task of its unit, in every regime of the task's splits."""
    kinds = [baselines.load(name) for name in names]
    runs = [(kind, tasks[unit]) for kind in kinds for unit in kind.units if unit in tasks]
    answers = at_once(
        _fit_and_predict,
        (
            (kind, task.problem, split, task.sums_of(split), config)
            for kind, task in runs
            for split in task.splits
        ),
    )
    results = []
    for kind, task in runs:
        trials: dict[str, dict[int, list[Prediction]]] = {}
        took_s: dict[str, list[float]] = {}
        for split in task.splits:
            if split.label:
                on_message(f"{kind.name}, {split.label}")
            values, spent_s = next(answers)
            each_s = spent_s if task.per_cell else spent_s / max(len(split.judged), 1)
            for regime, measured in split.regimes.items():
                predictions = trials.setdefault(regime, {}).setdefault(split.trial, [])
                took_s.setdefault(regime, []).append(each_s)
                for place in split.judged:
                    known = None if measured is None else measured.get(place, ())
                    predictions.append(_prediction(task, task.networks[place], values, known))
        for regime, by_trial in trials.items():
            predict_ms, given = 1e3 * float(np.mean(took_s[regime])), list(by_trial.values())
            results.append(of_trials(regime, kind.name, given, predict_ms, task.per_cell))
    next(answers, None)
    return results


def of_trials(
    regime: str,
    method: str,
    trials: Sequence[Sequence[Prediction]],
    predict_ms: float | None = None,
    per_cell: bool = False,
) -> MethodResult:
    """The result of repeated trials: figures are their mean, the predictions those of the last."""
    summary = mean_score([score(one) for one in trials]) if len(trials) > 1 else None
    return MethodResult(regime, method, tuple(trials[-1]), predict_ms, per_cell, summary)


@steady_fits()
def _fit_and_predict(
    kind: type[Baseline], problem: Problem, split: Split, wanted: Places, config: FitConfig
) -> tuple[NDArray[np.float64], float]:
    """In a worker, perhaps: latencies of the wanted sums (NaN: of others), and the seconds."""
    values = np.full(len(problem.sums), np.nan)
    if not len(split.train) or not len(wanted):
        return values, 0.0
    if split.own is not None and kind is ModelOnly:
        model: Baseline = ModelOnly.of(split.own)
    else:
        model = kind(config.device, config.precision, split.seed)
        model.fit(problem.take(split.train))
    sums = problem.sums.take(wanted)
    began = time.perf_counter()
    values[wanted] = model.predict(sums)
    return values, time.perf_counter() - began


def _prediction(
    task: Task,
    network: Judged,
    values: NDArray[np.float64],
    measured: Collection[int] | None,
) -> Prediction:
    """The sum over a network's parts; ``measured`` are positions among them, None for all."""
    truth = task.problem.latencies_us
    uses = [
        count * float(truth[part] if measured and i in measured else values[part])
        for i, (part, count) in enumerate(network.parts)
    ]
    total = math.fsum(uses)
    known = range(len(uses)) if measured is None else measured
    return Prediction(
        name=network.name,
        true_us=network.true_us,
        predicted_us=total,
        measured_share=math.fsum(uses[i] for i in known) / total if total > 0 else 0.0,
        device_s=math.fsum(task.costs_s[network.parts[i][0]] for i in known),
        cells=network.cells,
        cells_measured=len(known),
    )
