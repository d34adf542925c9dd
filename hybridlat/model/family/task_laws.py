"""The two laws of tasks: a Gaussian process over the coefficients of all, and trees of each.

The process is known through linear equations of the coefficients. A task's own law, from its own
networks alone, are boosted trees, for equation (12). Every part of the base takes a factor of its
own: ten for each task, few enough to hold for networks of another kind. Trees learn from
descriptors by what each kernel departs from that. Their errors are not those of the process;
networks that both have not seen weigh them. Equations are those of ``docs/background/family.md``.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.embedding import DESCRIPTORS, LAYOUT, Embedding
from hybridlat.model.family.observations import KernelSet, Observation, task_base
from hybridlat.model.family.physics import CLASSES, COPY, HOST, PARTS
from hybridlat.model.family.tasks import Task
from hybridlat.model.geometry import Array, Float32
from hybridlat.model.trees import Booster, grown_on_sums

LARGEST_CORRECTION = 0.15
"""The clip of (12), of ln(latency)."""
LEAST = 20
"""Networks of a task that has trees of its own."""
_DENSE = ("conv 1x1", "conv kxk", "conv transposed", "matmul")
_OTHERS = 3
_KIND = np.array([0 if name in _DENSE else _OTHERS for name in CLASSES])
_KIND[[CLASSES.index("conv grouped"), CLASSES.index("conv depthwise")]] = 1, 2
WIDTHS = np.array([2.0, 2.0] + [0.5] * 8)
"""Prior standard deviations of the factors' logarithms: host, copy, then compute of the four kinds,
memory and launch of those that compute and of others."""
_NOISE = 0.1
_STEPS = 20
_FOLDS = 3
_OUT_OF_LINE = 0.15
_FADING = 4
_DOUBT = 3e-4  # squared log-error of a row below which two laws are taken for one
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, eq=False)
class TaskGP:
    """The process, given ``equations`` z (rows x columns) of coefficients, each of a task.

    ``factor`` is the inverse F of the Cholesky factor of C (6), so that C⁻¹ = FᵀF; ``dual`` is α
    (7), zeros where a model holds the coefficients that came of it.
    """

    embedding: Embedding
    equations: Float32
    tasks: tuple[Task, ...]
    factor: NDArray[np.floating]
    dual: Array

    @classmethod
    def of(
        cls,
        embedding: Embedding,
        equations: Float32,
        tasks: Sequence[Task],
        noise: Array,
        residuals: Array | None = None,
    ) -> "TaskGP":
        """The process given ``equations`` z, their ``residuals`` r and ``noise`` N: (4) to (7)."""
        covariance = embedding.covariance(equations, tasks, equations, tasks) + noise
        factor = _inverse(np.linalg.cholesky(covariance))
        dual = np.zeros(len(factor)) if residuals is None else factor.T @ (factor @ residuals)
        return cls(embedding, equations, tuple(tasks), factor, dual)

    @cached_property
    def sums(self) -> dict[Task, Float32]:
        """The sum of α z over the rows of each task, of (7)."""
        rows = defaultdict[Task, list[int]](list)
        for row, task in enumerate(self.tasks):
            rows[task].append(row)
        dual = self.dual.astype(np.float32)
        return {task: dual[each] @ self.equations[each] for task, each in rows.items()}

    def coefficients(self, tasks: Sequence[Task]) -> dict[Task, Float32]:
        """The means of tasks' coefficients, by equation (7)."""
        means = self.embedding.mixed(tasks, [*self.sums], np.stack([*self.sums.values()]))
        return dict(zip(tasks, means, strict=True))

    def covariance(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """Covariance of networks' log-latencies given the rows (8), with h² of each host."""
        half = self._explained(equations, tasks)
        left = self.embedding.covariance(equations, tasks, equations, tasks) - half @ half.T
        own = self.embedding.host_sds(equations) ** 2
        left[np.diag_indices(len(left))] = np.maximum(np.diag(left) + own, _LEAST_VARIANCE)
        return np.asarray(left, np.float64)

    def spreads(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """Standard deviations of log-latencies: the root of the diagonal of ``covariance``."""
        half = self._explained(equations, tasks)
        left = self.embedding.variances(equations) - (half**2).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(left, _LEAST_VARIANCE)), np.float64)

    def left_out(self, groups: NDArray[np.str_]) -> Array:
        """Observed less predicted of each row given the rows of all other groups, by (9)."""
        inverse, errors = self.factor.T @ self.factor, np.zeros(len(self.dual))
        for name in np.unique(groups):
            own = np.flatnonzero(groups == name)
            errors[own] = np.linalg.solve(inverse[np.ix_(own, own)], self.dual[own])
        return errors

    def condition(
        self, equations: Float32, tasks: Sequence[Task], noise: Array, residuals: Array
    ) -> "TaskGP":
        """The process given more equations, ``residuals`` beyond the mean that it has now, by (10).

        ``noise`` is their N, which they share with none of the rows known before.
        """
        half = self._explained(equations, tasks)
        left = self.embedding.covariance(equations, tasks, equations, tasks) - half @ half.T + noise
        own = _inverse(np.linalg.cholesky(left))
        rows = np.hstack([-own @ half @ self._factor, own])
        factor = np.vstack([np.pad(self.factor, ((0, 0), (0, len(own)))), rows])
        dual = np.pad(self.dual, (0, len(own))) + rows.T @ (own @ residuals)
        both = np.vstack([self.equations, equations])
        return TaskGP(self.embedding, both, (*self.tasks, *tasks), factor, dual)

    @cached_property
    def _factor(self) -> Array:
        """``factor`` in double precision, which it is multiplied in."""
        return self.factor.astype(np.float64)

    def _explained(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """k(z)ᵀFᵀ, a row for each equation: products of rows are what (8) takes off."""
        rows = np.asfortranarray(self.equations)  # of a model they are so already
        across = self.embedding.covariance(equations, tasks, rows, self.tasks)
        return np.asarray(across @ self._factor.T)


def _inverse(lower: NDArray[Any]) -> Array:
    """Of a triangular matrix, by halves: a third of the time of a general inverse."""
    half = len(lower) // 2
    if half < 64:
        return np.asarray(np.tril(np.linalg.inv(lower)))
    first, last = _inverse(lower[:half, :half]), _inverse(lower[half:, half:])
    below = -last @ (lower[half:, :half] @ first)
    return np.block([[first, np.zeros_like(below.T)], [below, last]])


@dataclass(frozen=True)
class TaskTrees:
    """``factors`` of the base's parts, trees over ``_inputs`` (UBJ) and their weight (0..1).

    ``reach`` is the standard deviation that the Gaussian process, by the task's own anchors alone,
    stays below for nine in ten of the task's networks with their family left out.
    """

    factors: Array
    ubj: bytes = field(repr=False)
    weight: float
    reach: float = np.inf

    @cached_property
    def booster(self) -> Booster:
        """The trees as predictions evaluate them; StoreError where they are damaged."""
        return Booster(self.ubj, LAYOUT + 1 + len(CLASSES))

    def log_us(self, kernels: KernelSet, task: Task) -> float:
        """The logarithm of a network's latency in us."""
        each_us = _columns(kernels, task) @ self.factors
        logs = np.where(kernels.classes < HOST, self.booster.predict(_inputs(kernels)), 0.0)
        return float(np.log(kernels.counts @ (each_us * np.exp(logs))))

    def correction(self, kernels: KernelSet, task: Task, log_us: float, sd: float = 0.0) -> float:
        """What trees add to ``log_us`` (12), the less the farther ``sd`` is above ``reach``."""
        nearness = min(1.0, (self.reach / max(sd, 1e-6)) ** _FADING)
        difference = self.log_us(kernels, task) - log_us
        clipped = float(np.clip(difference, -LARGEST_CORRECTION, LARGEST_CORRECTION))
        return self.weight * nearness * clipped


def _columns(kernels: KernelSet, task: Task) -> Array:
    """The base in us (kernels x factors), each row under the factors of its kind."""
    base = task_base(kernels, task)
    parts = base[:, None] * kernels.descriptors[:, len(DESCRIPTORS) : len(DESCRIPTORS) + len(PARTS)]
    kinds, rows = _KIND[kernels.classes], np.arange(len(base))
    columns = np.zeros((len(base), len(WIDTHS)))
    columns[rows, 2 + kinds] = parts[:, 0]
    others = kinds == _OTHERS
    columns[rows, 6 + others] = parts[:, 1]
    columns[rows, 8 + others] = parts[:, 2]
    for column, number in enumerate((HOST, COPY)):
        columns[:, column] = np.where(kernels.classes == number, base, 0.0)
    return columns


def _inputs(kernels: KernelSet) -> Float32:
    """What trees see of each kernel: its descriptors and its class."""
    return np.hstack([kernels.descriptors, np.eye(len(CLASSES), dtype=np.float32)[kernels.classes]])


def _factors(sums_us: Array, log_us: Array, names: Sequence[str]) -> Array:
    """Factors that make sums (networks x factors) latencies: the mode, by Gauss-Newton steps.

    Networks of one name count together as the square root of their number.
    """
    _, place, count = np.unique(list(names), return_inverse=True, return_counts=True)
    weights = 1 / (_NOISE**2 * np.sqrt(count[place]))
    logs, prior = np.zeros(len(WIDTHS)), 1 / WIDTHS**2
    for _ in range(_STEPS):
        each = sums_us * np.exp(logs)
        total = each.sum(axis=1)
        shares = each / total[:, None]
        slope = shares.T @ (weights * (log_us - np.log(total))) - prior * logs
        step = np.linalg.solve((shares.T * weights) @ shares + np.diag(prior), slope)
        logs += np.clip(step, -1, 1)
    return np.exp(logs)


def _fit(observations: Sequence[Observation]) -> TaskTrees:
    """Factors first, then trees on what they leave of the sums."""
    log_us = np.log([one.latency_us for one in observations])
    columns = [_columns(one.kernels, one.task) for one in observations]
    counts = [one.kernels.counts for one in observations]
    sums_us = np.array([c @ each for c, each in zip(counts, columns, strict=True)])
    names = [one.architecture for one in observations]
    factors = _factors(np.maximum(sums_us, 1e-9), log_us, names)
    uses_us = np.concatenate([c * (x @ factors) for c, x in zip(counts, columns, strict=True)])
    owner = np.repeat(np.arange(len(columns)), [len(each) for each in columns])
    is_kernel = np.concatenate([one.kernels.classes < HOST for one in observations])
    rest_us = np.bincount(owner, np.where(is_kernel, 0.0, uses_us)).astype(np.float64)
    inputs = np.vstack([_inputs(one.kernels) for one in observations])[is_kernel]
    owner = owner[is_kernel]
    law = grown_on_sums(inputs, uses_us[is_kernel], owner, rest_us, log_us, seed=0)
    return TaskTrees(factors, law.ubj, 1.0)


def weighed(
    observations: Sequence[Observation], held_out: Sequence[tuple[NDArray[np.str_], Array]]
) -> TaskTrees | None:
    """Trees of one task, weighed by networks that were held out; None where they count nothing.

    ``held_out`` are ways to group the rows, and what the Gaussian process without a row's group is
    off, in logarithms (true less predicted), by (9). None where there is no such way.
    """
    gain = need = 0.0
    for groups, errors in held_out:
        moves = np.full(len(observations), np.nan)
        folds = np.unique(groups, return_inverse=True)[1] % _FOLDS
        for fold in np.unique(folds):
            learned = [one for one, own in zip(observations, folds, strict=True) if own != fold]
            if len(learned) < LEAST // 2:
                continue
            law = _fit(learned)
            for i in np.flatnonzero(folds == fold).tolist():
                one = observations[i]
                log_us = float(np.log(one.latency_us) - errors[i])
                moves[i] = law.correction(one.kernels, one.task, log_us)
        is_judged = np.isfinite(moves)
        error, moves = errors[is_judged], moves[is_judged]
        trust = 1 / (1 + (np.minimum(abs(error), abs(error - moves)) / _OUT_OF_LINE) ** 2)
        # Each way to hold out counts alike, as near as the process alone comes to the truth.
        scale = max(float(trust @ error**2), 1e-9)
        gain += float((trust * error) @ moves) / scale
        need += (float(trust @ moves**2) + _DOUBT * len(error)) / scale
    if gain <= 0:
        return None
    return replace(_fit(observations), weight=min(gain / need, 1.0))
