"""A family's model: one law for all targets of an engine family, as it is fitted, saved and served.

Equation numbers are those of ``docs/background/family.md``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np

from hybridlat.model.conformal import Calibration, normal_quantile
from hybridlat.model.family.embedding import Embedding
from hybridlat.model.family.observations import (
    KernelSet,
    LinearNetwork,
    Observation,
    TaskNetwork,
    shared_noise,
)
from hybridlat.model.family.physics import within_reach
from hybridlat.model.family.task_laws import TaskGP, TaskTrees
from hybridlat.model.family.tasks import Task, label_of
from hybridlat.model.geometry import Array, Flags, Float32, Positions

_CONDITIONING_STEPS = 5
_OUT_OF_LINE = 2.5
_FAR_OUT = 5.0  # of one or two rows, that do not tell which is wrong
_Coefficients = Mapping[Task, Float32]
_APART = 0.3  # of ln(latency): batches so far apart tell nothing of each other's order
_LEAST_RISE = 1e-3  # of a doubling, so that what files at two batches differ by turns no order
_DOUBLINGS = 8
_FIRST_GUESS_SD = 0.5  # of ln(latency) where no held-out error has calibrated a family


@dataclass(frozen=True)
class NetworkPrediction:
    """The latency of a network on a task: its median, and the standard deviation of its logarithm.

    ``kernel_us`` is one use of every row of its kernels, host and copy last; ``equation`` its
    linear equation (4). ``prior_log_sd`` is the standard deviation before networks of the task were
    measured, None where none were; ``least_us`` what the device cannot beat. ``doubt`` is by how
    much the logarithm moved with networks that are far from what the family has, else 0.
    """

    median_us: float
    log_sd: float
    kernel_us: Array
    equation: Float32
    prior_log_sd: float | None = None
    least_us: float = 0.0
    doubt: float = 0.0


@dataclass(frozen=True)
class FamilyModel:
    """One law for all targets of an engine family.

    ``sums[t]`` is the sum of α z over the rows of task ``t`` (7); a task's coefficients mix them by
    what tasks share, and ``own_shifts[t]`` is a (w_own - w), what its own rows add (11): of all
    tasks that have those in common (``Task.shared``) the first holds it, and their trees.
    ``anchors`` is the process given the 900 rows that standard deviations rest on (8). ``seen``
    counts the observations of each task, ``trees`` are of some of them, ``batches`` the least and
    the largest by target. ``measured`` is the process given the ``observations`` made since (10);
    where it ``is_doubtful``, one or two of them are far from what the family has.
    """

    embedding: Embedding
    tasks: tuple[Task, ...]
    sums: Float32
    own_shifts: Float32
    anchors: TaskGP
    seen: Positions
    trees: dict[Task, TaskTrees] = field(default_factory=dict)
    calibration: Calibration | None = None
    batches: dict[str, tuple[int, int]] = field(default_factory=dict)
    measured: TaskGP | None = None
    observations: tuple[Observation, ...] = ()
    is_doubtful: bool = False

    def own_task(self, task: Task) -> Task:
        """The first of the known tasks that share their own rows with this one, else itself."""
        return self._firsts.get(task.shared, task)

    @cached_property
    def _firsts(self) -> dict[Task, Task]:
        return {one.shared: one for one in reversed(self.tasks)}

    @property
    def gp(self) -> TaskGP:
        """The process given all that is known."""
        return self.anchors if self.measured is None else self.measured

    def coefficients(self, tasks: Sequence[Task]) -> dict[Task, Float32]:
        """The means of tasks' coefficients as the family was fitted, of new tasks too."""
        distinct = list(dict.fromkeys(tasks))
        means = self.embedding.mixed(distinct, self.tasks, self.sums)
        for i, task in enumerate(distinct):
            if (own := self.own_task(task)) in self.tasks:
                means[i] += self.own_shifts[self.tasks.index(own)]
        return dict(zip(distinct, means, strict=True))

    def predict(self, kernels: KernelSet, task: Task) -> NetworkPrediction:
        """One network on a task."""
        return self.predict_all([kernels], [task])[0]

    def predict_all(
        self,
        networks: Sequence[KernelSet],
        tasks: Sequence[Task],
        points: Sequence[Float32 | None] | None = None,
    ) -> list[NetworkPrediction]:
        """The networks, each on its task: what estimates serve and evaluation judges.

        ``points`` are their kernels in the embedding, where they are at hand.
        """
        means = self.coefficients(tasks)
        each = zip(networks, tasks, points or [None] * len(networks), strict=True)
        rows = [TaskNetwork.of(kernels, task, self.embedding, own) for kernels, task, own in each]
        moves = None if self.measured is None else self.measured.coefficients([*means])
        laws = self._laws(rows, means, moves)
        equations = np.stack([one.equation for one, _ in laws])
        sds, before = self.gp.spreads(equations, tasks).tolist(), [None] * len(rows)
        if self.measured is not None:
            before = self.anchors.spreads(equations, tasks).tolist()
        result = []
        of_family = self._laws(rows, means) if self.is_doubtful else laws
        answers = zip(networks, laws, of_family, sds, before, strict=True)
        for kernels, (one, each_us), (first, _), sd, prior_sd in answers:
            prediction = NetworkPrediction(
                median_us=float(kernels.counts @ each_us),
                log_sd=sd,
                kernel_us=each_us,
                equation=one.equation,
                prior_log_sd=prior_sd,
                least_us=float(kernels.counts @ kernels.least_us),
                doubt=abs(one.log_us - first.log_us),
            )
            result.append(prediction)
        return result

    def condition(self, observations: Sequence[Observation]) -> "FamilyModel":
        """The model given more measured networks, of a task or of others that share with it (10).

        Another version of the engine informs this one as far as tasks share. A row that the others
        and the family contradict by more than 2.5 standard deviations is believed only as far as it
        is off. Of one or two rows each may be wrong: where one is off by more than 5, others are as
        unsure as they move. Raises ValueError for a latency that is not above zero.
        """
        if any(not one.latency_us > 0 for one in observations):
            raise ValueError("a measured latency is not above zero")
        known = (*self.observations, *(one for one in observations if one.weight > 0))
        if len(known) == len(self.observations):
            return self
        hyper, tasks = self.embedding.hyper, [one.task for one in known]
        rows = [TaskNetwork.of(one.kernels, one.task, self.embedding) for one in known]
        means = self.coefficients(tasks)
        log_us = []  # as the coefficients alone are to give it
        for one, (linear, kernel_us) in zip(known, self._laws(rows, means), strict=True):
            beyond = math.log(one.latency_us / float(one.kernels.counts @ kernel_us))
            log_us.append(linear.log_us + beyond)
        start = [row.points @ means[row.task] for row in rows]
        moves = dict.fromkeys(means, np.zeros(self.embedding.columns, np.float32))
        single = hyper.noise**2 / np.array([one.weight for one in known])
        beliefs, measured, is_doubtful = np.ones(len(rows)), self.anchors, False
        equations = np.zeros((len(rows), self.embedding.columns), np.float32)
        residuals = np.zeros(len(rows))
        for _ in range(_CONDITIONING_STEPS):
            for i, row in enumerate(rows):
                more = (row.points @ moves[row.task]).astype(np.float64)
                linear = row.linearise(start[i] + more, hyper)
                equations[i], residuals[i] = linear.equation, linear.residual(log_us[i], more)
            shared = shared_noise(known, hyper, self.embedding.host_sds(equations))
            noise = shared + np.diag(single + hyper.own_variance * (1 / beliefs - 1))
            measured = self.anchors.condition(equations, tasks, noise, residuals)
            moves = measured.coefficients([*means])
            beliefs, off = _believed(beliefs, measured, hyper.own_variance)
            is_doubtful |= len(known) <= 2 and off > _FAR_OUT
        return replace(self, measured=measured, observations=known, is_doubtful=is_doubtful)

    def ratio_log_sds(
        self, rows: Sequence[Observation], answers: Sequence[NetworkPrediction]
    ) -> Array:
        """Standard errors of ln(latency of a row in that of another), rows x rows (16)."""
        hyper, equations = self.embedding.hyper, np.stack([one.equation for one in answers])
        own = shared_noise(rows, hyper, self.embedding.host_sds(equations))
        np.fill_diagonal(own, hyper.own_variance)  # (8) holds the hosts'
        errors = self.gp.covariance(equations, [one.task for one in rows]) + own
        each = errors.diagonal()
        return np.asarray(np.sqrt(np.maximum(each[:, None] + each - 2 * errors, 0.0)))

    def of_task(self, task: Task, kept: Flags | None = None) -> TaskGP:
        """The process given a task's own anchors alone, of those that are ``kept``."""
        shared = task.shared
        own = np.array([one.shared == shared for one in self.anchors.tasks], np.bool_)
        equations = self.anchors.equations[own if kept is None else own & kept]
        noise = self.embedding.hyper.own_variance * np.eye(len(equations))
        return TaskGP.of(self.embedding, equations, [shared] * len(equations), noise)

    @cached_property
    def _process_of(self) -> Callable[[Task], TaskGP]:
        return cache(self.of_task)

    def _laws(
        self, rows: Sequence[TaskNetwork], means: _Coefficients, moves: _Coefficients | None = None
    ) -> list[tuple[LinearNetwork, Array]]:
        """Networks by the coefficients, and what kernels take with trees (12), in order (15)."""
        result = []
        for row in rows:
            kernels, (linear, added) = row.kernels, self._corrected(row, means, moves)

            def log_us_at(factor: float, row: TaskNetwork = row) -> float:
                kernels = replace(row.kernels.times(factor), counts=row.kernels.counts)
                other = TaskNetwork.of(kernels, row.task, self.embedding)
                one, added = self._corrected(other, means, moves)
                return one.log_us + added

            added += _rise(kernels.batch, linear.log_us + added, log_us_at)
            kernel_us = linear.uses_us / kernels.counts * math.exp(added)
            result.append((linear, within_reach(kernel_us, kernels.counts, kernels.least_us)))
        return result

    def _corrected(
        self, row: TaskNetwork, means: _Coefficients, moves: _Coefficients | None
    ) -> tuple[LinearNetwork, float]:
        """A network by the coefficients; and what trees, which know no ``moves``, add (12)."""
        task, mean, added = row.task, means[row.task], 0.0
        hyper, first = self.embedding.hyper, self.own_task(task)
        linear = row.linearise((row.points @ mean).astype(np.float64), hyper)
        if first in self.trees:
            (own_log_sd,) = self._process_of(first).spreads(linear.equation[None], [task.shared])
            trees = self.trees[first]
            added = trees.correction(row.kernels, task, linear.log_us, float(own_log_sd))
        if moves is not None:
            linear = row.linearise((row.points @ (mean + moves[task])).astype(np.float64), hyper)
        return linear, added


