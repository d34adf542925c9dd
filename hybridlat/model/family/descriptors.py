"""What says how alike two kernels are: their sizes in octaves, scaled so that 1 is a long way.

A descriptor is a formula over a kernel's geometry and its device. The scale of each is refined by
the lengths that fitting finds (:mod:`.tuning`). Formulas as in :mod:`hybridlat.model.features`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.kernels import CLASSES, COPY, HOST, KernelTable
from hybridlat.model.geometry import Geometry
from hybridlat.model.kernel_view import View
from hybridlat.schema.device import Device

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

DESCRIPTORS: tuple[str, ...] = (
    "m", "n", "k", "groups", "group_width", "size", "roofline", "intensity", "taps", "asymmetric",
    "stride", "dilated", "activation", "adds", "batch", "height", "c_in", "c_out", "fill_64",
    "fill_128", "outputs_per_unit", "align_in", "align_out", "align_group", "weight_share",
    "to_last_cache", "inputs", "run", "length", "balance",
    "units", "wide",
)  # fmt: skip
"""Columns of ``describe`` that say how alike kernels are, in order."""
PARTS: tuple[str, ...] = ("compute", "memory", "launch")
"""Columns that follow them: the parts of the base latency, as shares of it (0..1)."""
_LAUNCH_US = 4.0
_LAUNCH_OF_SHEET = 1.6  # a launch into a busy stream, beside the enqueued ones of a data sheet
_HOST_US = 60.0
_COPY_BYTES_PER_US = 8e3
"""Starting points of what a kernel launch, a run and a copied byte cost; fitting corrects them."""
_DEPTHWISE_SLOWDOWN = 4.0
"""A depthwise convolution has no matrix product for tensor cores; ready-made kernels reach about a
quarter of what the plain FP32 units can do."""
_KEPT_SHARE = 0.5
"""How much of what would fit into the last cache a kernel finds there of the one before it. A large
cache is what tells an RTX 4090 from a 3090 in memory-bound networks: both stand in tables of
PyTorch, and with nothing kept each one's zero-shot latencies of the other are off by a tenth."""
_TILE = (32, 32)
_WAVE_SHARE = 0.5
"""How far the compute time of a kernel with few output tiles is from filling all units towards what
whole waves of small tiles take: 0 knows no idle units, 1 has no way round them (split sums)."""
_DEFAULT_CACHE_BYTES = 2.0**20


def _octaves(values: Array) -> Array:
    return np.log2(np.maximum(values, 1.0))


def _alignment(channels: Array) -> Array:
    """Largest power of two, up to 16, that divides the channels, as a share of four octaves."""
    whole = np.maximum(channels, 1).astype(np.int64) & 127
    lowest = whole & -whole
    octaves = np.where(lowest == 0, 7.0, np.log2(np.maximum(lowest, 1)))
    return np.minimum(octaves, 4.0) / 4.0


