"""How far off a device left out is after a few of its networks were measured.

*few@k*: k latencies. *few@k networks*: k networks, each at all batches and sizes of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from whole_networks_data import Row
from whole_networks_lines import Line, line, mean_line

from hybridlat.model.family.adapt import adapt, choose
from hybridlat.model.family.dataset import KernelSet, SumData
from hybridlat.model.family.served import FamilyModel
from hybridlat.model.family.tasks import Task

Array = NDArray[np.float64]
FEW = (5, 10, 30, 100)
_DRAWS = 5
_LEAST = 4  # latencies left to judge
_Pick = Callable[[Sequence[int]], list[int]]  # the rows of a task in the order of measuring


class Table(Protocol):
    """Rows as the law sees them; ``clouds`` are the embedded kernels of ``data.sets``."""

    rows: list[Row]
    data: SumData
    truth: Array
    clouds: list[NDArray[np.float32]]


def few_shot(table: Table, model: FamilyModel, label: str, rows: Sequence[int]) -> Iterator[Line]:
    """Lines for every count that leaves enough to judge; ``model`` knows nothing of the device.

    A layout is a law of its own, and so are latencies with copies: of each, so many are measured.
    """
    draw = np.random.default_rng(0)
    tasks = _by_task(table, rows)
    for count in FEW:
        many = [own for own in tasks if len(own) >= 2 * count]
        yield from _lines(table, model, label, f"few@{count}", many, count, draw)
    for count in FEW:
        many = [own for own in tasks if len(own) > len(_architectures(table, own)) >= 2 * count]
        regime = f"few@{count} networks"
        yield from _lines(table, model, label, regime, many, count, draw, whole=True)


def _lines(
    table: Table,
    model: FamilyModel,
    label: str,
    regime: str,
    tasks: Sequence[list[int]],
    count: int,
    draw: np.random.Generator,
    whole: bool = False,
) -> Iterator[Line]:
    orders: dict[str, list[_Pick]] = {
        "chosen": [lambda own: _chosen(table, model, own, len(own) if whole else count)],
        "random": [lambda own: [own[i] for i in draw.permutation(len(own))]] * _DRAWS,
    }
    for method, draws in orders.items():
        each = []
        for order in draws:
            picks = [
                _all_batches(table, own, order(own), count) if whole else order(own)[:count]
                for own in tasks
            ]
            predicted, truth = _adapted(table, model, tasks, picks)
            if len(truth) >= _LEAST:
                each.append(line(label, regime, method, predicted, truth))
        if each:  # else the measured networks are all there are, at other batches
            yield mean_line(each)


def _by_task(table: Table, rows: Sequence[int]) -> list[list[int]]:
    by_task: dict[Task, list[int]] = {}
    for row in rows:
        by_task.setdefault(table.rows[row].task, []).append(row)
    return [by_task[task] for task in sorted(by_task)]


def _architectures(table: Table, rows: Sequence[int]) -> list[str]:
    """In the order of their first rows, each once."""
    return list(dict.fromkeys(table.rows[i].architecture for i in rows))


def _kernels(table: Table, row: int) -> KernelSet:
    return table.data.sets[table.data.of_set[row]]


def _chosen(table: Table, model: FamilyModel, rows: Sequence[int], count: int) -> list[int]:
    kernels = [_kernels(table, i) for i in rows]
    return [rows[i] for i in choose(model, table.rows[rows[0]].task, kernels, count)]


def _all_batches(table: Table, rows: Sequence[int], order: Sequence[int], count: int) -> list[int]:
    """All rows of the first ``count`` architectures in an order."""
    first = set(islice(_architectures(table, order), count))
    return [i for i in rows if table.rows[i].architecture in first]


def _adapted(
    table: Table, model: FamilyModel, tasks: Sequence[list[int]], picks: Sequence[Sequence[int]]
) -> tuple[Array, Array]:
    """(predicted, true) of the networks that were not measured, nor any of their architectures."""
    predicted, rest = [], []
    for rows, measured in zip(tasks, picks, strict=True):
        known = set(_architectures(table, measured))
        told = [(_kernels(table, i), float(table.truth[i])) for i in measured]
        adapted = adapt(model, table.rows[measured[0]].task, told)
        for i in rows:
            if table.rows[i].architecture not in known:
                cloud = table.clouds[table.data.of_set[i]]
                predicted.append(adapted.equation(_kernels(table, i), cloud)[0])
                rest.append(i)
    return np.exp(predicted), table.truth[rest]
