"""Fits a family's model to the latencies of whole networks.

Damped Gauss-Newton steps renew the linearisation (4) of every network, and weights of Student's
distribution (6) reduce the influence of outliers (Lange et al. 1989). Tasks with twenty rows or
more also move towards what their own rows give (11) and, where the family has them, get boosted
trees (12). Equation numbers are those of ``docs/background/family.md``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hybridlat.model.family import task_laws
from hybridlat.model.family.embedding import Embedding
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import Observation, TaskNetwork, family_of, shared_noise
from hybridlat.model.family.task_laws import TaskGP
from hybridlat.model.family.tasks import Task
from hybridlat.model.geometry import Array, Float32, Positions

_STEPS = 7
_DAMPING = 0.5
_LEAST_NOISE = 0.03  # that errors are standardised by
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
    observations = [one for one in observations if one.weight > 0]
    for one in observations:
        if not one.latency_us > 0:
            raise ValueError(f"{one.architecture} on {one.task}: a latency of {one.latency_us} us")
    points_of = embedded(observations, embedding) if points_of is None else points_of
    tasks = tuple(sorted({one.task for one in observations}))
    task_of = np.array([tasks.index(one.task) for one in observations], np.intp)
    gp, residuals, noise, weights = _mode(observations, embedding, points_of, tasks)
    anchored = _spread_out(observations, task_of)
    model = FamilyModel(
        embedding,
        tasks,
        sums=np.stack([gp.sums[task] for task in tasks]),
        own_shifts=np.zeros((len(tasks), embedding.columns), np.float32),
        anchors=_anchors(gp, weights, anchored),
        seen=np.bincount(task_of, minlength=len(tasks)),
    )
    names = np.array([one.architecture for one in observations])
    families = np.array([family_of(name) for name in names])
    groupings = (names, families) if embedding.hyper.boosted and with_trees else ()
    shared_errors = [gp.left_out(groups) for groups in groupings]
    share = embedding.hyper.alone
    owners = np.array([tasks.index(model.own_task(task)) for task in tasks], np.intp)
    for place in np.unique(owners).tolist():
        task, rows = tasks[place].shared, np.flatnonzero(owners[task_of] == place)
        if len(rows) < task_laws.LEAST:
            continue
        own_tasks, own_noise = [gp.tasks[i] for i in rows], noise[np.ix_(rows, rows)]
        own = TaskGP.of(embedding, gp.equations[rows], own_tasks, own_noise, residuals[rows])
        before = model.coefficients([task])[task]
        model.own_shifts[place] = share * (own.coefficients([task])[task] - before)
        held_out = []
        for groups, errors in zip(groupings, shared_errors, strict=True):
            mixed = errors[rows] + share * (own.left_out(groups[rows]) - errors[rows])
            held_out.append((groups[rows], mixed))
        law = task_laws.weighed([observations[i] for i in rows.tolist()], held_out)
        if law is not None:
            spreads = []
            for name in np.unique(families[rows]):
                others = model.of_task(task, families[anchored] != name)
                equations = gp.equations[rows[families[rows] == name]]
                spreads.append(others.spreads(equations, [task] * len(equations)))
            reach = float(np.quantile(np.concatenate(spreads), _REACH))
            model.trees[tasks[place]] = replace(law, reach=reach)
    return model


def _mode(
    observations: Sequence[Observation],
    embedding: Embedding,
    points_of: Mapping[int, Float32],
    tasks: Sequence[Task],
) -> tuple[TaskGP, Array, Array, Array]:
    """The process at the mode: with residuals (4), noise (6) and Student-t weights of its rows."""
    hyper, count = embedding.hyper, len(observations)
    log_us = np.log([one.latency_us for one in observations])
    rows = [
        TaskNetwork.of(one.kernels, one.task, embedding, points_of[id(one.kernels)])
        for one in observations
    ]
    ratios = [np.zeros(len(row.base_us)) for row in rows]
    stated = np.array([one.weight for one in observations])
    equations = np.empty((count, embedding.columns), np.float32)
    residuals, weights = np.zeros(count), np.ones(count)
    means = dict.fromkeys(tasks, np.zeros(embedding.columns, np.float32))
    for step in range(_STEPS):
        damping = 1.0 if step == _STEPS - 1 else _DAMPING
        for i, row in enumerate(rows):
            ratios[i] += damping * (row.points @ means[row.task] - ratios[i])
            linear = row.linearise(ratios[i], hyper)
            equations[i], residuals[i] = linear.equation, linear.residual(log_us[i], ratios[i])
        shared = shared_noise(observations, hyper, embedding.host_sds(equations))
        noise = shared + np.diag(hyper.noise**2 / (weights * stated))
        gp = TaskGP.of(embedding, equations, [row.task for row in rows], noise, residuals)
        errors = (noise @ gp.dual) / max(hyper.noise, _LEAST_NOISE)
        weights = (hyper.freedom + 1) / (hyper.freedom + errors**2)
        means = gp.coefficients(tasks)
    return gp, residuals, noise, weights


def _anchors(gp: TaskGP, weights: Array, rows: Positions) -> TaskGP:
    """The process given some rows, as they are saved: for spreads, not for the mean."""
    embedding, tasks = gp.embedding, [gp.tasks[i] for i in rows]
    hosts = embedding.host_sds(gp.equations[rows])
    noise = np.diag(embedding.hyper.own_variance / weights[rows] + hosts**2 + 1e-6)
    equations = gp.equations[rows].astype(np.float16).astype(np.float32)
    anchors = TaskGP.of(embedding, equations, tasks, noise)
    return replace(anchors, factor=anchors.factor.astype(np.float32))


def _spread_out(observations: Sequence[Observation], task_of: Positions) -> Positions:
    """Every so-many-th observation, tasks by turns, in a fixed order."""
    numbers = range(len(observations))
    order = sorted(numbers, key=lambda i: (observations[i].architecture, int(task_of[i]), i))
    taken = np.linspace(0, len(order) - 1, min(len(order), _MOST_ANCHORS))
    return np.array(order, np.intp)[taken.astype(np.intp)]
