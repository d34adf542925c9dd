"""A family's model: one law for all targets of an engine family, as it is fitted, saved and served.

Equation numbers are those of ``docs/background/family.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.calibration import Calibration
from hybridlat.model.family.embedding import Embedding
from hybridlat.model.family.linearise import each_us, log_sum
from hybridlat.model.family.observations import KernelSet, Observation, own_covariance, task_base
from hybridlat.model.family.physics import within_reach
from hybridlat.model.family.task_gp import TaskGP
from hybridlat.model.family.tasks import Array, Float32, Task, label_of
from hybridlat.model.family.trees import TaskTrees

_CONDITIONING_STEPS = 5
_OUT_OF_LINE = 2.5
_FIRST_GUESS_SD = 0.5  # of ln(latency) where no held-out error has calibrated a family


@dataclass(frozen=True)
class NetworkPrediction:
    """The latency of a network on a task: its median, and the standard deviation of its logarithm.

    ``kernel_us`` is one use of every row of its kernels, host and copy last; ``equation`` its
    linear equation (4). ``prior_log_sd`` is the standard deviation before networks of the task were
    measured, None where none were; ``least_us`` what the device cannot beat.
    """

    median_us: float
    log_sd: float
    kernel_us: Array
    equation: Float32
    prior_log_sd: float | None = None
    least_us: float = 0.0


@dataclass(frozen=True)
class FamilyModel:
    """One law for all targets of an engine family.

    ``sums[t]`` is the dual-weighted sum of the equations of task ``t`` (7); a task's coefficients
    mix them by what tasks share, and ``beside[t]`` is what its own rows add (11). ``anchors`` are
    the rows that tell how far the knowledge reaches (8). ``seen`` counts the observations of each
    task, ``trees`` are of some of them, ``batches`` the least and the largest by target.
    ``measured`` is the process given networks that were measured since (10).
    """

    embedding: Embedding
    tasks: tuple[Task, ...]
    sums: Float32
    beside: Float32
    anchors: TaskGP
    seen: NDArray[np.intp]
    trees: dict[Task, TaskTrees] = field(default_factory=dict)
    calibration: Calibration | None = None
    batches: dict[str, tuple[int, int]] = field(default_factory=dict)
    measured: TaskGP | None = None

    def seen_of(self, task: Task) -> int:
        """How many observations of a task were learned from."""
        return int(self.seen[self.tasks.index(task)]) if task in self.tasks else 0

    @property
    def gp(self) -> TaskGP:
        """The process given all that is known."""
        return self.anchors if self.measured is None else self.measured

    def coefficients(self, task: Task) -> Float32:
        """The mean of a task's coefficients as the family was fitted, of a new task too."""
        shared = self.embedding.mixed([task], self.tasks, self.sums)[0]
        if task in self.tasks:
            shared += self.beside[self.tasks.index(task)]
        return np.asarray(shared)

    def predict(
        self, kernels: KernelSet, task: Task, points: Float32 | None = None
    ) -> NetworkPrediction:
        """One network; ``points`` are its kernels in the embedding, where they are at hand."""
        return self.predict_all([kernels], [task], None if points is None else [points])[0]

    def predict_all(
        self,
        networks: Sequence[KernelSet],
        tasks: Sequence[Task],
        points: Sequence[Float32] | None = None,
    ) -> list[NetworkPrediction]:
        """The networks, each on its task: what estimates serve and evaluation judges."""
        if points is None:
            points = [self.embedding(one.descriptors, one.classes) for one in networks]
        means = {task: self.coefficients(task) for task in dict.fromkeys(tasks)}
        corrections = [
            self._correction(kernels, task, cloud, means[task])
            for kernels, task, cloud in zip(networks, tasks, points, strict=True)
        ]
        if self.measured is not None:
            moved = self.measured.coefficients(list(means))
            means = {
                task: mean + more for (task, mean), more in zip(means.items(), moved, strict=True)
            }
        rows = [
            self._linear(kernels, task, cloud, means[task])
            for kernels, task, cloud in zip(networks, tasks, points, strict=True)
        ]
        equations = np.stack([equation for _, equation in rows])
        spreads = self.gp.spreads(equations, tasks)
        before = None if self.measured is None else self.anchors.spreads(equations, tasks)
        result = []
        for i, (kernels, (uses_us, equation)) in enumerate(zip(networks, rows, strict=True)):
            kernel_us = uses_us / kernels.counts * math.exp(corrections[i])
            kernel_us = within_reach(kernel_us, kernels.counts, kernels.least_us)
            result.append(
                NetworkPrediction(
                    median_us=float(kernels.counts @ kernel_us),
                    log_sd=float(spreads[i]),
                    kernel_us=kernel_us,
                    equation=equation,
                    prior_log_sd=None if before is None else float(before[i]),
                    least_us=float(kernels.counts @ kernels.least_us),
                )
            )
        return result

    def condition(self, observations: Sequence[Observation]) -> FamilyModel:
        """The model given measured networks, of a task or of others that share with it (10).

        Another version of the engine tells of this one as far as tasks share. A row that the others
        and the family contradict by more than 2.5 standard deviations is believed only as far as it
        is off. Raises ValueError for a latency that is not above zero.
        """
        if any(not one.latency_us > 0 for one in observations):
            raise ValueError("a measured latency is not above zero")
        if not observations:
            return self
        hyper, tasks = self.embedding.hyper, [one.task for one in observations]
        points = [
            self.embedding(one.kernels.descriptors, one.kernels.classes) for one in observations
        ]
        means = {task: self.coefficients(task) for task in dict.fromkeys(tasks)}
        rows = list(zip(observations, points, strict=True))
        targets = np.log([one.latency_us for one in observations])
        targets -= [self._correction(one.kernels, one.task, p, means[one.task]) for one, p in rows]
        start = [p @ means[one.task] for one, p in rows]
        moved = dict.fromkeys(means, np.zeros(self.embedding.columns, np.float32))
        weights, measured = np.ones(len(rows)), self.anchors
        for _ in range(_CONDITIONING_STEPS):
            equations = np.zeros((len(rows), self.embedding.columns), np.float32)
            residuals = targets.copy()
            for i, (one, cloud) in enumerate(rows):
                more = (cloud @ moved[one.task]).astype(np.float64)
                base_us = task_base(one.kernels, one.task)
                logarithm, share = log_sum(one.kernels, base_us, start[i] + more, hyper)
                equations[i] = share.astype(np.float32) @ cloud
                residuals[i] += share @ more - logarithm
            own = own_covariance(observations, hyper, self.embedding.hosts(equations))
            extra = hyper.own_variance * (1 / weights - 1) + hyper.noise**2
            noise = own + np.diag(extra)
            measured = self.anchors.condition(equations, tasks, noise, residuals)
            moved = dict(zip(means, measured.coefficients(list(means)), strict=True))
            weights = _believed(weights, measured, len(rows), hyper.own_variance)
        return replace(self, measured=measured)

    def of_task(self, task: Task, kept: NDArray[np.bool_] | None = None) -> TaskGP:
        """The process given a task's own anchors alone, of those that are ``kept``."""
        own = np.array([one == task for one in self.anchors.tasks], np.bool_)
        equations = self.anchors.equations[own if kept is None else own & kept]
        noise = self.embedding.hyper.own_variance * np.eye(len(equations))
        return TaskGP.of(self.embedding, equations, [task] * len(equations), noise)

    def _linear(
        self, kernels: KernelSet, task: Task, points: Float32, mean: Float32
    ) -> tuple[Array, Float32]:
        """(all uses of every row in us, equation (4)) of a network at these coefficients."""
        hyper = self.embedding.hyper
        ratios, base_us = (points @ mean).astype(np.float64), task_base(kernels, task)
        _, share = log_sum(kernels, base_us, ratios, hyper)
        return each_us(kernels, base_us, ratios, hyper), share.astype(np.float32) @ points

    def _correction(self, kernels: KernelSet, task: Task, points: Float32, mean: Float32) -> float:
        """What a task's trees add to ln(latency) (12), whatever was measured since."""
        if task not in self.trees:
            return 0.0
        each, equation = self._linear(kernels, task, points, mean)
        spread = float(self.of_task(task).spreads(equation[None], [task])[0])
        return self.trees[task].correction(kernels, task, math.log(each.sum()), spread)


