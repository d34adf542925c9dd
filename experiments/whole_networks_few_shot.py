"""How far off a device left out is after a few of its networks were measured.

*few@k*: k latencies. *few@k networks*: k networks, each at all batches and sizes of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from whole_networks_lines import Line, line, mean_line

from experiments.family_choice import choose
from hybridlat.evaluation.families import FamilyRecords
from hybridlat.model.family.learn import adapt
from hybridlat.model.family.served import FamilyModel

Array = NDArray[np.float64]
FEW = (5, 10, 30, 100)
_DRAWS = 5
_LEAST = 4  # latencies left to judge


def few_shot(
    table: FamilyRecords, model: FamilyModel, label: str, rows: Sequence[int]
) -> Iterator[Line]:
    """Lines for every count that leaves enough to judge; ``model`` knows nothing of the device.

    A layout is a law of its own, and so are latencies with copies: of each, so many are measured.
    """
    draw = np.random.default_rng(0)
    by_task = [
        [i for i in rows if table.rows[i].task == task]
        for task in sorted({table.rows[i].task for i in rows})
    ]
    tasks = [(own, _chosen(table, model, own)) for own in by_task if len(own) >= 2 * FEW[0]]
    for count in FEW:
        many = [task for task in tasks if len(task[0]) >= 2 * count]
        pick = partial(_first, count)
        yield from _lines(table, model, label, f"few@{count}", many, pick, draw)
    for count in FEW:
        many = [
            task
            for task in tasks
            if len(task[0]) > len(_architectures(table, task[0])) >= 2 * count
        ]
        pick = partial(_all_batches, table, count)
        yield from _lines(table, model, label, f"few@{count} networks", many, pick, draw)


def _lines(
    table: FamilyRecords,
    model: FamilyModel,
    label: str,
    regime: str,
    tasks: Sequence[tuple[list[int], list[int]]],
    pick: Callable[[Sequence[int]], list[int]],
    draw: np.random.Generator,
) -> Iterator[Line]:
    """``tasks`` are rows as they stand and in the order of measuring, which ``pick`` takes of."""
    orders = {
        "chosen": [[best for _, best in tasks]],
        "random": [
            [[own[i] for i in draw.permutation(len(own))] for own, _ in tasks]
            for _ in range(_DRAWS)
        ],
    }
    for method, draws in orders.items():
        each = []
        for order in draws:
            measured = [pick(one) for one in order]
            predicted, truth = _adapted(table, model, [own for own, _ in tasks], measured)
            if len(truth) >= _LEAST:
                each.append(line(label, regime, method, predicted, truth))
        if each:  # else the measured networks are all there are, at other batches
            yield mean_line(each)


def _architectures(table: FamilyRecords, rows: Sequence[int]) -> list[str]:
    """In the order of their first rows, each once."""
    return list(dict.fromkeys(table.rows[i].architecture for i in rows))


def _chosen(table: FamilyRecords, model: FamilyModel, rows: Sequence[int]) -> list[int]:
    """All rows, those to be measured first at the head: so many or more begin alike."""
    kernels = [table.observations[i].kernels for i in rows]
    return [rows[i] for i in choose(model, table.rows[rows[0]].task, kernels, len(rows))]


def _first(count: int, order: Sequence[int]) -> list[int]:
    return list(order[:count])


def _all_batches(table: FamilyRecords, count: int, order: Sequence[int]) -> list[int]:
    """All rows of the first ``count`` architectures in an order."""
    first = set(_architectures(table, order)[:count])
    return sorted(i for i in order if table.rows[i].architecture in first)


def _adapted(
    table: FamilyRecords,
    model: FamilyModel,
    tasks: Sequence[list[int]],
    picks: Sequence[Sequence[int]],
) -> tuple[Array, Array]:
    """(predicted, true) of the networks that were not measured, nor any of their architectures."""
    predicted, truth = [], []
    for rows, measured in zip(tasks, picks, strict=True):
        known = set(_architectures(table, measured))
        told = [table.observations[i] for i in measured]
        adapted = adapt(model, table.rows[measured[0]].task, told)
        for i in rows:
            if table.rows[i].architecture not in known:
                kernels = table.observations[i].kernels
                predicted.append(adapted.log_latency(kernels, table.points(i))[0])
                truth.append(table.rows[i].latency_us)
    return np.exp(predicted), np.array(truth)
