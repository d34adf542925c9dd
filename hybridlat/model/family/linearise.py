"""A network as one linear equation of coefficients, near a guess: equations (3) and (4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.observations import HOST_ROW, KernelSet, task_base
from hybridlat.model.family.tasks import Array, Float32, Task


class LinearNetwork(NamedTuple):
    """A network near a guess f⁰ of its rows' log-ratios, as a linear equation (4).

    ``log_us`` is y⁰; ``shares`` are s, the slopes of y by each row's f; ``equation`` is z.
    ``uses_us`` is the time of all uses of every row: of a host beside the device, what is waited
    for it.
    """

    log_us: float
    shares: Array
    equation: Float32
    uses_us: Array

    def residual(self, log_us: float, ratios: Array) -> float:
        """r of an observed ``log_us``; ``ratios`` are f⁰, or what f⁰ has beyond a mean."""
        return float(log_us - self.log_us + self.shares @ ratios)


class TaskNetwork(NamedTuple):
    """A network on a task: rows of kernels, their bases b there, and their points φ."""

    kernels: KernelSet
    task: Task
    base_us: Array
    points: Float32

    @classmethod
    def of(
        cls, kernels: KernelSet, task: Task, embedding: Embedding, points: Float32 | None = None
    ) -> TaskNetwork:
        """``points`` where they are at hand."""
        points = embedding(kernels.descriptors, kernels.classes) if points is None else points
        return cls(kernels, task, task_base(kernels, task), points)

    def linearise(self, ratios: Array, hyper: Hyper) -> LinearNetwork:
        """Near f⁰ = ``ratios``, which count from ``hyper.lowest`` to ``.highest`` alone."""
        ratios = np.clip(ratios, hyper.lowest, hyper.highest)
        uses_us, power = self.kernels.counts * self.base_us * np.exp(ratios), hyper.overlap
        if power > 1:
            device_us = float(uses_us.sum() - uses_us[HOST_ROW])
            whole_us = (device_us**power + uses_us[HOST_ROW] ** power) ** (1 / power)
            uses_us[HOST_ROW] = whole_us - device_us
        total_us = float(uses_us.sum())
        shares = uses_us / total_us
        if power > 1:
            device_share = 1 - float(shares[HOST_ROW])
            shares *= device_share ** (power - 1)
            shares[HOST_ROW] = 1 - device_share**power
        equation = shares.astype(np.float32) @ self.points
        return LinearNetwork(float(np.log(total_us)), shares, equation, uses_us)
