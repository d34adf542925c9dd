"""The logarithm of a sum of kernels, and its slope: what makes a network a linear equation."""

from __future__ import annotations

import numpy as np

from hybridlat.model.family.embedding import Hyper
from hybridlat.model.family.observations import HOST_ROW, KernelSet
from hybridlat.model.family.tasks import Array

LOWEST = -1.3
"""Bound of a kernel's log-ratio to its base: no kernel was seen below it."""


def log_sum(kernels: KernelSet, base_us: Array, ratios: Array, hyper: Hyper) -> tuple[float, Array]:
    """(ln of the network's latency in us (3), its slope by each row's log-ratio (4))."""
    each = each_us(kernels, base_us, ratios, hyper)
    total = float(each.sum())
    share = each / total
    if hyper.overlap > 1:
        device = 1 - float(share[HOST_ROW])
        share *= device ** (hyper.overlap - 1)
        share[HOST_ROW] = 1 - device**hyper.overlap
    return float(np.log(total)), np.asarray(share)


def each_us(kernels: KernelSet, base_us: Array, ratios: Array, hyper: Hyper) -> Array:
    """Time of all uses of every row, in us; of a host beside the device, what is waited for it.

    Log-ratios count from ``LOWEST`` to ``highest``.
    """
    each = kernels.counts * base_us * np.exp(np.clip(ratios, LOWEST, hyper.highest))
    if hyper.overlap > 1:
        device = float(each.sum() - each[HOST_ROW])
        whole = (device**hyper.overlap + each[HOST_ROW] ** hyper.overlap) ** (1 / hyper.overlap)
        each[HOST_ROW] = whole - device
    return np.asarray(each)
