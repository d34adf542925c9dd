"""A second law of one task, from its own networks alone: boosted trees on what physics leaves.

Every part of the base takes a factor of its own (ten for each task: few, so that they hold for
networks of another kind), and trees learn from descriptors what kernels take beside. The Gaussian
process errs otherwise; how much the trees count is told by networks that both have not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridlat.model import trees
from hybridlat.model.family.descriptors import DESCRIPTORS, LAYOUT
from hybridlat.model.family.observations import KernelSet, Observation, task_base
from hybridlat.model.family.physics import CLASSES, COPY, HOST, PARTS
from hybridlat.model.family.tasks import Array, Float32, Task
from hybridlat.model.xgboost_runtime import Booster

APART = 0.15
"""How far the logarithm of a latency by trees counts from that of the Gaussian process, at most."""
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


@dataclass(frozen=True)
class TaskTrees:
    """``factors`` of the base's parts, trees over ``_inputs`` (UBJ) and their weight (0..1).

    ``reach`` is how unsure the Gaussian process is, by the task's own networks alone, of nine in
    ten of them with their family left out: where it is surer than that, trees count in full.
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
        left = np.where(kernels.classes < HOST, self.booster.predict(_inputs(kernels)), 0.0)
        return float(np.log(kernels.counts @ (each_us * np.exp(left))))

    def correction(
        self, kernels: KernelSet, task: Task, log_us: float, spread: float = 0.0
    ) -> float:
        """What trees add to a logarithm; little where ``spread`` (as ``reach``) says they guess."""
        apart = self.log_us(kernels, task) - log_us
        near = min(1.0, (self.reach / max(spread, 1e-6)) ** _FADING)
        return self.weight * near * float(np.clip(apart, -APART, APART))


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
    for column, beside in enumerate((HOST, COPY)):
        columns[:, column] = np.where(kernels.classes == beside, base, 0.0)
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


class _Network(NamedTuple):
    """A network as trees are taught by it."""

    seen: Observation
    columns: Array
    inputs: Float32


def _fit(networks: Sequence[_Network]) -> TaskTrees:
    """Factors first, then trees on what they leave of the sums."""
    log_us = np.log([one.seen.latency_us for one in networks])
    sums_us = np.array([one.seen.kernels.counts @ one.columns for one in networks])
    factors = _factors(np.maximum(sums_us, 1e-9), log_us, [one.seen.network for one in networks])
    each_us = np.concatenate(
        [one.seen.kernels.counts * (one.columns @ factors) for one in networks]
    )
    owner = np.repeat(np.arange(len(networks)), [len(one.columns) for one in networks])
    taught = np.concatenate([one.seen.kernels.classes < HOST for one in networks])
    beside_us = np.bincount(owner, np.where(taught, 0.0, each_us))
    inputs = np.vstack([one.inputs for one in networks])[taught]
    made = trees.fit_sums(inputs, each_us[taught], owner[taught], beside_us, log_us, seed=0)
    return TaskTrees(factors, trees.served(made).ubj, 1.0)


def weighed(
    observations: Sequence[Observation], held_out: Sequence[tuple[NDArray[np.str_], Array]]
) -> TaskTrees | None:
    """Trees of one task, weighed by networks that were held out; None where they count nothing.

    ``held_out`` are ways to group the rows, and what the Gaussian process without a row's group is
    off, in logarithms (true less predicted). None where there is no such way.
    """
    networks = [
        _Network(one, _columns(one.kernels, one.task), _inputs(one.kernels)) for one in observations
    ]
    gain = need = 0.0
    for groups, errors in held_out:
        moved = np.full(len(networks), np.nan)
        folds = np.unique(groups, return_inverse=True)[1] % _FOLDS
        for fold in np.unique(folds):
            known = [one for one, own in zip(networks, folds, strict=True) if own != fold]
            if len(known) < LEAST // 2:
                continue
            law = _fit(known)
            for i in np.flatnonzero(folds == fold).tolist():
                one = observations[i]
                said = float(np.log(one.latency_us) - errors[i])
                moved[i] = law.correction(one.kernels, one.task, said)
        judged = np.isfinite(moved)
        error, moved = errors[judged], moved[judged]
        trust = 1 / (1 + (np.minimum(abs(error), abs(error - moved)) / _OUT_OF_LINE) ** 2)
        # Each way to hold out counts alike, as near as the process alone comes there.
        scale = max(float(trust @ error**2), 1e-9)
        gain += float((trust * error) @ moved) / scale
        need += (float(trust @ moved**2) + _DOUBT * len(error)) / scale
    if gain <= 0:
        return None
    return replace(_fit(networks), weight=min(gain / need, 1.0))
