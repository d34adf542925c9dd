"""Descriptors of a kernel: formulas over its geometry and its device, x of equation (1).

In octaves, scaled so that 1 is a long way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.family.physics import (
    CLASSES,
    PARTS,
    Array,
    KernelTable,
    parts_us,
    view_of,
)
from hybridlat.model.features import alignment, cache_bytes
from hybridlat.model.kernel_attributes import CHANNELS_LAST
from hybridlat.schema.device import Device

DESCRIPTORS: tuple[str, ...] = (
    "m", "n", "k", "groups", "group_width", "size", "roofline", "intensity", "taps", "asymmetric",
    "stride", "dilated", "activation", "adds", "batch", "height", "c_in", "c_out", "fill_64",
    "fill_128", "outputs_per_unit", "align_in", "align_out", "align_group", "weight_share",
    "to_last_cache", "inputs", "run", "length", "balance",
    "units", "wide",
)  # fmt: skip
"""Columns of ``describe`` that say how alike kernels are, in order."""
LAUNCH = len(DESCRIPTORS) + PARTS.index("launch")
"""The column that holds the share of its base that launching a kernel takes."""
LAYOUT = len(DESCRIPTORS) + len(PARTS)
"""The last column, behind the parts of the base as shares of it (0..1): whether channels are
innermost."""
_MADE_FOR = 2.0 ** np.arange(3, 12)
_HOST_US = 60.0
_COPY_BYTES_PER_US = 8e3
"""Starting points of what a run and a copied byte cost; fitting corrects them."""


def _octaves(values: Array) -> Array:
    return np.log2(np.maximum(values, 1.0))


def _alignment(channels: Array) -> Array:
    """Largest power of two, up to 16, that divides the channels, as a share of four octaves."""
    return np.minimum(alignment(channels), 4.0) / 4.0


def describe(table: KernelTable, device: Device, precision: str) -> tuple[Array, Array]:
    """(rows, base latency in us) of every kernel on a device.

    A row holds ``DESCRIPTORS``, ``PARTS`` and, at ``LAYOUT``, whether channels are innermost. The
    base is the sum of its parts (``parts_us``). Two rows follow the kernels': what the run costs
    beside them, and copying the network's inputs and outputs from and to the host.
    """
    count = len(table.values)
    v = view_of(table, device, precision)
    convolves = (table.classes <= 3).astype(np.float64)
    group_width = np.maximum(v.c_in / np.maximum(v.groups, 1), 1)
    ratio = np.log2(np.maximum(v.compute_us, 1e-5) / np.maximum(v.memory_us, 1e-5))
    cache = cache_bytes(device, -1)
    balance = device.peak(precision) / device.bandwidth_bytes_per_s

    # Grouped kernels of channels innermost are made for groups of 8, 16, 32 ... channels.
    whole = (table.classes == CLASSES.index("conv grouped")) & np.isin(group_width, _MADE_FOR)

    def fill(tile: int) -> Array:
        tiles = v.tiles((tile, tile))
        return 0.7 * convolves * tiles / np.maximum(v.waves((tile, tile)) * device.units, 1.0)

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
        "align_group": 0.5 * convolves * _alignment(group_width) + 0.5 * whole,
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
    rows = np.zeros((count + 2, LAYOUT + 1))
    rows[:count, : len(DESCRIPTORS)] = np.column_stack([columns[name] for name in DESCRIPTORS])
    parts = parts_us(table, v)
    kernels_us = parts.sum(axis=1)
    rows[:count, len(DESCRIPTORS) : LAYOUT] = parts / kernels_us[:, None]
    rows[:count, LAYOUT] = v.variant >= CHANNELS_LAST
    copy_us = max(table.copied_bytes, 1.0) / _COPY_BYTES_PER_US
    return rows, np.append(kernels_us, [_HOST_US, copy_us])


def groups_of(descriptors: NDArray[np.float32]) -> Array:
    """The groups of convolutions, of rows of ``describe``."""
    return np.exp2(2.0 * descriptors[:, DESCRIPTORS.index("groups")].astype(np.float64))
