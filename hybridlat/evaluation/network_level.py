"""The three regimes, played on networks that were held out: nothing of theirs was trained on."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from hybridlat.estimate.compose.calibration import (
    HeldOutNetwork,
    cells_at,
    fit_composition,
    measure_greedily,
)
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.evaluation import confidence_levels, selection_curves
from hybridlat.evaluation.baseline_runs import evaluate_baselines
from hybridlat.evaluation.cross_fitting import CrossFitted, cross_fit
from hybridlat.evaluation.dataset import Dataset, WholeNetwork
from hybridlat.evaluation.metrics import Prediction, noise
from hybridlat.evaluation.replay import all_measured, prediction_in, simulate_gate
from hybridlat.evaluation.results import OWN, MethodResult, TargetReport
from hybridlat.evaluation.splits import FOLDS, even_folds
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.progress import OnMessage

CELL_SHARES = (0.05, 0.1, 0.2, 0.3)
_MEASURED, _UNSEEN = "measured", "unseen"


def evaluate_networks(
    dataset: Dataset,
    config: FitConfig,
    tolerances: Sequence[float],
    baselines: Sequence[str],
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
    compositions = {
        fold: fit_composition(fitted.others(fold), config.confidence) for fold in fitted.folds
    }
    predictions: dict[str, list[Prediction]] = {}
    posteriors: dict[str, dict[str, ErrorPosterior]] = {}
    spent: dict[str, list[float]] = {}
    for fold, members in fitted.folds.items():
        for network in members:
            _play(
                dataset, network, fitted.held_out[network.name], compositions[fold], tolerances,
                predictions, posteriors, spent,
            )  # fmt: skip
    predict_ms = _predict_ms(dataset, fitted)
    own = [
        MethodResult(regime, OWN, tuple(predictions[regime]), predict_ms) for regime in predictions
    ]
    on_message(f"{dataset.target}: fitting baselines")
    gated = {r: b for r, b in posteriors.items() if r not in (_MEASURED, _UNSEEN)}
    others = evaluate_baselines(dataset, fitted, config, gated, baselines)
    drawn = selection_curves.risk_coverage(fitted, compositions)
    pairs = [(fitted.held_out[n.name], compositions[f]) for f, m in fitted.folds.items() for n in m]
    own.extend(selection_curves.choices(pairs, CELL_SHARES))
    cells = _cells(pairs)
    own.append(MethodResult("unseen_cells", OWN, cells, predict_ms, per_cell=True))
    on_message(f"{dataset.target}: intervals at other confidences")
    gates = {f"gated@{t * 100:g}%": t for t in tolerances}
    calibration = {
        regime: confidence_levels.of_gate(pairs, gates[regime], given)
        if regime in gates
        else confidence_levels.of_states(pairs, given)
        for regime, given in posteriors.items()
    }
    calibration["unseen_cells"] = confidence_levels.of_cells(cells, config.confidence)
    floor, within = noise([n.repeats_us for n in networks])
    return TargetReport(
        target=dataset.target,
        data_hash=dataset.data_hash,
        results=(*own, *others),
        noise_floor=floor,
        noise_within_5=within,
        networks=len(networks),
        cells=len(dataset.cells),
        curves=drawn,
        calibration=calibration,
        device_time_share={r: sum(v) / len(v) for r, v in spent.items() if v},
        notes=_notes(dataset, networks),
    )


def _play(
    dataset: Dataset,
    whole: WholeNetwork,
    network: HeldOutNetwork,
    composition: Composition,
    tolerances: Sequence[float],
    predictions: dict[str, list[Prediction]],
    posteriors: dict[str, dict[str, ErrorPosterior]],
    spent: dict[str, list[float]],
) -> None:
    everything = all_measured(network, composition)
    start = composition.start(network.cells)
    for regime, posterior in ((_MEASURED, everything), (_UNSEEN, start)):
        posteriors.setdefault(regime, {})[whole.name] = posterior
        predictions.setdefault(regime, []).append(prediction_in(network, composition, posterior))
    total_s = math.fsum(c.cost_s for c in network.cells)
    for tolerance in tolerances:
        regime = f"gated@{tolerance * 100:g}%"
        posterior = simulate_gate(network, composition, tolerance)
        posteriors.setdefault(regime, {})[whole.name] = posterior
        prediction = prediction_in(network, composition, posterior)
        predictions.setdefault(regime, []).append(prediction)
        spent.setdefault(regime, []).append(prediction.device_s / total_s)
    for share in CELL_SHARES:
        regime = f"gated_cells@{share * 100:g}%"
        posterior = measure_greedily(start, network, cells_at(share, len(network.cells)))
        posteriors.setdefault(regime, {})[whole.name] = posterior
        predictions.setdefault(regime, []).append(prediction_in(network, composition, posterior))


def _cells(pairs: Sequence[tuple[HeldOutNetwork, Composition]]) -> tuple[Prediction, ...]:
    """Every distinct cell once, as the first network that has it saw it predicted."""
    seen: dict[str, Prediction] = {}
    for network, composition in pairs:
        for cell, (true_us, _) in zip(network.cells, network.measured, strict=True):
            if cell.latency_us is None:
                prediction = Prediction(cell.signature, true_us, math.nan)
            else:
                factor = selection_curves.cell_interval_factor(cell, composition)
                low, high = cell.latency_us / factor, cell.latency_us * factor
                prediction = Prediction(cell.signature, true_us, cell.latency_us, (low, high))
            seen.setdefault(cell.signature, prediction)
    return tuple(seen.values())


def _predict_ms(dataset: Dataset, fitted: CrossFitted) -> float:
    """Milliseconds to predict the cells of one network, mean over all, models loaded."""
    spent = 0.0
    count = 0
    for fold, members in fitted.folds.items():
        for network in members:
            texts = [dataset.cells[h].text for h, _ in network.cells]
            began = time.perf_counter()
            fitted.models[fold].predict(texts)
            spent += time.perf_counter() - began
            count += 1
    return 1e3 * spent / max(count, 1)


def _notes(dataset: Dataset, networks: Sequence[WholeNetwork]) -> tuple[str, ...]:
    missing = len(dataset.networks) - len(networks)
    if not missing:
        return ()
    networks_text = "1 network is" if missing == 1 else f"{missing} networks are"
    return (f"{networks_text} left out: some of their cells could not be measured",)
