"""What the models see of a kernel: formulas over its geometry and its device, one function each.

Every feature is a function of a ``View`` (the geometry of many kernels, and the device they run
on) and says its unit. ``matrix`` computes all of them. Sizes enter as log2, since latency is near
a product of powers of them; ratios to a tile, a wave or a cache enter as they are, because there
latency jumps.

Formulas: implicit GEMM of a convolution M = N·P·Q, N = C_out, K = C_in·R·S; roofline
max(FLOP/peak, bytes/bandwidth) (Williams et al. 2009); tiles T = ceil(M/Tm)·ceil(N/Tn), waves
ceil(T/units), fill = T/(waves·units).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.graph.operators import KINDS
from hybridlat.model.geometry import PRECISION_BYTES, TILES, Array, View


@dataclass(frozen=True, slots=True)
class Feature:
    """A named column. ``unit`` is what a reader needs to check the formula."""

    name: str
    unit: str
    function: Callable[[View], Array]


FEATURES: list[Feature] = []


def _add(name: str, unit: str, function: Callable[[View], Array]) -> None:
    FEATURES.append(Feature(name, unit, function))


def _feature(unit: str) -> Callable[[Callable[[View], Array]], Callable[[View], Array]]:
    def register(function: Callable[[View], Array]) -> Callable[[View], Array]:
        _add(function.__name__, unit, function)
        return function

    return register


def _log2(values: Array) -> Array:
    return np.log2(np.maximum(values, 1e-6))


def _size(column: str) -> Callable[[View], Array]:
    return lambda v: _log2(np.maximum(getattr(v, column), 1.0))


for _name in ("batch", "c_in", "h_in", "w_in", "c_out", "h_out", "groups", "m", "n", "k", "flop",
              "run", "length"):  # fmt: skip
    _add(f"log2_{_name}", f"log2 of {_name}", _size(_name))
for _name in ("kind", "k_h", "k_w", "stride", "dilation", "pad", "activation", "has_add",
              "has_bias", "inputs", "rank", "context",
              "variant"):  # fmt: skip
    _add(_name, "as in geometry.COLUMNS", lambda v, c=_name: getattr(v, c))  # type: ignore[misc]


@_feature("log2 bytes")
def log2_weight_size(v: View) -> Array:
    """Weights at the target's precision."""
    return _log2(np.maximum(v.weight_size, 1.0))


@_feature("log2 bytes")
def log2_activation_size(v: View) -> Array:
    """Activations read and written, at the target's precision."""
    return _log2(np.maximum(v.activation_size, 1.0))


@_feature("log2 FLOP/byte")
def log2_intensity(v: View) -> Array:
    """Arithmetic intensity: work for each byte that must move at least once."""
    return _log2(np.maximum(v.flop, 1.0) / np.maximum(v.size, 1.0))


@_feature("log2 us")
def log2_roofline(v: View) -> Array:
    """max(FLOP/peak, bytes/bandwidth)."""
    return _log2(v.roofline_us)


@_feature("log2 of a ratio")
def log2_compute_to_memory(v: View) -> Array:
    """Which side of the roofline's ridge: compute time over memory time."""
    return _log2(np.maximum(v.compute_us, 1e-5) / np.maximum(v.memory_us, 1e-5))


@_feature("1 or 0")
def depthwise(v: View) -> Array:
    """A convolution whose groups hold one input channel each."""
    return np.asarray((v.groups > 1) & (v.groups == v.c_in), np.float64)


@_feature("log2 channels")
def log2_group_width(v: View) -> Array:
    """Input channels of one group."""
    return _log2(np.maximum(v.c_in / np.maximum(v.groups, 1), 1))


@_feature("log2 of a ratio")
def log2_channel_ratio(v: View) -> Array:
    """Output over input channels."""
    return _log2(np.maximum(v.c_out, 1) / np.maximum(v.c_in, 1))


@_feature("log2 of a ratio")
def log2_squareness(v: View) -> Array:
    """Rows over columns of the matrix product: tall ones waste column tiles."""
    return _log2(np.maximum(v.m, 1) / np.maximum(v.n, 1))


@_feature("log2 outputs per unit")
def log2_outputs_per_unit(v: View) -> Array:
    """Output elements for each unit of the device: few of them leave units idle."""
    return _log2(v.m * v.n * v.groups / v.device.units)


@_feature("log2 channels, 0..7")
def align_c_in(v: View) -> Array:
    """Largest power of two, up to 128, that divides the input channels."""
    return _alignment(v.c_in)


@_feature("log2 channels, 0..7")
def align_c_out(v: View) -> Array:
    """Largest power of two, up to 128, that divides the output channels."""
    return _alignment(v.c_out)


