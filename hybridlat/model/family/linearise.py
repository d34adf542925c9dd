"""A network as one linear equation of coefficients, near a guess: equations (3) and (4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hybridlat.model.family.embedding import Hyper
from hybridlat.model.family.observations import HOST_ROW, KernelSet
from hybridlat.model.family.tasks import Array, Float32

LOWEST = -1.3
"""Bound of a kernel's log-ratio f to its base: no kernel was seen below it."""


class LinearNetwork(NamedTuple):
    """A network near a guess f⁰ of its rows' log-ratios (4).

    ``log_us`` is y⁰; ``shares`` are s, the slopes of y by each row's f; ``uses_us`` is the time of
    all uses of every row, of a host beside the device what is waited for it.
    """

    log_us: float
    shares: Array
    uses_us: Array

    def equation(self, points: Float32) -> Float32:
        """z, of the rows' ``points`` φ."""
        return np.asarray(self.shares.astype(np.float32) @ points)

    def residual(self, log_us: float, ratios: Array) -> float:
        """r of an observed ``log_us``, with f⁰ = ``ratios``, or what f⁰ has beyond a mean."""
        return float(log_us - self.log_us + self.shares @ ratios)


def linearise(kernels: KernelSet, base_us: Array, ratios: Array, hyper: Hyper) -> LinearNetwork:
    """The network at f⁰ = ``ratios``, which count from ``LOWEST`` to ``hyper.highest``."""
    uses_us = kernels.counts * base_us * np.exp(np.clip(ratios, LOWEST, hyper.highest))
    if (power := hyper.overlap) > 1:
        device_us = float(uses_us.sum() - uses_us[HOST_ROW])
        whole_us = (device_us**power + uses_us[HOST_ROW] ** power) ** (1 / power)
        uses_us[HOST_ROW] = whole_us - device_us
    total_us = float(uses_us.sum())
    shares = uses_us / total_us
    if power > 1:
        device_share = 1 - float(shares[HOST_ROW])
        shares *= device_share ** (power - 1)
        shares[HOST_ROW] = 1 - device_share**power
    return LinearNetwork(float(np.log(total_us)), shares, uses_us)
