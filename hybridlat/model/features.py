"""What the models see of a kernel: formulas over its geometry and its device.

Sizes enter as log2, since latency is near a product of powers of them; ratios to a tile, a wave or
a cache enter as they are, because there latency jumps.

Formulas: implicit GEMM of a convolution M = N·P·Q, N = C_out, K = C_in·R·S; roofline
max(FLOP/peak, bytes/bandwidth) (Williams et al. 2009); tiles T = ceil(M/Tm)·ceil(N/Tn), waves
ceil(T/units), fill = T/(waves·units).
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter

import numpy as np

from hybridlat.graph.operators import KINDS
from hybridlat.model.geometry import TILES, Array, Float32, View, cache_bytes

Formula = Callable[[View], Array]


def _log2(values: Array) -> Array:
    return np.log2(np.maximum(values, 1e-6))


def _size(column: str) -> Formula:
    return lambda v: _log2(np.maximum(getattr(v, column), 1.0))


def alignment(channels: Array) -> Array:
    """Log2 of the largest power of two, up to 128, that divides the channels."""
    whole = np.maximum(channels, 1).astype(np.int64) & 127
    lowest = whole & -whole
    return np.where(lowest == 0, 7.0, np.log2(np.maximum(lowest, 1)))


def winograd(v: View) -> Array:
    """1 where Winograd's shorter product serves, a 3x3 kernel with stride 1, else 0."""
    fits = (v.k_h == 3) & (v.k_w == 3) & (v.stride == 1) & (v.dilation == 1) & (v.groups == 1)
    return np.asarray(fits & (v.kind == KINDS["conv"]), np.float64)