def _alignment(channels: Array) -> Array:
    whole = np.maximum(channels, 1).astype(np.int64) & 127
    lowest = whole & -whole
    return np.where(lowest == 0, 7.0, np.log2(np.maximum(lowest, 1)))


@_feature("share, 0..1")
def pad_waste_16(v: View) -> Array:
    """Part of the work lost when channels are padded up to blocks of 16."""
    used = np.ceil(v.c_in / 16) * np.ceil(v.c_out / 16) * 256
    return np.asarray(1 - v.c_in * v.c_out / np.maximum(used, 1), dtype=np.float64)


@_feature("share, 0..1")
def useful_64_c_out(v: View) -> Array:
    """Share of the lanes that hold output channels, in sets of four vectors of 16 (AVX-512)."""
    return np.asarray(v.c_out / (64 * np.ceil(np.maximum(v.c_out, 1) / 64)), np.float64)


@_feature("share, 0..1")
def useful_6_w_out(v: View) -> Array:
    """Share of the output positions in full groups of six along a row: a register block."""
    return np.asarray(v.w_out / (6 * np.ceil(np.maximum(v.w_out, 1) / 6)), np.float64)


@_feature("ratio")
def padding_to_width(v: View) -> Array:
    """Padding over the width of the output: positions at borders are often computed one by one."""
    return np.asarray(v.pad / np.maximum(v.w_out, 1), np.float64)


@_feature("log2 of a ratio")
def log2_weight_to_last_cache(v: View) -> Array:
    """Weights over the last cache: above 0 they are read from memory each time."""
    return _log2(np.maximum(v.weight_size, 1) / _cache(v, -1))


@_feature("log2 of a ratio")
def log2_size_to_last_cache(v: View) -> Array:
    """Everything touched over the last cache."""
    return _log2(np.maximum(v.size, 1) / _cache(v, -1))


@_feature("log2 of a ratio")
def log2_row_to_first_cache(v: View) -> Array:
    """The input rows under one row of taps over the nearest cache."""
    item = np.where(v.item_bytes == 4.0, PRECISION_BYTES.get(v.precision, 4.0), v.item_bytes)
    return _log2(np.maximum(v.k_h * v.w_in * v.c_in * item, 1) / _cache(v, 0))


def _cache(v: View, level: int) -> float:
    return float(v.device.cache_bytes[level]) if v.device.cache_bytes else 2.0**20


@_feature("share, 0..1")
def winograd(v: View) -> Array:
    """1 where a 3x3 kernel with stride 1 allows Winograd's shorter product."""
    fits = (v.k_h == 3) & (v.k_w == 3) & (v.stride == 1) & (v.dilation == 1) & (v.groups == 1)
    return np.asarray(fits & (v.kind == KINDS["conv"]), np.float64)


def _tile_features(tile: tuple[int, int]) -> None:
    tag = f"{tile[0]}x{tile[1]}"

    def waves(v: View) -> Array:
        return _log2(v.waves(tile))

    def fill(v: View) -> Array:
        tiles = v.tiles(tile)
        return tiles / (v.waves(tile) * v.device.units)

    def useful(v: View) -> Array:
        return v.m * v.n * v.groups / (v.tiles(tile) * tile[0] * tile[1])

    def wave_time(v: View) -> Array:
        return _log2(v.wave_us(tile) / v.roofline_us)

    _add(f"log2_waves_{tag}", "log2 waves of tiles over the device's units", waves)
    _add(f"fill_{tag}", "share of the last wave's units in use, all waves", fill)
    _add(f"useful_{tag}", "share of the tiles' area that is output", useful)
    _add(f"log2_wave_time_{tag}", "log2 of wave time over roofline", wave_time)


for _tile in TILES:
    _tile_features(_tile)


@_feature("log2 of a ratio")
def log2_best_wave_time(v: View) -> Array:
    """The fastest tile's wave time over the roofline: the staircase an autotuner walks down."""
    times = np.stack([v.wave_us(tile) for tile in TILES])
    return _log2(np.maximum(times.min(axis=0), 1e-3) / v.roofline_us)


NAMES: tuple[str, ...] = tuple(feature.name for feature in FEATURES)


def matrix(view: View, into: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """All features of every kernel, one row each, columns as ``NAMES``.

    ``into`` is an array with room for them (further columns are left alone).
    """
    result = np.empty((len(view.m), len(FEATURES)), np.float32) if into is None else into
    for column, feature in enumerate(FEATURES):
        result[:, column] = feature.function(view)
    return result


def feature_names(ops: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of a model's feature matrix: the formulas, one per known operator, the
    prior model and the Gaussian process."""
    return (*NAMES, *(f"op={op}" for op in ops), "prior", "surface")
