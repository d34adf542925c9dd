"""The baselines on the same held-out networks, from the same records."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence

from hybridlat.estimate.posterior import ErrorPosterior
from hybridlat.evaluation.cross_fitting import CrossFitted
from hybridlat.evaluation.dataset import Dataset, MeasuredCell, WholeNetwork
from hybridlat.evaluation.metrics import Prediction
from hybridlat.evaluation.results import MethodResult
from hybridlat.model import baselines
from hybridlat.model.baselines import Baseline
from hybridlat.model.training_problem import FitConfig

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
    results: list[MethodResult] = []
    for name in names:
        kind = baselines.load(name)
        if not _cells_of(kind, dataset):
            continue
        seen_all = _fit(kind, dataset, (), config)
        predictions: dict[str, list[Prediction]] = {}
        spent, asked = 0.0, 0
        for members in fitted.folds.values():
            unseen = _fit(kind, dataset, dataset.forbidden(members), config)
            for network in members:
                parts = network.cells if kind.unit == "cell" else network.layers
                texts = _parts(kind, dataset, parts)
                if texts is None:
                    continue
                began = time.perf_counter()
                guess = [float(v) for v in unseen.predict(texts)]
                spent += time.perf_counter() - began
                asked += 1
                known = [float(v) for v in seen_all.predict(texts)]
                every = range(len(parts))
                for regime, values, measured in (
                    (_UNSEEN, guess, ()),
                    (_MEASURED, known, every),
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
    return results


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
