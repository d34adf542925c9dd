"""What a device can do at most: no answer is below it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.features import cache_bytes, winograd
from hybridlat.model.geometry import View
from hybridlat.schema.device import STRICT

Array = NDArray[np.float64]

_MOST_OF_PEAK = 0.9
_WINOGRAD = 2.25
"""Multiplications of a 3x3 kernel over those of Winograd's way, two by two outputs at a time, which
tensor cores do not take: in FP32 a V100 runs VGG at 1.4 of its peak."""


def least_us(v: View) -> Array:
    """What no kernel is quicker than, in us: of 5,959 published latencies one is below their sum.

    Computing reaches 0.9 of the peak at most (PyTorch convolves in TF32 where a device can), and
    what the last cache cannot hold comes from memory.
    """
    device, precision = v.device, v.precision
    peak = np.maximum(v.peak_flops, device.peak("tf32") if precision == "fp32" else 0.0)
    shorter = np.maximum(peak, _WINOGRAD * device.peak(STRICT))
    compute_us = 1e6 / _MOST_OF_PEAK * v.flop / np.where(winograd(v) > 0, shorter, peak)
    size = v.size / 2 if precision == "amp" else v.size
    size = size - cache_bytes(device, -1) + v.reread_size
    memory_us = 1e6 * size / device.bandwidth_bytes_per_s
    return np.asarray(np.maximum(compute_us, memory_us))


def within_reach(each_us: Array, counts: Array, least_us: Array) -> Array:
    """Kernels' latencies with none below its least.

    A law knows sums better than their parts: the others give what is added, up to half of what they
    take above their own least.
    """
    over_us = np.maximum(each_us - least_us, 0.0)
    left = float(counts @ (each_us - least_us)) / max(float(counts @ over_us), 1e-9)
    return np.asarray(least_us + max(left, 0.5) * over_us)
