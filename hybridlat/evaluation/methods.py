"""What predictions are compared with: baselines, and other ways to choose cells to measure.

A baseline learns from sums of kernels and predicts sums: cells, layers or whole networks. What is
judged is made of such sums, so a lone cell is a network of one cell, and a network of which only
the whole is recorded is one sum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.calibration import HeldOutNetwork, cells_at
from hybridlat.estimate.compose.composition import Composition
from hybridlat.evaluation.metrics import MethodResult, Prediction, mean_score, score
from hybridlat.model import baselines
from hybridlat.model.baselines import Baseline, Problem, Unit
from hybridlat.model.baselines.methods import ModelOnly
from hybridlat.model.cell_model import CellModel
from hybridlat.model.steady_sums import steady_fits
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.progress import OnMessage, silent

PERFECT = "perfect"
"""The choice that knows the truth: what no method can beat."""
_RANDOM_TRIALS = 10
Places = NDArray[np.intp]
Order = Callable[[HeldOutNetwork, Composition], list[int]]
Pairs = Sequence[tuple[HeldOutNetwork, Composition]]


@dataclass(frozen=True, slots=True)
class Judged:
    """A network: its truth, and the sums of a problem that make it up, each with its count."""

    name: str
    true_us: float
    parts: tuple[tuple[int, int], ...]
    cells: int = 1


@dataclass(frozen=True)
class Split:
    """One fit of a baseline, on ``train``, and the networks that it is judged on.

    ``judged`` are positions of networks, those together that are predicted in one call.
    ``regimes`` maps a regime to the parts of each network that were measured, whose truth then
    stands in for the prediction; None where all were, and the baseline has learned from them.
    Splits of one ``trial`` are judged together, and figures are the mean over trials. ``own`` is
    our model of the same records, where it was fitted before.
    """

    train: Places
    judged: Sequence[Sequence[int]]
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


def evaluate_baselines(
    names: Sequence[str],
    tasks: Mapping[Unit, Task],
    config: FitConfig,
    on_message: OnMessage = silent,
) -> list[MethodResult]:
    """Every named baseline that has a task of its unit, in every regime of the task's splits.

    Fits run in as many processes as ``joblib.parallel_config`` says, with the same result.
    """
    import joblib

    kinds = [baselines.load(name) for name in names]
    runs = [(kind, tasks[unit]) for kind in kinds for unit in kind.units if unit in tasks]
    answers = iter(
        joblib.Parallel(return_as="generator", pre_dispatch="n_jobs")(
            joblib.delayed(_fit_and_predict)(kind, task.problem, split, _calls(task, split), config)
            for kind, task in runs
            for split in task.splits
        )
    )
    results = []
    for kind, task in runs:
        trials: dict[str, dict[int, list[Prediction]]] = {}
        took_s: dict[str, list[float]] = {}
        for split in task.splits:
            if split.label:
                on_message(f"{kind.name}, {split.label}")
            values, spent_s = next(answers)
            for regime, measured in split.regimes.items():
                predictions = trials.setdefault(regime, {}).setdefault(split.trial, [])
                took_s.setdefault(regime, []).extend(spent_s)
                for place in (i for together in split.judged for i in together):
                    known = None if measured is None else measured.get(place, ())
                    predictions.append(_prediction(task, task.networks[place], values, known))
        results += [
            of_trials(
                regime, kind.name, list(by_trial.values()),
                1e3 * float(np.mean(took_s[regime])) if took_s[regime] else None, task.per_cell,
            )
            for regime, by_trial in trials.items()
        ]  # fmt: skip
    next(answers, None)  # joblib warns of answers that are left before their end
    return results


def of_trials(
    regime: str,
    method: str,
    trials: Sequence[Sequence[Prediction]],
    predict_ms: float | None = None,
    per_cell: bool = False,
    asked: int | None = None,
) -> MethodResult:
    """The result of repeated trials: figures are their mean, the predictions those of the last."""
    summary = mean_score([score(one) for one in trials]) if len(trials) > 1 else None
    return MethodResult(regime, method, tuple(trials[-1]), predict_ms, per_cell, summary, asked)


def _calls(task: Task, split: Split) -> list[Places]:
    """Which sums of the problem are predicted in each call."""
    return [
        np.unique([part for i in together for part, _ in task.networks[i].parts])
        for together in split.judged
    ]


@steady_fits()
def _fit_and_predict(
    kind: type[Baseline], problem: Problem, split: Split, calls: Sequence[Places], config: FitConfig
) -> tuple[NDArray[np.float64], list[float]]:
    """In a worker, perhaps: latencies of the sums of all calls, and the seconds of each call."""
    values = np.full(len(problem.sums), np.nan)
    spent_s: list[float] = []
    if not len(split.train):
        return values, spent_s
    if split.own is not None and kind is ModelOnly:
        model: Baseline = ModelOnly.of(split.own)
    else:
        model = kind(config.device, config.precision, split.seed)
        model.fit(problem.take(split.train))
    for places in calls:
        sums = problem.sums.take(places)
        began = time.perf_counter()
        values[places] = model.predict(sums)
        spent_s.append(time.perf_counter() - began)
    return values, spent_s


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


def share_only(network: HeldOutNetwork, composition: Composition) -> list[int]:
    """The cells with the largest predicted part of the time first."""
    del composition
    uses = [-(c.latency_us or math.inf) * c.count for c in network.cells]
    return sorted(range(len(uses)), key=lambda i: (uses[i], network.cells[i].signature))


def random_order(seed: int) -> Order:
    """Cells in an order that the seed and the network's name decide."""

    def order(network: HeldOutNetwork, composition: Composition) -> list[int]:
        del composition
        rng = np.random.default_rng([seed, *network.name.encode()])
        return [int(i) for i in rng.permutation(len(network.cells))]

    return order


