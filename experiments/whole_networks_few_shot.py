"""How far off a device left out is after a few of its networks were measured.

*known@1*: one latency, each in turn. *few@k*: k latencies, those first that tell most. *few@k
networks*: k networks, each at all batches and sizes of the table. All are judged on networks of
other architectures. Which tell most, a family's model says by what it leaves uncertain.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.whole_networks_lines import Line, line
from hybridlat.evaluation.families import FamilyRecords
from hybridlat.model.conformal import Calibration
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import KernelSet
from hybridlat.model.family.tasks import Task

Array = NDArray[np.float64]
FEW = (5, 10, 30, 100)
_LEAST = 4  # latencies left to judge


def few_shot(
    table: FamilyRecords, model: FamilyModel, label: str, rows: Sequence[int]
) -> Iterator[Line]:
    """Lines for every count that leaves enough to judge; ``model`` knows nothing of the device.

    A layout is a law of its own, and so are latencies with copies: of each, so many are measured.
    """
    tasks = sorted({table.rows[i].task for i in rows})
    orders = [
        _chosen(table, model, own)
        for own in ([i for i in rows if table.rows[i].task == task] for task in tasks)
        if len(own) >= 2 * FEW[0]
    ]
    groups: dict[str, Callable[[int], object]] = {
        "": lambda i: i, " networks": lambda i: table.rows[i].architecture
    }  # fmt: skip
    for what, group in groups.items():
        for count in FEW:
            parts = []
            for order in orders:
                first = list(dict.fromkeys(map(group, order)))
                if len(first) >= 2 * count and (not what or len(order) > len(first)):
                    measured = sorted(i for i in order if group(i) in first[:count])
                    parts.append(_adapted(table, model, sorted(order), measured))
            if sum(len(truth) for _, truth in parts) >= _LEAST:
                predicted, truth = (np.concatenate(each) for each in zip(*parts, strict=True))
                yield line((label, f"few@{count}{what}", "chosen"), predicted, truth)


def choose(
    model: FamilyModel, task: Task, candidates: Sequence[KernelSet], count: int
) -> tuple[int, ...]:
    """Which ``count`` of the candidates to measure first on a task, best first.

    Greedy: each next one takes the most variance from all candidates together, which for a
    Gaussian does not depend on what will be measured (Krause et al. 2008).
    """
    tasks = [task] * len(candidates)
    equations = np.stack([one.equation for one in model.predict_all(candidates, tasks)])
    covariance = model.gp.covariance(equations, tasks)
    noise = model.embedding.hyper.own_variance
    left = np.ones(len(candidates), np.bool_)
    chosen: list[int] = []
    for _ in range(min(count, len(candidates))):
        gain = (covariance**2).sum(axis=0) / (np.diag(covariance) + noise)
        best = int(np.argmax(np.where(left, gain, -1.0)))
        column = covariance[:, best]
        covariance = covariance - np.outer(column, column) / (column[best] + noise)
        left[best] = False
        chosen.append(best)
    return tuple(chosen)


def _chosen(table: FamilyRecords, model: FamilyModel, rows: Sequence[int]) -> list[int]:
    """All rows, those to be measured first at the head: so many or more begin alike."""
    kernels = [table.observations[i].kernels for i in rows]
    return [rows[i] for i in choose(model, table.rows[rows[0]].task, kernels, len(rows))]


def _adapted(
    table: FamilyRecords, model: FamilyModel, rows: Sequence[int], measured: Sequence[int]
) -> tuple[Array, Array]:
    """(predicted, true) of the networks that were not measured, nor any of their architectures."""
    known = {table.rows[i].architecture for i in measured}
    conditioned = model.condition([table.observations[i] for i in measured])
    judged = [i for i in rows if table.rows[i].architecture not in known]
    each = table.predict(conditioned, judged) if judged else []
    medians = np.array([one.median_us for one in each])
    return medians, np.array([table.rows[i].latency_us for i in judged])


def one_known(
    table: FamilyRecords, model: FamilyModel, calibration: Calibration, rows: Sequence[int]
) -> tuple[Array, Array, Array]:
    """(predicted, true, half-width of the logarithm) of every network, by every one as known.

    By known network and network; NaN within an architecture. Every latency conditions all others,
    alone: a Gaussian given one value, linear at the mode that the family has without it. The
    product makes steps to the mode with it.
    """
    observed, each = [table.observations[i] for i in rows], table.predict(model, rows)
    mode = np.log([one.median_us for one in each])
    equations = np.stack([one.equation for one in each])
    covariance = model.gp.covariance(equations, [one.task for one in observed])
    variance, truth = np.diag(covariance), np.array([one.latency_us for one in observed])
    gain = covariance / (variance + model.embedding.hyper.own_variance)[:, None]  # of the known
    predicted = np.exp(mode + gain * (np.log(truth) - mode)[:, None])
    spread = np.sqrt(np.maximum(variance - gain * covariance, 1e-6))
    # The served rule is a multiple of a hypotenuse, up to what is said without a known latency.
    learned = calibration.half_width(0.0, "", prior_spread=np.inf) / calibration.floor
    widest = [calibration.half_width(float(one), "") for one in np.sqrt(variance)]
    half = np.minimum(learned * np.hypot(spread, calibration.floor), widest)
    names = np.array([one.architecture for one in observed])
    predicted[names[:, None] == names] = np.nan
    return predicted, np.broadcast_to(truth, half.shape), half