def describe(table: KernelTable, device: Device, precision: str) -> tuple[Array, Array]:
    """(rows of ``DESCRIPTORS`` and ``PARTS``, base latency in us) of every kernel on a device.

    The base is compute and memory time, one after the other as kernels that overlap them badly have
    it, and a launch. Kernels with few output tiles leave units idle. Depthwise convolutions compute
    outside the tensor cores, and what the last cache keeps need not come from memory. Two rows
    follow the kernels': what the run costs beside them, and copying the network's inputs and
    outputs from and to the host.
    """
    count = len(table.values)
    v = View(Geometry(table.values, np.arange(count), count, ("",)), device, precision)
    convolves = (table.classes <= 3).astype(np.float64)
    group_width = np.maximum(v.c_in / np.maximum(v.groups, 1), 1)
    ratio = np.log2(np.maximum(v.compute_us, 1e-5) / np.maximum(v.memory_us, 1e-5))
    cache = float(device.cache_bytes[-1]) if device.cache_bytes else _DEFAULT_CACHE_BYTES
    balance = device.peak(precision) / device.bandwidth_bytes_per_s

    def fill(tile: int) -> Array:
        tiles = v.tiles((tile, tile))
        return 0.7 * convolves * tiles / np.maximum(v.waves((tile, tile)) * device.units, 1.0)

    deep = table.classes == CLASSES.index("conv depthwise")
    slower = _DEPTHWISE_SLOWDOWN * device.peak(precision) / device.peak("fp32")
    idle_us = _WAVE_SHARE * np.maximum(v.wave_us(_TILE) - v.compute_us, 0.0)
    tiled = (table.classes <= CLASSES.index("matmul")) & ~deep
    compute_us = v.compute_us * np.where(deep, slower, 1.0) + np.where(tiled, idle_us, 0.0)
    kept = _KEPT_SHARE * np.minimum(v.activation_size, cache) / np.maximum(v.size, 1)
    memory_us = v.memory_us * (1 - kept)
    launch_us = _LAUNCH_OF_SHEET * device.launch_us if device.launch_us else _LAUNCH_US
    columns = {
        "m": _octaves(v.m) / 3,
        "n": _octaves(v.n) / 2,
        "k": _octaves(v.k) / 2,
        "groups": _octaves(v.groups) / 2,
        "group_width": _octaves(group_width) / 2,
        "size": _octaves(v.size) / 3,
        "roofline": np.log2(v.roofline_us + 1.0) / 2,
        "intensity": np.clip(ratio, -6, 6) / 2,
        "taps": _octaves(v.k_h * v.k_w) / 1.5,
        "asymmetric": (v.k_h != v.k_w).astype(np.float64),
        "stride": 0.7 * (v.stride - 1),
        "dilated": (v.dilation > 1).astype(np.float64),
        "activation": 0.35 * v.activation,
        "adds": 0.4 * v.has_add,
        "batch": _octaves(v.batch) / 3,
        "height": _octaves(v.h_out) / 2,
        "c_in": _octaves(v.c_in) / 2.5,
        "c_out": _octaves(v.c_out) / 2.5,
        "fill_64": fill(64),
        "fill_128": fill(128),
        "outputs_per_unit": _octaves(v.m * v.n * v.groups / device.units) / 3,
        "align_in": 0.5 * convolves * _alignment(v.c_in),
        "align_out": 0.5 * convolves * _alignment(v.c_out),
        "align_group": 0.5 * convolves * _alignment(group_width),
        "weight_share": 0.7 * v.weight_size / np.maximum(v.size, 1),
        "to_last_cache": np.clip(np.log2(np.maximum(v.size, 1) / cache), -6, 6) / 3,
        "inputs": _octaves(v.inputs) / 1.5,
        "run": _octaves(v.run) / 4,
        "length": _octaves(v.length) / 3,
        "balance": np.full(count, np.log2(balance) / 3),
        # Libraries' ready-made depthwise kernels end at 7x7: wider ones are another matter.
        "wide": 3.0 * (np.maximum(v.k_h, v.k_w) > 7) * convolves,
        "units": np.full(count, np.log2(device.units) / 3),
    }
    rows = np.zeros((count + 2, len(DESCRIPTORS) + len(PARTS)))
    rows[:count, : len(DESCRIPTORS)] = np.column_stack([columns[name] for name in DESCRIPTORS])
    parts_us = np.column_stack([compute_us, memory_us, np.full(count, launch_us)])
    kernels_us = parts_us.sum(axis=1)
    rows[:count, len(DESCRIPTORS) :] = parts_us / kernels_us[:, None]
    base_us = np.concatenate(
        [
            kernels_us,
            [_HOST_US, max(table.copied_bytes, 1.0) / _COPY_BYTES_PER_US],
        ]
    )
    return rows, base_us


def groups_of(descriptors: NDArray[np.float32]) -> Array:
    """The groups of convolutions, of rows of ``describe``."""
    return np.exp2(2.0 * descriptors[:, DESCRIPTORS.index("groups")].astype(np.float64))


def classes_and_counts(
    table: KernelTable,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], Array]:
    """Classes and counts in the order of ``describe``'s rows."""
    return np.append(table.classes, [HOST, COPY]), np.append(table.counts, [1.0, 1.0])
