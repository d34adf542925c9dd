"""The baselines on the same held-out networks, from the same records."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence

from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.evaluation.cross_fitting import CrossFitted
from hybridlat.evaluation.dataset import Dataset, MeasuredCell, WholeNetwork
from hybridlat.evaluation.metrics import Prediction
from hybridlat.evaluation.results import MethodResult
from hybridlat.model import baselines
from hybridlat.model.baselines import Baseline
from hybridlat.model.baselines.model_only import ModelOnly
from hybridlat.model.cell_model import CellModel
from hybridlat.model.training_problem import FitConfig

_OWN_MODEL = ModelOnly.name
_UNSEEN = "unseen"
_MEASURED = "measured"


def evaluate_baselines(
    dataset: Dataset,
    fitted: CrossFitted,
    config: FitConfig,
    gated: Mapping[str, Mapping[str, ErrorPosterior]],
    names: Sequence[str],
) -> list[MethodResult]:
    """Every named baseline in every regime.

    ``unseen``: it learned from all records but the held-out networks'. ``measured``: it learned
    from those too. Gated regimes: as unseen, and of the cells that our gate measured it is told the
    truth; a baseline of layers cannot use those.
    """
    import joblib

    kinds = {name: baselines.load(name) for name in names}
    kinds = {name: kind for name, kind in kinds.items() if _cells_of(kind, dataset)}
    folds = list(fitted.folds.values())
    everyone = [network for members in folds for network in members]
    answers = iter(
        joblib.Parallel(return_as="generator")(
            joblib.delayed(_learn_and_predict)(
                kind, dataset, forbidden, config, asked, own if name == _OWN_MODEL else None
            )
            for name, kind in kinds.items()
            for forbidden, asked, own in (
                ((), everyone, None),
                *(
                    (dataset.forbidden(members), members, fitted.models[fold])
                    for fold, members in fitted.folds.items()
                ),
            )
        )
    )
    results: list[MethodResult] = []
    for name, kind in kinds.items():
        known_us, _ = next(answers)
        predictions: dict[str, list[Prediction]] = {}
        spent, asked = 0.0, 0
        for members in folds:
            unseen_us, took_s = next(answers)
            spent += took_s
            asked += len(unseen_us)
            for network in members:
                if network.name not in unseen_us:
                    continue
                guess, known = unseen_us[network.name], known_us[network.name]
                for regime, values, measured in (
                    (_UNSEEN, guess, ()),
                    (_MEASURED, known, range(len(known))),
                    *_with_gate(kind, dataset, network, guess, gated),
                ):
                    predictions.setdefault(regime, []).append(
                        _answer(kind, dataset, network, values, measured)
                    )
        predict_ms = 1e3 * spent / asked if asked else None
        results.extend(
            MethodResult(regime, name, tuple(given), predict_ms)
            for regime, given in predictions.items()
        )
    next(answers, None)  # joblib warns of answers that are left before their end
    return results


def _learn_and_predict(
    kind: type[Baseline],
    dataset: Dataset,
    forbidden: Collection[str],
    config: FitConfig,
    networks: Sequence[WholeNetwork],
    own: CellModel | None,
) -> tuple[dict[str, list[float]], float]:
    """In a worker, perhaps: what a baseline says of the parts of networks, and in how many seconds.

    Networks of which a part is not recorded are left out. ``own`` is our own model of the records
    that are not forbidden, where that is the baseline: it is there already, and is not fitted anew.
    """
    model = _fit(kind, dataset, forbidden, config) if own is None else ModelOnly.of(own)
    found: dict[str, list[float]] = {}
    spent = 0.0
    for network in networks:
        texts = _parts(kind, dataset, network.cells if kind.unit == "cell" else network.layers)
        if texts is not None:
            began = time.perf_counter()
            found[network.name] = [float(v) for v in model.predict(texts)]
            spent += time.perf_counter() - began
    return found, spent


def _cells_of(kind: type[Baseline], dataset: Dataset) -> Mapping[str, MeasuredCell]:
    return dataset.cells if kind.unit == "cell" else dataset.layers


def _parts(
    kind: type[Baseline], dataset: Dataset, parts: Sequence[tuple[str, int]]
) -> list[str] | None:
    cells = _cells_of(kind, dataset)
    if not parts or any(h not in cells for h, _ in parts):
        return None
    return [cells[h].text for h, _ in parts]


def _fit(
    kind: type[Baseline], dataset: Dataset, forbidden: Collection[str], config: FitConfig
) -> Baseline:
    groups = dataset.groups() if kind.unit == "cell" else {}
    rows = [
        baselines.TrainingRow(t.text, t.latency_us, groups.get(h) or t.labels.get("network", h))
        for h, t in sorted(_cells_of(kind, dataset).items())
        if h not in forbidden
    ]
    model = kind(config.device, config.precision, config.seed)
    model.fit(rows)
    return model


def _with_gate(
    kind: type[Baseline],
    dataset: Dataset,
    network: WholeNetwork,
    guess: Sequence[float],
    gated: Mapping[str, Mapping[str, ErrorPosterior]],
) -> list[tuple[str, list[float], Collection[int]]]:
    runs: list[tuple[str, list[float], Collection[int]]] = []
    for regime, posteriors in gated.items():
        measured = posteriors[network.name].measured if kind.unit == "cell" else {}
        values = [
            dataset.cells[network.cells[i][0]].latency_us if i in measured else us
            for i, us in enumerate(guess)
        ]
        runs.append((regime, values, measured))
    return runs


def _answer(
    kind: type[Baseline],
    dataset: Dataset,
    network: WholeNetwork,
    values: Sequence[float],
    measured: Collection[int],
) -> Prediction:
    parts = network.cells if kind.unit == "cell" else network.layers
    cells = _cells_of(kind, dataset)
    uses = [count * us for (_, count), us in zip(parts, values, strict=True)]
    total = math.fsum(uses)
    return Prediction(
        name=network.name,
        true_us=network.latency_us,
        predicted_us=total,
        measured_share=math.fsum(uses[i] for i in measured) / total if total > 0 else 0.0,
        device_s=math.fsum(cells[parts[i][0]].cost_s for i in measured),
        cells=len(parts),
        cells_measured=len(measured),
    )
