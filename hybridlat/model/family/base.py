"""What a kernel takes before anything was measured: compute, memory and launch, by a data sheet.

The family model learns how far kernels are from it. What it says of a device left out is only as
good as what this says of the differences between devices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.kernels import CLASSES, KernelTable
from hybridlat.model.kernel_view import View
from hybridlat.schema.device import Device

Array = NDArray[np.float64]

PARTS: tuple[str, ...] = ("compute", "memory", "launch")
"""The columns of ``parts_us``."""
_LAUNCH_US = 4.0
_LAUNCH_OF_SHEET = 2.8  # a launch into a busy stream, beside the enqueued ones of a data sheet
_DEPTHWISE_SLOWDOWN = 4.0
"""A depthwise convolution has no matrix product for tensor cores; ready-made kernels reach about a
quarter of what the plain FP32 units can do."""
_KEPT_SHARE = 0.5
"""How much of what would fit into the last cache a kernel finds there of the one before it. A large
cache is what tells an RTX 4090 from a 3090 in memory-bound networks: both stand in tables of
PyTorch, and with nothing kept each one's zero-shot latencies of the other are off by a tenth."""
_TILES = (((32, 32), 0.7), ((64, 64), 0.9), ((128, 128), 1.0))
"""Output tiles that kernels are made for, and how near to the peak each comes: a small tile reads
more for what it computes, a large one leaves more units idle."""
_IDLE_SHARE = 0.8
"""How much of what the best of these tiles takes beyond the peak is believed: 0 knows no idle
units, 1 has no way round them (split sums)."""
_MEMORY_POWER = 0.5
"""What reading and writing at full bandwidth draws, of the power limit."""
_DEFAULT_CACHE_BYTES = 2.0**20


def last_cache_bytes(device: Device) -> float:
    """The cache in front of the memory; a common size where the sheet has none."""
    return float(device.cache_bytes[-1]) if device.cache_bytes else _DEFAULT_CACHE_BYTES


def parts_us(table: KernelTable, view: View) -> Array:
    """Compute, memory and launch time of every kernel (kernels x ``PARTS``) in its view.

    They follow each other, as in kernels that overlap them badly. Kernels with few output tiles
    leave units idle. Depthwise convolutions compute outside the tensor cores, and what the last
    cache keeps need not come from memory.
    """
    device, precision = view.device, view.precision
    deep = table.classes == CLASSES.index("conv depthwise")
    tiled = (table.classes <= CLASSES.index("matmul")) & ~deep
    best_us = np.min([view.wave_us(tile) / near for tile, near in _TILES], axis=0)
    idle_us = np.where(tiled, _IDLE_SHARE * np.maximum(best_us - view.compute_us, 0.0), 0.0)
    slower = _DEPTHWISE_SLOWDOWN * device.peak(precision) / device.peak("fp32")
    kept = _KEPT_SHARE * np.minimum(view.activation_size, last_cache_bytes(device))
    memory_us = view.memory_us * (1 - kept / np.maximum(view.size, 1))
    launch_us = _LAUNCH_OF_SHEET * device.launch_us if device.launch_us else _LAUNCH_US
    at_peak_us = np.where(deep, 0.0, view.compute_us)
    beside_us = np.where(deep, slower * view.compute_us, idle_us)
    slowdown = power_slowdown(
        float(table.counts @ at_peak_us),
        float(table.counts @ memory_us),
        float(table.counts @ (beside_us + launch_us)),
        device.sustained_share(precision),
    )
    compute_us = slowdown * at_peak_us + beside_us
    return np.column_stack([compute_us, memory_us, np.full(len(table.values), launch_us)])


def power_slowdown(
    compute_us: float, memory_us: float, other_us: float, sustained_share: float
) -> float:
    """How much longer a network's computing takes because power is limited (1 or more).

    A device that keeps up only a share of its peak in long matrix products is held back by its
    power limit, which is on the mean over milliseconds: so over all kernels of a network, not over
    each. Computing takes energy by its operations, ``compute_us / sustained_share`` of time at the
    limit, and memory its own; a network whose other kernels (``other_us``) take long enough is not
    slowed down at all.
    """
    if compute_us <= 0 or sustained_share >= 1:
        return 1.0
    energy_us = compute_us / sustained_share + _MEMORY_POWER * memory_us
    return max(1.0, (energy_us - memory_us - other_us) / compute_us)
