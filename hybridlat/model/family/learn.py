"""What whole networks' latencies teach of kernels: the mode of the law given all sums.

Linearised, a change of the logarithm of a network's latency is the sum of its kernels' changes
weighted by their shares of the time, so a network is one linear equation, and Gauss-Newton steps
that renew the shares find the mode. Student-t weights take observations that no law explains out
of the fit (Lange et al. 1989). Where a task has rows enough, its coefficients are a weighted mean
of this law and of one that its own rows teach alone, and boosted trees have a say.

A new device learns from a few of its networks: what the family leaves uncertain about a task is a
Gaussian over networks' log-latencies. Measured networks condition it, which moves the coefficients
of all kernels of that task alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family import boosted
from hybridlat.model.family.dataset import KernelSet, Observation, Task, family_of, task_base
from hybridlat.model.family.law import Array, Embedding, Float32, log_sum
from hybridlat.model.family.served import FamilyModel

_STEPS = 7
_DAMPING = 0.7
_FREEDOM = 4.0
_LEAST_WEIGHT = 0.02
_LEFT_OUT = 1e-9
_MOST_ANCHORS = 900
_REACH = 0.9
_ADAPTING_STEPS = 5
_OUT_OF_LINE = 2.5


def embedded(observations: Sequence[Observation], embedding: Embedding) -> dict[int, Float32]:
    """Points of every set of kernels, by its identity: equal sets are best held once."""
    sets = {id(one.kernels): one.kernels for one in observations}
    return {key: embedding(one.descriptors, one.classes) for key, one in sets.items()}


def fit(
    observations: Sequence[Observation],
    embedding: Embedding,
    clouds: Mapping[int, Float32] | None = None,
    *,
    with_trees: bool = True,
) -> FamilyModel:
    """The model of a family from its networks.

    ``clouds`` are what ``embedded`` gives, where that is at hand. Trees tell of the tasks learned
    from alone, and take most of the time. Observations of weight 0 teach nothing. Deterministic.
    Cost grows with the cube of the observations. Raises ValueError for a latency not above zero.
    """
    for one in observations:
        if not one.latency_us > 0:
            raise ValueError(f"{one.network} on {one.task}: a latency of {one.latency_us} us")
    hyper, count = embedding.hyper, len(observations)
    points_of = embedded(observations, embedding) if clouds is None else clouds
    tasks = tuple(sorted({one.task for one in observations}))
    task_of = np.array([tasks.index(one.task) for one in observations], np.intp)
    log_us = np.log([one.latency_us for one in observations])
    bases = [task_base(one.kernels, one.task) for one in observations]
    task_each = [one.task for one in observations]
    _, network = np.unique([one.network for one in observations], return_inverse=True)
    same = network[:, None] == network[None, :]
    alike = same & (task_of[:, None] == task_of[None, :])
    always = hyper.network**2 * alike + hyper.architecture**2 * same
    robust = np.ones(count)
    levels = np.zeros((len(tasks), embedding.columns), np.float32)
    ratios = [np.zeros(len(base)) for base in bases]
    points = np.empty((count, embedding.columns), np.float32)
    residual = np.zeros(count)
    dual: Array = np.zeros(count)
    trust = np.maximum([one.weight for one in observations], _LEFT_OUT)
    for step in range(_STEPS):
        for i, one in enumerate(observations):
            cloud = points_of[id(one.kernels)]
            if step:
                target = cloud @ levels[task_of[i]]
                damping = 1.0 if step == _STEPS - 1 else _DAMPING
                ratios[i] = ratios[i] + damping * (target - ratios[i])
            logarithm, share = log_sum(one.kernels, bases[i], ratios[i], hyper)
            points[i] = share.astype(np.float32) @ cloud
            residual[i] = log_us[i] - logarithm + share @ ratios[i]
        noise = hyper.noise**2 / (robust * trust)
        hosts = embedding.hosts(points)
        own = always + np.outer(hosts, hosts) * alike
        covariance = embedding.covariance(points, task_each, points, task_each) + own
        covariance[np.diag_indices(count)] += noise
        dual = np.asarray(np.linalg.solve(covariance, residual), np.float64)
        weighted = dual.astype(np.float32)[:, None] * points
        levels = embedding.mixed(tasks, task_each, weighted)
        unexplained = (noise * dual + own @ dual) / max(hyper.noise, 0.03)
        robust = np.maximum((_FREEDOM + 1) / (_FREEDOM + unexplained**2), _LEAST_WEIGHT)
    sums = np.zeros_like(levels)
    for task in range(len(tasks)):
        mine = task_of == task
        sums[task] = dual[mine].astype(np.float32) @ points[mine]
    beside = np.zeros_like(levels)
    trees = {}
    names = np.array([one.network for one in observations])
    families = np.array([family_of(name) for name in names])
    groups = (names, families) if hyper.boosted and with_trees else ()
    shared = [_left_out(covariance, residual, names) for names in groups]
    for task, count_here in enumerate(np.bincount(task_of, trust > _LEFT_OUT, len(tasks))):
        if count_here < boosted.LEAST:
            continue
        mine = np.flatnonzero((task_of == task) & (trust > _LEFT_OUT))
        there = [tasks[task]] * len(mine)
        alone = embedding.covariance(points[mine], there, points[mine], there)
        alone += own[np.ix_(mine, mine)] + np.diag(noise[mine])
        weight = np.linalg.solve(alone, residual[mine]).astype(np.float32)[:, None]
        said = embedding.mixed([tasks[task]], there, weight * points[mine])[0]
        beside[task] = hyper.alone * (said - levels[task])
        held_out = []
        for each, errors in zip(groups, shared, strict=True):
            itself = _left_out(alone, residual[mine], each[mine])
            held_out.append((each[mine], errors[mine] + hyper.alone * (itself - errors[mine])))
        own_rows = [observations[int(i)] for i in mine]
        found = boosted.weighed(own_rows, held_out) if held_out else None
        trees.update({tasks[task]: found} if found else {})
    chosen = _spread_out(observations, task_of)
    anchors = points[chosen].astype(np.float16).astype(np.float32)
    theirs = [task_each[i] for i in chosen]
    left = embedding.covariance(anchors, theirs, anchors, theirs)
    diagonal = hyper.own_variance / robust[chosen] + hosts[chosen] ** 2
    left[np.diag_indices(len(chosen))] += diagonal + 1e-6
    factor = np.tril(np.linalg.inv(np.linalg.cholesky(left))).astype(np.float32)
    seen = np.bincount(task_of, minlength=len(tasks))
    model = FamilyModel(embedding, tasks, sums, beside, anchors, task_of[chosen], factor, seen)
    for taught, own_trees in trees.items():
        mine = np.flatnonzero(task_of == tasks.index(taught))
        spreads = [
            model.spreads_by(points[mine[families[mine] == name]], taught, np.flatnonzero(
                (model.anchor_task == tasks.index(taught)) & (families[chosen] != name)
            ))
            for name in np.unique(families[mine])
        ]  # fmt: skip
        reach = float(np.quantile(np.concatenate(spreads), _REACH))
        model.trees[taught] = replace(own_trees, reach=reach)
    return model


def _left_out(covariance: Array, values: Array, groups: NDArray[np.str_]) -> Array:
    """What each row is off from what the rows of all other groups say of it, in closed form."""
    inverse = np.linalg.inv(covariance)
    dual, errors = inverse @ values, np.zeros(len(values))
    for name in np.unique(groups):
        own = np.flatnonzero(groups == name)
        errors[own] = np.linalg.solve(inverse[np.ix_(own, own)], dual[own])
    return errors


def _spread_out(observations: Sequence[Observation], task_of: NDArray[np.intp]) -> NDArray[np.intp]:
    """Every so-many-th observation that was believed, tasks by turns, in a fixed order."""
    believed = [i for i, one in enumerate(observations) if one.weight > 0]
    order = sorted(believed, key=lambda i: (observations[i].network, int(task_of[i]), i))
    if len(order) > _MOST_ANCHORS:
        order = [order[int(i)] for i in np.linspace(0, len(order) - 1, _MOST_ANCHORS)]
    return np.array(order, np.intp)


@dataclass(frozen=True)
class AdaptedTask:
    """A task after a few of its networks were measured.

    ``coefficients`` replace the family's for this task; ``tasks``, ``equations`` and ``factor`` say
    what the measured networks have taken from the uncertainty.
    """

    model: FamilyModel
    task: Task
    coefficients: Float32
    tasks: tuple[Task, ...]
    equations: Float32
    factor: Array

    def log_latency(self, kernels: KernelSet, points: Float32 | None = None) -> tuple[float, float]:
        """(logarithm of the latency in us, its standard deviation) of a network."""
        logarithm, equation = self.model.equation(kernels, self.task, points, self.coefficients)
        both = np.vstack([equation[None], self.equations])
        covariance = self.model.covariance(both, (self.task, *self.tasks))
        half = self.factor @ covariance[0, 1:]
        return logarithm, float(np.sqrt(max(covariance[0, 0] - half @ half, 1e-6)))


def adapt(model: FamilyModel, task: Task, measured: Sequence[Observation]) -> AdaptedTask:
    """Condition a task on measured networks, of the task itself or of others.

    Another version of the engine tells of this one as far as tasks share. With none measured the
    task is as the family has it. A row that the others and the family contradict by more than 2.5
    standard deviations is believed only as far as it is off. Raises ValueError for a latency that
    is not above zero.
    """
    if any(not one.latency_us > 0 for one in measured):
        raise ValueError(f"a measured latency on {task} is not above zero")
    hyper = model.embedding.hyper
    tasks = tuple(one.task for one in measured)
    start = {one: model.coefficients(one) for one in (task, *tasks)}
    coefficients = dict(start)
    clouds = [model.embedding(one.kernels.descriptors, one.kernels.classes) for one in measured]
    bases = [task_base(one.kernels, one.task) for one in measured]
    corrections = [
        model.correction(one.kernels, one.task, cloud)
        for one, cloud in zip(measured, clouds, strict=True)
    ]
    target = np.log([one.latency_us for one in measured]) - corrections
    count = len(measured)
    noise = hyper.own_variance
    weights = np.ones(count)
    equations = np.zeros((count, model.embedding.columns), np.float32)
    factor = np.zeros((count, count))
    for _ in range(_ADAPTING_STEPS if count else 0):
        residual = np.zeros(count)
        for i, one in enumerate(measured):
            ratios = (clouds[i] @ coefficients[one.task]).astype(np.float64)
            logarithm, share = log_sum(one.kernels, bases[i], ratios, hyper)
            equations[i] = share.astype(np.float32) @ clouds[i]
            moved = share @ (ratios - (clouds[i] @ start[one.task]).astype(np.float64))
            residual[i] = target[i] - logarithm + moved
        covariance = model.covariance(equations, tasks)
        noisy = covariance + np.diag(noise / weights)
        precision = np.linalg.inv(noisy)
        dual = precision @ residual
        for other, before in start.items():
            coefficients[other] = before + _moved(model, other, tasks, equations, dual)
        weights = _believed(weights, dual, precision, noise)
        factor = np.linalg.inv(np.linalg.cholesky(noisy))
    return AdaptedTask(model, task, coefficients[task], tasks, equations, factor)


def _believed(weights: Array, dual: Array, precision: NDArray[Any], noise: float) -> Array:
    """Weights after one more look: the row most out of line with all others gets less."""
    off = dual / np.diag(precision)  # what each says against what the others predict for it
    lines = np.abs(off) * np.sqrt(np.diag(precision))
    worst = int(np.argmax(lines))
    result = weights.copy()
    if len(weights) > 2 and lines[worst] > _OUT_OF_LINE:
        result[worst] = min(result[worst], noise / off[worst] ** 2)
    return result


def _moved(
    model: FamilyModel, task: Task, tasks: Sequence[Task], equations: Float32, dual: Array
) -> Float32:
    """How a task's coefficients change when equations of these tasks are given dual weights."""
    embedding = model.embedding
    direct = embedding.mixed([task], tasks, dual.astype(np.float32)[:, None] * equations)[0]
    cross = embedding.covariance(equations, tasks, model.anchors, model.anchor_tasks)
    known = model.anchor_factor.T @ (model.anchor_factor @ (dual @ cross).astype(np.float32))
    taken = embedding.mixed([task], model.anchor_tasks, known[:, None] * model.anchors)[0]
    return np.asarray(direct - taken)
