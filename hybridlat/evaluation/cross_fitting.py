"""Held-out networks: which are held out, models fitted without them, predictions.

Training and judging share this. Fits run in as many processes as ``joblib.parallel_config`` says,
one where it says nothing, with the same result.
"""

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.engines import device_sheets
from hybridlat.estimate import gate
from hybridlat.estimate.calibration import HeldOutNetwork
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior
from hybridlat.estimate.lookup.models import keep_device, known_device
from hybridlat.estimate.predict.source import prior_of, stated
from hybridlat.evaluation.dataset import Dataset, WholeNetwork, without_form
from hybridlat.evaluation.metrics import Prediction
from hybridlat.model import fit
from hybridlat.model.cell_model import CellModel
from hybridlat.model.fit import FitConfig
from hybridlat.schema import workers
from hybridlat.schema.target import Device, Target
from hybridlat.schema.workers import OnMessage, silent, steady_fits
from hybridlat.store import Store

FOLDS = 5
Places = NDArray[np.intp]


def fold_of(name: str) -> int:
    """The fold of a network, from the hash of its name: adding others never moves it.

    Forms of one network, ``NAME@FORM``, are in one fold.
    """
    return int.from_bytes(_digest(name)[:8], "big") % FOLDS


def even_folds(names: Iterable[str], folds: int = FOLDS) -> dict[str, int]:
    """Folds of equally many networks, dealt out in the order of the names' hashes."""
    ordered = sorted(set(names), key=lambda name: (_digest(name), name))
    number = {digest: index for index, digest in enumerate(dict.fromkeys(map(_digest, ordered)))}
    return {name: number[_digest(name)] % folds for name in ordered}


def _digest(name: str) -> bytes:
    return hashlib.sha256(without_form(name).encode()).digest()


def at_once(function: Callable[..., Any], calls: Iterable[tuple[object, ...]]) -> Iterator[Any]:
    """The function's answer to each call, in order, by as many processes as joblib is set to."""
    import joblib

    jobs = (joblib.delayed(_steadily)(function, *arguments) for arguments in calls)
    # joblib warns of answers that are not taken to their end.
    parallel = workers.parallel(
        workers.count_of(None), return_as="generator", pre_dispatch="n_jobs"
    )
    with workers.safe_path():
        return iter(parallel(jobs))


@steady_fits()
def _steadily(function: Callable[..., Any], *arguments: object) -> Any:
    return function(*arguments)


def device_of(target: Target, store: Store) -> Device:
    """The device that features are computed from: its data sheet, else what the model in use was
    trained with, else a micro-benchmark of this CPU that the store keeps; else TargetError."""
    if (device := known_device(target, store)) is None:
        keep_device(target, store, device_sheets.of_target(target))
        device = known_device(target, store)
    return device or device_sheets.of_target(target)


def fit_without(dataset: Dataset, forbidden: Collection[str], config: FitConfig) -> CellModel:
    """A model of all recorded cells but the forbidden ones."""
    group_of = dataset.groups()
    chosen = {h: cell for h, cell in sorted(dataset.cells.items()) if h not in forbidden}
    latencies_us = np.array([cell.latency_us for cell in chosen.values()])
    texts, groups = [cell.text for cell in chosen.values()], [group_of[h] for h in chosen]
    noise = [cell.spread_share for cell in chosen.values()]
    return fit.fit_model(texts, latencies_us, groups, config, noise)


def held_out(model: CellModel, dataset: Dataset, network: WholeNetwork) -> HeldOutNetwork:
    """A network beside its truth, as a model predicts it that must not have seen it."""
    records = [dataset.cells[h] for h, _ in network.cells]
    cells, predictions = list[CellPrior](), model.predict([record.text for record in records])
    for (h, count), r, p in zip(network.cells, records, predictions, strict=True):
        cell = prior_of(h, r.text, count, stated(p, model.confidence))
        cells.append(replace(cell, cost_s=r.cost_s))
    measured = tuple((record.latency_us, record.spread_share) for record in records)
    return HeldOutNetwork(network.name, network.latency_us, tuple(cells), measured)


@dataclass(frozen=True)
class CrossFitted:
    """A model per fold that has not seen the fold's networks, and what it says of them.

    ``predict_ms`` is what a network's cells take, in the mean.
    """

    folds: Mapping[int, tuple[WholeNetwork, ...]]
    models: Mapping[int, CellModel]
    held_out: Mapping[str, HeldOutNetwork]
    predict_ms: float


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
    numbers = sorted({fold_of[n.name] for n in networks})
    folds = {k: tuple(n for n in networks if fold_of[n.name] == k) for k in numbers}

    def calls() -> Iterator[tuple[object, ...]]:
        done = 0
        for number, members in enumerate(folds.values(), start=1):
            done += len(members)
            unseen = f"{len(members)} networks that it has not seen ({done} of {len(networks)})"
            on_message(f"{dataset.target}: model {number} of {len(folds)}, for {unseen}")
            yield dataset, members, dataset.forbidden(members) | set(also_forbidden), config

    fitted = list(at_once(_fit_fold, calls()))
    models = {fold: model for fold, (model, _, _) in zip(folds, fitted, strict=True)}
    by_name = {n.name: n for _, members, _ in fitted for n in members}
    predict_ms = 1e3 * math.fsum(spent_s for *_, spent_s in fitted) / max(len(by_name), 1)
    return CrossFitted(folds, models, by_name, predict_ms)


def _fit_fold(
    dataset: Dataset, members: Sequence[WholeNetwork], forbidden: Collection[str], config: FitConfig
) -> tuple[CellModel, list[HeldOutNetwork], float]:
    """In a worker, perhaps: a fold's model, its networks as that model states them, seconds."""
    model = fit_without(dataset, forbidden, config)
    began = time.perf_counter()
    networks = [held_out(model, dataset, network) for network in members]
    return model, networks, time.perf_counter() - began


def simulate_gate(
    network: HeldOutNetwork, composition: Composition, tolerance: float
) -> ErrorPosterior:
    """Measure what the gate asks for, from the records, until it asks no more."""
    posterior = composition.start(network.cells)
    while step := gate.next_step(posterior, composition.for_cells(posterior), tolerance):
        posterior = posterior.observe(network.truth(step.positions))
    return posterior


def states(
    network: HeldOutNetwork, composition: Composition, gates: Mapping[str, float]
) -> dict[str, ErrorPosterior]:
    """What is known of a network in ``unseen``, the regimes of ``gates``, and ``measured``."""
    start = composition.start(network.cells)
    gated = {regime: simulate_gate(network, composition, t) for regime, t in gates.items()}
    measured = start.observe(network.truth(range(len(network.cells))))
    return {"unseen": start, **gated, "measured": measured}


def prediction_in(
    network: HeldOutNetwork, composition: Composition, posterior: ErrorPosterior
) -> Prediction:
    """The prediction of a network in the state of a posterior; no latency while a cell has none."""
    own = composition.for_cells(posterior)
    interval = own.interval(posterior) if posterior.complete else None
    return Prediction(
        name=network.name,
        true_us=network.latency_us,
        predicted_us=math.nan if interval is None else interval.latency_us,
        interval_us=None if interval is None else interval.interval_us,
        measured_share=posterior.measured_share,
        device_s=math.fsum(network.cells[i].cost_s for i in posterior.measured),
        cells=len(network.cells),
        cells_measured=len(posterior.measured),
    )