def _believed(weights: Array, gp: TaskGP, count: int, noise: float) -> Array:
    """Weights where, of the last ``count`` rows, the one most out of line gets less."""
    own = gp.factor[-count:, -count:]
    precision = own.T @ own
    off = gp.dual[-count:] / np.diag(precision)  # of each, against what the others predict for it
    lines = np.abs(off) * np.sqrt(np.diag(precision))
    worst = int(np.argmax(lines))
    result = weights.copy()
    if count > 2 and lines[worst] > _OUT_OF_LINE:
        result[worst] = min(result[worst], noise / off[worst] ** 2)
    return result


def half_width(
    calibration: Calibration | None, one: NetworkPrediction, task: Task, confidence: float = 0.9
) -> float:
    """Half the width of the interval of ln(latency) (14); wide where nothing calibrated it."""
    if calibration is None:
        quantile = NormalDist().inv_cdf(0.5 + confidence / 2)
        return quantile * math.hypot(one.log_sd, _FIRST_GUESS_SD)
    return calibration.half_width(one.log_sd, label_of(task), confidence, one.prior_log_sd)


def interval_us(
    calibration: Calibration | None, one: NetworkPrediction, task: Task, confidence: float = 0.9
) -> tuple[float, float]:
    """The interval around the median; its lower end is what the device cannot beat, or above."""
    factor = math.exp(half_width(calibration, one, task, confidence))
    return max(one.median_us / factor, min(one.least_us, one.median_us)), one.median_us * factor
