"""A new device from a few measured networks.

What the family leaves uncertain about a task is a Gaussian over networks' log-latencies. Measured
networks condition it, which moves the coefficients of all kernels of that task alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.dataset import KernelSet, Observation, Task, task_base
from hybridlat.model.family.law import log_sum
from hybridlat.model.family.served import FamilyModel

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
_STEPS = 5
_OUT_OF_LINE = 2.5


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
    target = np.log([one.latency_us for one in measured])
    count = len(measured)
    noise = hyper.own_variance
    weights = np.ones(count)
    equations = np.zeros((count, model.embedding.columns), np.float32)
    factor = np.zeros((count, count))
    for _ in range(_STEPS if count else 0):
        residual = np.zeros(count)
        for i, one in enumerate(measured):
            ratios = (clouds[i] @ coefficients[one.task]).astype(np.float64)
            logarithm, share = log_sum(one.kernels, bases[i], ratios, hyper.highest)
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
    sharing = model.embedding.hyper.sharing
    own = sharing.between([task], tasks)[0]
    between = sharing.between([task], model.tasks)[0, model.anchor_task]
    theirs = sharing.between(tasks, model.tasks)[:, model.anchor_task]
    direct = (own * dual) @ equations
    cross = (equations @ model.anchors.T) * theirs
    known = model.anchor_factor.T @ (model.anchor_factor @ (dual @ cross))
    return np.asarray(direct - (known * between) @ model.anchors, np.float32)
