"""A Gaussian process over the coefficients of all tasks, known through linear equations of them.

Equation numbers are those of ``docs/background/family.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.embedding import Embedding
from hybridlat.model.family.tasks import Array, Float32, Task

_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, eq=False)
class TaskGP:
    """The process, given ``equations`` (rows x columns) of coefficients, each of one of ``tasks``.

    ``factor`` is the inverse of the Cholesky factor of C, the covariance of what the rows observe
    (6); ``dual`` is C⁻¹ times what they observed beyond the mean (7), zeros where a model holds the
    coefficients that came of it.
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
    ) -> TaskGP:
        """The process given ``equations`` = ``residuals``, whose ``noise`` is a covariance (6)."""
        covariance = embedding.covariance(equations, tasks, equations, tasks) + noise
        factor = _inverse_factor(covariance)
        observed = np.zeros(len(equations)) if residuals is None else residuals
        dual = factor.T @ (factor @ observed)
        return cls(embedding, equations, tuple(tasks), factor, dual)

    def sums(self, tasks: Sequence[Task]) -> Float32:
        """The sum of α z over the rows of each task (tasks x columns), of (7)."""
        result = np.zeros((len(tasks), self.embedding.columns), np.float32)
        number = {task: i for i, task in enumerate(tasks)}
        owner = np.array([number[task] for task in self.tasks], np.intp)
        for i in range(len(tasks)):
            rows = np.flatnonzero(owner == i)
            result[i] = self.dual[rows].astype(np.float32) @ self.equations[rows]
        return result

    def coefficients(self, tasks: Sequence[Task]) -> Float32:
        """The mean of the coefficients (tasks x columns), by equation (7)."""
        distinct = tuple(dict.fromkeys(self.tasks))
        return self.embedding.mixed(tasks, distinct, self.sums(distinct))

    def covariance(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """Covariance of networks' log-latencies given the rows (8), each host's own included."""
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
        """What each row is off from the mean given the rows of all other groups, by (9)."""
        inverse, errors = self.factor.T @ self.factor, np.zeros(len(self.dual))
        for name in np.unique(groups):
            own = np.flatnonzero(groups == name)
            errors[own] = np.linalg.solve(inverse[np.ix_(own, own)], self.dual[own])
        return errors

    def condition(
        self, equations: Float32, tasks: Sequence[Task], noise: Array, residuals: Array
    ) -> TaskGP:
        """The process given more equations, ``residuals`` beyond the mean that it has now, by (10).

        ``noise`` is their own covariance, beside what the process leaves of them.
        """
        half = self._explained(equations, tasks)
        left = self.embedding.covariance(equations, tasks, equations, tasks) - half @ half.T + noise
        own = _inverse_factor(left)
        known, more = len(self.factor), len(equations)
        factor = np.zeros((known + more, known + more))
        factor[:known, :known] = self.factor
        factor[known:, known:] = own
        factor[known:, :known] = -own @ half @ self._factor
        dual = factor.T @ np.concatenate([np.zeros(known), own @ residuals])
        dual[:known] += self.dual
        both = np.vstack([self.equations, equations])
        return TaskGP(self.embedding, both, (*self.tasks, *tasks), factor, dual)

    @cached_property
    def _factor(self) -> Array:
        """``factor`` in double precision, which it is multiplied in."""
        return self.factor.astype(np.float64)

    def _explained(self, equations: Float32, tasks: Sequence[Task]) -> Array:
        """A row for each equation; their products are the covariance that the rows explain."""
        across = self.embedding.covariance(equations, tasks, self.equations, self.tasks)
        return np.asarray(across @ self._factor.T)


def _inverse_factor(covariance: Array) -> Array:
    return _inverse(np.asarray(np.linalg.cholesky(covariance), np.float64))


def _inverse(lower: Array) -> Array:
    """Of a triangular matrix, by halves: a third of the time of a general inverse."""
    half = len(lower) // 2
    if half < 64:
        return np.asarray(np.tril(np.linalg.inv(lower)))
    result = np.zeros_like(lower)
    result[:half, :half], result[half:, half:] = map(
        _inverse, (lower[:half, :half], lower[half:, half:])
    )
    result[half:, :half] = -result[half:, half:] @ (lower[half:, :half] @ result[:half, :half])
    return result
