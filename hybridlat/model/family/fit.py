"""Fits a family's model to the latencies of whole networks.

Gauss-Newton steps renew the linearisation (4) of every network, and Student-t weights (6) reduce
the influence of outliers (Lange et al. 1989). Tasks with twenty rows or more also get a law of
their own rows (11) and, where the family has them, boosted trees (12). Equation numbers are those
of ``docs/background/family.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family import trees
from hybridlat.model.family.embedding import Embedding
from hybridlat.model.family.linearise import log_sum
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import Observation, family_of, own_covariance, task_base
from hybridlat.model.family.task_gp import TaskGP
from hybridlat.model.family.tasks import Array, Float32, Task

_STEPS = 7
_DAMPING = 0.7
_FREEDOM = 4.0
_LEAST_WEIGHT = 0.02
_LEFT_OUT = 1e-9
_MOST_ANCHORS = 900
_REACH = 0.9


def embedded(observations: Sequence[Observation], embedding: Embedding) -> dict[int, Float32]:
    """Points of every set of kernels, by its identity: equal sets are best held once."""
    sets = {id(one.kernels): one.kernels for one in observations}
    return {key: embedding(one.descriptors, one.classes) for key, one in sets.items()}


def fit(
    observations: Sequence[Observation],
    embedding: Embedding,
    points_of: Mapping[int, Float32] | None = None,
    *,
    with_trees: bool = True,
) -> FamilyModel:
    """The model of a family from its networks.

    ``points_of`` is what ``embedded`` gives, where that is at hand. Trees matter to tasks that the
    observations are of, and take most of the time. Observations of weight 0 teach nothing.
    Deterministic. Cost grows with the cube of the observations. Raises ValueError for a latency
    not above zero.
    """
    for one in observations:
        if not one.latency_us > 0:
            raise ValueError(f"{one.network} on {one.task}: a latency of {one.latency_us} us")
    points_of = embedded(observations, embedding) if points_of is None else points_of
    tasks = tuple(sorted({one.task for one in observations}))
    task_of = np.array([tasks.index(one.task) for one in observations], np.intp)
    mode = _mode(observations, embedding, points_of, tasks)
    chosen = _spread_out(observations, task_of)
    model = FamilyModel(
        embedding,
        tasks,
        sums=_summed(mode.gp, task_of, len(tasks)),
        beside=np.zeros((len(tasks), embedding.columns), np.float32),
        anchors=_anchors(mode, chosen),
        seen=np.bincount(task_of, minlength=len(tasks)),
    )
    means = [model.coefficients(task) for task in tasks]
    names = np.array([one.network for one in observations])
    families = np.array([family_of(name) for name in names])
    groups = (names, families) if embedding.hyper.boosted and with_trees else ()
    errors = [mode.gp.left_out(each) for each in groups]
    believed = np.array([one.weight > _LEFT_OUT for one in observations])
    for place, task in enumerate(tasks):
        mine = np.flatnonzero((task_of == place) & believed)
        if len(mine) < trees.LEAST:
            continue
        own = mode.of_rows(mine)
        model.beside[place] = embedding.hyper.alone * (own.coefficients([task])[0] - means[place])
        held_out = []
        for each, shared in zip(groups, errors, strict=True):
            apart = own.left_out(each[mine]) - shared[mine]
            held_out.append((each[mine], shared[mine] + embedding.hyper.alone * apart))
        made = trees.weighed([observations[int(i)] for i in mine], held_out) if held_out else None
        if made is not None:
            theirs = mode.gp.equations[mine]
            spreads = [
                model.of_task(task, families[chosen] != name).spreads(
                    theirs[families[mine] == name], [task] * int((families[mine] == name).sum())
                )
                for name in np.unique(families[mine])
            ]
            reach = float(np.quantile(np.concatenate(spreads), _REACH))
            model.trees[task] = replace(made, reach=reach)
    return model


@dataclass(frozen=True)
class _Mode:
    """The process at the mode: rows, their residuals (4), noise (6) and Student-t weights."""

    gp: TaskGP
    residuals: Array
    noise: Array
    robust: Array

    def of_rows(self, rows: NDArray[np.intp]) -> TaskGP:
        """The process given these rows alone."""
        gp, tasks = self.gp, [self.gp.tasks[i] for i in rows]
        noise = self.noise[np.ix_(rows, rows)]
        return TaskGP.of(gp.embedding, gp.equations[rows], tasks, noise, self.residuals[rows])


def _mode(
    observations: Sequence[Observation],
    embedding: Embedding,
    points_of: Mapping[int, Float32],
    tasks: Sequence[Task],
) -> _Mode:
    hyper, count = embedding.hyper, len(observations)
    log_us = np.log([one.latency_us for one in observations])
    bases_us = [task_base(one.kernels, one.task) for one in observations]
    ratios = [np.zeros(len(base)) for base in bases_us]
    trust = np.maximum([one.weight for one in observations], _LEFT_OUT)
    equations = np.empty((count, embedding.columns), np.float32)
    residuals, robust, noise = np.zeros(count), np.ones(count), np.zeros((count, count))
    gp: TaskGP | None = None
    for step in range(_STEPS):
        means = dict(zip(tasks, gp.coefficients(tasks), strict=True)) if gp is not None else {}
        damping = 1.0 if step == _STEPS - 1 else _DAMPING
        for i, one in enumerate(observations):
            points = points_of[id(one.kernels)]
            if means:
                ratios[i] = ratios[i] + damping * (points @ means[one.task] - ratios[i])
            logarithm, share = log_sum(one.kernels, bases_us[i], ratios[i], hyper)
            equations[i] = share.astype(np.float32) @ points
            residuals[i] = log_us[i] - logarithm + share @ ratios[i]
        own = own_covariance(observations, hyper, embedding.hosts(equations))
        each = hyper.noise**2 / (robust * trust)
        noise = own + np.diag(each)
        gp = TaskGP.of(embedding, equations, [one.task for one in observations], noise, residuals)
        unexplained = (each * gp.dual + own @ gp.dual) / max(hyper.noise, 0.03)
        robust = np.maximum((_FREEDOM + 1) / (_FREEDOM + unexplained**2), _LEAST_WEIGHT)
    assert gp is not None
    return _Mode(gp, residuals, noise, robust)


def _summed(gp: TaskGP, task_of: NDArray[np.intp], count: int) -> Float32:
    """The dual-weighted sum of the equations of each task (7)."""
    sums = np.zeros((count, gp.embedding.columns), np.float32)
    for task in range(count):
        mine = task_of == task
        sums[task] = gp.dual[mine].astype(np.float32) @ gp.equations[mine]
    return sums


def _anchors(mode: _Mode, chosen: NDArray[np.intp]) -> TaskGP:
    """The process given some rows, as they are saved: for spreads, not for the mean."""
    embedding = mode.gp.embedding
    equations = mode.gp.equations[chosen].astype(np.float16).astype(np.float32)
    hosts = embedding.hosts(mode.gp.equations[chosen])
    noise = np.diag(embedding.hyper.own_variance / mode.robust[chosen] + hosts**2 + 1e-6)
    gp = TaskGP.of(embedding, equations, [mode.gp.tasks[i] for i in chosen], noise)
    return replace(gp, factor=gp.factor.astype(np.float32))


def _spread_out(observations: Sequence[Observation], task_of: NDArray[np.intp]) -> NDArray[np.intp]:
    """Every so-many-th observation that was believed, tasks by turns, in a fixed order."""
    believed = [i for i, one in enumerate(observations) if one.weight > 0]
    order = sorted(believed, key=lambda i: (observations[i].network, int(task_of[i]), i))
    if len(order) > _MOST_ANCHORS:
        order = [order[int(i)] for i in np.linspace(0, len(order) - 1, _MOST_ANCHORS)]
    return np.array(order, np.intp)