def perfect(network: HeldOutNetwork, composition: Composition) -> list[int]:
    """Next the cell whose measurement brings the network nearest to its truth: it knows both."""
    uses, truth = _uses(network)
    total = sum(uses)
    left = list(range(len(uses)))
    order = []
    while left:
        best = min(
            left,
            key=lambda i: abs(
                composition.latency_us(total + truth[i] - uses[i]) - network.latency_us
            ),
        )
        total += truth[best] - uses[best]
        left.remove(best)
        order.append(best)
    return order


_CHOICES: Mapping[str, Sequence[Order]] = {
    "share_only": [share_only],
    PERFECT: [perfect],
    "random": [random_order(seed) for seed in range(_RANDOM_TRIALS)],
}


def _uses(network: HeldOutNetwork) -> tuple[list[float], list[float]]:
    truth = [c.count * us for c, (us, _) in zip(network.cells, network.measured, strict=True)]
    uses = [
        t if c.latency_us is None else c.count * c.latency_us
        for c, t in zip(network.cells, truth, strict=True)
    ]
    return uses, truth


def choices(pairs: Pairs, shares: Sequence[float]) -> list[MethodResult]:
    """What plain ways of choosing reach at shares of the cells, the rest as predicted."""
    return [
        of_trials(
            f"gated_cells@{share * 100:g}%", method,
            [_chosen(pairs, order, share) for order in reversed(orders)],
        )
        for share in shares
        for method, orders in _CHOICES.items()
    ]  # fmt: skip


def _chosen(pairs: Pairs, order: Order, share: float) -> tuple[Prediction, ...]:
    predictions = []
    for network, composition in pairs:
        chosen = order(network, composition)[: cells_at(share, len(network.cells))]
        uses, truth = _uses(network)
        mixed = [truth[i] if i in chosen else us for i, us in enumerate(uses)]
        predictions.append(
            Prediction(
                network.name,
                network.latency_us,
                composition.latency_us(math.fsum(mixed)),
                measured_share=math.fsum(mixed[i] for i in chosen) / math.fsum(mixed),
                device_s=math.fsum(network.cells[i].cost_s for i in chosen),
                cells=len(network.cells),
                cells_measured=len(chosen),
            )
        )
    return tuple(predictions)
