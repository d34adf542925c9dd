"""Baselines on held-out sums of kernels: cells, layers or whole networks.

What is judged is made of such sums: a lone cell is one, and so is a network without cells.
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.evaluation.cross_fitting import Places, at_once
from hybridlat.evaluation.metrics import MethodResult, Prediction
from hybridlat.model import baselines
from hybridlat.model.baselines import Baseline, Problem, Unit
from hybridlat.model.baselines.methods import ModelOnly
from hybridlat.model.cell_model import CellModel
from hybridlat.model.fit import FitConfig
from hybridlat.schema.target import Target
from hybridlat.schema.workers import OnMessage


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
    Splits of one ``trial`` are judged together. ``own`` is our model of the same records, if any.
    """

    train: Places
    judged: Sequence[int]
    regimes: Mapping[str, Mapping[int, Collection[int]] | None]
    seed: int
    trial: int = 0
    own: CellModel | None = None


@dataclass(frozen=True)
class Contest:
    """What baselines of one unit are judged on; ``costs_s`` is what measuring each sum takes."""

    problem: Problem
    costs_s: NDArray[np.float64]
    networks: Sequence[Judged]
    splits: Sequence[Split]
    per_cell: bool = False

    def sums_of(self, split: Split) -> Places:
        parts = {part for i in split.judged for part, _ in self.networks[i].parts}
        return np.array(sorted(parts), np.intp)


def evaluate_baselines(
    target: Target,
    names: Sequence[str],
    contests: Mapping[Unit, Contest],
    config: FitConfig,
    on_message: OnMessage,
) -> list[MethodResult]:
    """Every named baseline with a contest of its unit, in every regime of the contest's splits."""
    kinds = [baselines.load(name) for name in names]
    runs = [(kind, contests[unit]) for kind in kinds for unit in kind.units if unit in contests]
    fits = ((kind, contest, split) for kind, contest in runs for split in contest.splits)
    calls = ((kind, t.problem, split, t.sums_of(split), config) for kind, t, split in fits)
    answers = at_once(_fit_and_predict, calls)
    results = []
    for number, (kind, contest) in enumerate(runs, start=1):
        fitted = f"{kind.name}, {len(contest.splits)} fits"
        on_message(f"{target}: baseline {number} of {len(runs)}: {fitted}")
        trials: dict[str, dict[int, list[Prediction]]] = {}
        took_ms: dict[str, list[float]] = {}
        for split in contest.splits:
            values, spent_s = next(answers)
            each_ms = 1e3 * spent_s / (1 if contest.per_cell else max(len(split.judged), 1))
            for regime, measured in split.regimes.items():
                predictions = trials.setdefault(regime, {}).setdefault(split.trial, [])
                took_ms.setdefault(regime, []).append(each_ms)
                for place in split.judged:
                    known = None if measured is None else measured.get(place, ())
                    predictions.append(_prediction(contest, contest.networks[place], values, known))
        for regime, each in trials.items():
            trial, predict_ms = list(each.values()), float(np.mean(took_ms[regime]))
            results.append(MethodResult(regime, kind.name, trial, predict_ms, contest.per_cell))
    next(answers, None)
    return results


def _fit_and_predict(
    kind: type[Baseline], problem: Problem, split: Split, places: Places, config: FitConfig
) -> tuple[NDArray[np.float64], float]:
    """In a worker, perhaps: latencies of the sums at ``places`` (else NaN), and the seconds."""
    values = np.full(len(problem.sums), np.nan)
    if not len(split.train) or not len(places):
        return values, 0.0
    model, sums = kind(config.device, config.precision, split.seed), problem.sums.take(places)
    model.judged_ops = sums.kernels.met_ops()
    if split.own is not None and isinstance(model, ModelOnly):
        model.model = split.own
    else:
        model.fit(problem.take(split.train))
    began = time.perf_counter()
    values[places] = model.predict(sums)
    return values, time.perf_counter() - began


def _prediction(
    contest: Contest, network: Judged, values: NDArray[np.float64], measured: Collection[int] | None
) -> Prediction:
    """The sum over a network's parts; ``measured`` are positions among them, None for all."""
    truth = contest.problem.latencies_us
    uses = [
        count * float(truth[part] if measured and i in measured else values[part])
        for i, (part, count) in enumerate(network.parts)
    ]
    total = math.fsum(uses)
    known = range(len(uses)) if measured is None else measured
    share = math.fsum(uses[i] for i in known) / total if total > 0 else 0.0
    costs_s = math.fsum(contest.costs_s[network.parts[i][0]] for i in known)
    spent = (share, costs_s, network.cells, len(known))
    return Prediction(network.name, network.true_us, total, None, *spent)