_OF_TILE: list[tuple[str, str, Callable[[tuple[int, int], View], Array]]] = [
    ("log2_waves", "log2 waves of tiles over the device's units",
     lambda tile, v: _log2(v.waves(tile))),
    ("fill", "share of the last wave's units in use, all waves",
     lambda tile, v: v.tiles(tile) / (np.maximum(v.waves(tile), 1) * v.device.units)),
    ("useful", "share of the tiles' area that is output",
     lambda tile, v: v.m * v.n * v.groups / (np.maximum(v.tiles(tile), 1) * tile[0] * tile[1])),
    ("log2_wave_time", "log2 of wave time over roofline",
     lambda tile, v: _log2(v.wave_us(tile) / v.roofline_us)),
]  # fmt: skip
_SIZES = (
    "batch", "c_in", "h_in", "w_in", "c_out", "h_out", "groups", "m", "n", "k", "flop", "run",
    "length",
)  # fmt: skip
_AS_THEY_ARE = (
    "kind", "k_h", "k_w", "stride", "dilation", "pad", "activation", "has_add", "has_bias",
    "inputs", "rank", "context", "variant",
)  # fmt: skip
FEATURES: list[tuple[str, str, Formula]] = [
    *((f"log2_{name}", f"log2 of {name}", _size(name)) for name in _SIZES),
    *((name, "as in geometry.COLUMNS", attrgetter(name)) for name in _AS_THEY_ARE),
    ("log2_weight_size", "log2 bytes of weights at the target's precision",
     lambda v: _log2(np.maximum(v.moved_weight_bytes, 1.0))),
    ("log2_activation_size", "log2 bytes read and written at the target's precision",
     lambda v: _log2(np.maximum(v.moved_activation_bytes, 1.0))),
    ("log2_intensity", "log2 FLOP/byte: work for each byte that must move at least once",
     lambda v: _log2(np.maximum(v.flop, 1.0) / np.maximum(v.moved_bytes, 1.0))),
    ("log2_roofline", "log2 us: max(FLOP/peak, bytes/bandwidth)", lambda v: _log2(v.roofline_us)),
    ("log2_compute_to_memory", "log2 of compute time over memory time: the side of the ridge",
     lambda v: _log2(np.maximum(v.compute_us, 1e-5) / np.maximum(v.memory_us, 1e-5))),
    ("depthwise", "1 or 0: a convolution whose groups hold one input channel each",
     lambda v: np.asarray((v.groups > 1) & (v.groups == v.c_in), np.float64)),
    ("log2_group_width", "log2 input channels of one group",
     lambda v: _log2(np.maximum(v.c_in / np.maximum(v.groups, 1), 1))),
    ("log2_channel_ratio", "log2 of output over input channels",
     lambda v: _log2(np.maximum(v.c_out, 1) / np.maximum(v.c_in, 1))),
    ("log2_squareness", "log2 of rows over columns of the product: tall ones waste column tiles",
     lambda v: _log2(np.maximum(v.m, 1) / np.maximum(v.n, 1))),
    ("log2_outputs_per_unit", "log2 output elements for each unit of the device",
     lambda v: _log2(v.m * v.n * v.groups / v.device.units)),
    ("align_c_in", "log2 channels, 0..7", lambda v: alignment(v.c_in)),
    ("align_c_out", "log2 channels, 0..7", lambda v: alignment(v.c_out)),
    ("pad_waste_16", "share of the work lost when channels are padded to blocks of 16",
     lambda v: 1 - v.c_in * v.c_out
     / np.maximum(np.ceil(v.c_in / 16) * np.ceil(v.c_out / 16) * 256, 1)),
    ("useful_64_c_out", "share of lanes with output channels, in four vectors of 16 (AVX-512)",
     lambda v: v.c_out / (64 * np.ceil(np.maximum(v.c_out, 1) / 64))),
    ("useful_6_w_out", "share of output positions in groups of six along a row: a register block",
     lambda v: v.w_out / (6 * np.ceil(np.maximum(v.w_out, 1) / 6))),
    ("padding_to_width", "ratio to the output's width: borders are often computed one by one",
     lambda v: np.asarray(v.pad / np.maximum(v.w_out, 1), np.float64)),
    ("log2_weight_to_last_cache", "log2 of a ratio: above 0 weights are read from memory each time",
     lambda v: _log2(np.maximum(v.moved_weight_bytes, 1) / cache_bytes(v.device, -1))),
    ("log2_size_to_last_cache", "log2 of everything touched over the last cache",
     lambda v: _log2(np.maximum(v.moved_bytes, 1) / cache_bytes(v.device, -1))),
    ("log2_row_to_first_cache", "log2 of the input rows under one row of taps over the first cache",
     lambda v: _log2(np.maximum(v.k_h * v.w_in * v.c_in * v.moved_item_bytes, 1)
                     / cache_bytes(v.device, 0))),
    ("winograd", "1 or 0: a 3x3 kernel with stride 1 allows Winograd's shorter product", winograd),
    *((f"{name}_{tile[0]}x{tile[1]}", unit, partial(formula, tile))
      for tile in TILES for name, unit, formula in _OF_TILE),
    ("log2_best_wave_time", "log2 of the fastest tile's wave time over the roofline",
     lambda v: _log2(
         np.maximum(np.min([v.wave_us(t) for t in TILES], axis=0), 1e-3) / v.roofline_us)),
]  # fmt: skip
"""The name of each feature, its unit (what a reader needs to check the formula), its formula."""
NAMES: tuple[str, ...] = tuple(name for name, _, _ in FEATURES)


def matrix(view: View, further: int = 0) -> Float32:
    """All features of every kernel, columns as ``NAMES``, and so many ``further`` ones of zeros."""
    result = np.zeros((len(view.m), len(FEATURES) + further), np.float32)
    for column, (_, _, formula) in enumerate(FEATURES):
        result[:, column] = formula(view)
    return result


def feature_names(ops: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of a model's feature matrix: formulas, known operators, prior model and process."""
    return (*NAMES, *(f"op={op}" for op in ops), "prior", "surface")
