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
    ) -> TaskGP:
        """The process given ``equations`` z, their ``residuals`` r and ``noise`` N: (4) to (7)."""
        covariance = embedding.covariance(equations, tasks, equations, tasks) + noise
        factor = _inverse_factor(covariance)
        dual = np.zeros(len(equations))
        if residuals is not None:
            dual = factor.T @ (factor @ residuals)
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
    ) -> TaskGP:
        """The process given more equations, ``residuals`` beyond the mean that it has now, by (10).

        ``noise`` is their N, which they share with none of the rows known before.
        """
        half = self._explained(equations, tasks)
        left = self.embedding.covariance(equations, tasks, equations, tasks) - half @ half.T + noise
        own = _inverse_factor(left)
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