def _rise(batch: float, log_us: float, other: Callable[[float], float]) -> float:
    """What orders ln(latency) among those at ``other`` batches, halved and doubled (15)."""
    below, above = list[float](), list[float]()
    while batch >= 2 ** (len(below) + 1) and log_us - min([log_us, *below]) < _APART:
        below.append(other(0.5 ** (len(below) + 1)))
    highest = max([log_us, *below])  # a fall is followed to its end: all in it are ordered alike
    while max([log_us, *above]) - log_us < _APART and (
        len(above) < _DOUBLINGS or (above[-1] < highest and len(above) < 2 * _DOUBLINGS)
    ):
        above.append(other(2.0 ** (len(above) + 1)))
    each = np.array([*below[::-1], log_us, *above])
    sums = np.cumsum([0.0, *each - _LEAST_RISE * np.arange(-len(below), len(above) + 1)])
    first, last = np.arange(len(below) + 1)[:, None], np.arange(len(below) + 1, len(sums))
    return float(((sums[last] - sums[first]) / (last - first)).min(axis=1).max()) - log_us


def _believed(beliefs: Array, gp: TaskGP, variance: float) -> tuple[Array, float]:
    """Beliefs where, of the last rows of a process, the one most out of line gets less.

    And how far out it is, in standard deviations. One or two do not tell which is wrong.
    """
    count = len(beliefs)
    factor = gp.factor[-count:, -count:]
    precision = np.diag(factor.T @ factor)
    errors = gp.dual[-count:] / precision  # (9) of each row alone
    scores = np.abs(errors) * np.sqrt(precision)
    worst = int(np.argmax(scores))
    result = beliefs.copy()
    if count > 2 and scores[worst] > _OUT_OF_LINE:
        result[worst] = min(result[worst], variance / errors[worst] ** 2)
    return result, float(scores[worst])


def half_width(
    calibration: Calibration | None, one: NetworkPrediction, task: Task, confidence: float = 0.9
) -> float:
    """Half the width of the interval of ln(latency) (14); wide where nothing calibrated it."""
    if calibration is None:
        half = normal_quantile(confidence) * math.hypot(one.log_sd, _FIRST_GUESS_SD)
    else:
        half = calibration.half_width(one.log_sd, label_of(task), confidence, one.prior_log_sd)
    return math.hypot(half, one.doubt)


def interval_us(
    calibration: Calibration | None, one: NetworkPrediction, task: Task, confidence: float = 0.9
) -> tuple[float, float]:
    """The interval around the median; its lower end is what the device cannot beat, or above."""
    factor = math.exp(half_width(calibration, one, task, confidence))
    return max(one.median_us / factor, min(one.least_us, one.median_us)), one.median_us * factor
