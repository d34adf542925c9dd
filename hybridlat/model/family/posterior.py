"""Kernels' latencies from sums of them: a Gaussian process seen through the logarithm of a sum.

A kernel takes ``base * exp(f)``; ``f`` is a Gaussian process over kernels and tasks. Of a network
only ``log(sum of counts * base * exp(f))`` is seen. Linearised, a change of that logarithm is the
sum of the kernels' changes weighted by their shares of the time, so a network is one linear
equation, and Gauss-Newton steps that renew the shares find the mode. Student-t weights take
observations that no law explains out of the fit (Lange et al. 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.dataset import KernelSet, SumData
from hybridlat.model.family.embedding import Embedding
from hybridlat.model.family.tasks import Task

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
LOWEST = -1.3
"""Bound of a kernel's log-ratio to its base: what no kernel was seen to leave."""
_STEPS = 7
_DAMPING = 0.7
_FREEDOM = 4.0
_LEAST_WEIGHT = 0.02
_LEFT_OUT = 1e-9


@dataclass(frozen=True)
class Posterior:
    """What was learned.

    ``points`` are the observations' equations (observations x columns of the embedding), ``dual``
    the weight of each in every prediction, ``covariance`` theirs with noise, ``residual`` what each
    said against the prior, ``robust`` the Student-t weight of each.
    """

    embedding: Embedding
    data: SumData
    points: Float32
    dual: Array
    covariance: Array
    residual: Array
    robust: Array

    def level(self, task: Task) -> Float32:
        """Coefficients of ``f`` over points for a task, seen before or not."""
        between = self.embedding.hyper.sharing.between([task], self.data.tasks)[0]
        weights = self.dual * between[self.data.task]
        return np.asarray(weights.astype(np.float32) @ self.points)


def fit(data: SumData, embedding: Embedding, clouds: Sequence[Float32] | None = None) -> Posterior:
    """The mode of the kernels' log-ratios given all sums.

    ``clouds`` are the embedded kernel sets, where they are at hand. Observations of weight 0 teach
    nothing. Deterministic. Cost grows with the cube of the observations.
    """
    hyper = embedding.hyper
    points_of = embedded(data, embedding) if clouds is None else clouds
    shared = hyper.sharing.between(data.tasks, data.tasks)
    between = shared[np.ix_(data.task, data.task)]
    own = _own_covariance(data, embedding)
    count = len(data)
    robust = np.ones(count)
    levels = np.zeros((len(data.tasks), embedding.columns), np.float32)
    ratios = [np.zeros(len(base)) for base in data.base_us]
    points = np.empty((count, embedding.columns), np.float32)
    residual = np.zeros(count)
    dual: Array = np.zeros(count)
    covariance: Array = np.eye(count)
    trust = np.maximum(data.weights, _LEFT_OUT)
    for step in range(_STEPS):
        for i in range(count):
            cloud, set_index = points_of[data.of_set[i]], int(data.of_set[i])
            if step:
                target = cloud @ levels[data.task[i]]
                damping = 1.0 if step == _STEPS - 1 else _DAMPING
                ratios[i] = ratios[i] + damping * (target - ratios[i])
            logarithm, share = log_sum(
                data.sets[set_index], data.base_us[i], ratios[i], hyper.highest
            )
            points[i] = share.astype(np.float32) @ cloud
            residual[i] = data.log_us[i] - logarithm + share @ ratios[i]
        noise = hyper.noise**2 / (robust * trust)
        covariance = (points @ points.T) * between + own
        covariance[np.diag_indices(count)] += noise
        dual = np.asarray(np.linalg.solve(covariance, residual), np.float64)
        for task in range(len(data.tasks)):
            weights = (dual * shared[task][data.task]).astype(np.float32)
            levels[task] = weights @ points
        unexplained = (noise * dual + own @ dual) / max(hyper.noise, 0.03)
        robust = np.maximum((_FREEDOM + 1) / (_FREEDOM + unexplained**2), _LEAST_WEIGHT)
    return Posterior(embedding, data, points, dual, covariance, residual, robust)


def embedded(data: SumData, embedding: Embedding) -> list[Float32]:
    """Points of the kernels of every set."""
    return [embedding(one.descriptors, one.classes) for one in data.sets]


def log_sum(
    kernels: KernelSet, base_us: Array, ratios: Array, highest: float
) -> tuple[float, Array]:
    """(logarithm of the network's latency, share of each row of kernels in it).

    Log-ratios count from ``LOWEST`` to ``highest``.
    """
    each = kernels.counts * base_us * np.exp(np.clip(ratios, LOWEST, highest))
    total = float(each.sum())
    return float(np.log(total)), np.asarray(each / total)


def _own_covariance(data: SumData, embedding: Embedding) -> Array:
    """What observations of one network have in common that its kernels do not tell."""
    hyper = embedding.hyper
    _, network = np.unique(np.array(data.networks), return_inverse=True)
    same = network[:, None] == network[None, :]
    alike = same & (data.task[:, None] == data.task[None, :])
    return np.asarray(hyper.network**2 * alike + hyper.architecture**2 * same)
