"""The kernels that features are computed of: geometry columns, and what several formulas share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hybridlat.graph.operators import KINDS
from hybridlat.model.geometry import COLUMN, Geometry
from hybridlat.schema.device import Device

Array = NDArray[np.float64]
TILES: tuple[tuple[int, int], ...] = (
    (32, 32),
    (64, 32),
    (64, 64),
    (128, 64),
    (128, 128),
    (256, 128),
)
"""Output tiles (rows, columns) that GEMM and convolution kernels of GPUs are commonly built for."""
PRECISION_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0}
_FLOOR_US = 1e-3


class View:
    """Geometry columns as attributes, and the quantities that several features share."""

    def __init__(self, geometry: Geometry, device: Device, precision: str) -> None:
        self._values = geometry.values
        self.device = device
        self.precision = precision
        self._by_tile: dict[tuple[str, tuple[int, int]], Array] = {}

    def __getattr__(self, name: str) -> Array:
        try:
            column = np.ascontiguousarray(self._values[:, COLUMN[name]])
        except KeyError:
            raise AttributeError(name) from None
        self.__dict__[name] = column  # the next access finds it without coming here
        return column

    @cached_property
    def _shrink(self) -> Array:
        """The file's FP32 tensors become smaller where the engine runs at lower precision."""
        wanted = PRECISION_BYTES.get(self.precision, 4.0)
        return np.where(self.item_bytes == 4.0, wanted / 4.0, 1.0)

    @cached_property
    def weight_size(self) -> Array:
        return self.weight_bytes * self._shrink

    @cached_property
    def activation_size(self) -> Array:
        return (self.in_bytes + self.out_bytes) * self._shrink

    @cached_property
    def size(self) -> Array:
        return self.weight_size + self.activation_size

    @cached_property
    def peak_flops(self) -> Array:
        """FLOP per second: at the target's precision, of kernels of bytes at that of 8 bits.

        A quantised file says so itself, by the types of its tensors.
        """
        usual, narrow = self.device.peak(self.precision), self.device.peak("int8")
        return np.where(self.item_bytes == 1.0, max(narrow, usual), usual)

    @cached_property
    def compute_us(self) -> Array:
        return self.flop / self.peak_flops * 1e6

    @cached_property
    def memory_us(self) -> Array:
        return self.size / self.device.bandwidth_bytes_per_s * 1e6

    @cached_property
    def roofline_us(self) -> Array:
        return np.maximum(np.maximum(self.compute_us, self.memory_us), _FLOOR_US)

    @cached_property
    def contracts(self) -> NDArray[np.bool_]:
        return self.kind <= KINDS["matmul"]

    def tiles(self, tile: tuple[int, int]) -> Array:
        """Output tiles, those of all groups together."""

        def count() -> Array:
            return np.ceil(self.m / tile[0]) * np.ceil(self.n / tile[1]) * self.groups

        return self._once("tiles", tile, count)

    def waves(self, tile: tuple[int, int]) -> Array:
        """How often all units of the device must work to get through the tiles."""
        return self._once("waves", tile, lambda: np.ceil(self.tiles(tile) / self.device.units))

    def wave_us(self, tile: tuple[int, int]) -> Array:
        """Every wave takes as long as one full tile on one unit at its share of the peak."""
        unit_peak = self.peak_flops / self.device.units
        full = 2e6 * tile[0] * tile[1] / unit_peak
        return self._once("wave_us", tile, lambda: self.waves(tile) * self.k * full)

    def _once(self, what: str, tile: tuple[int, int], formula: Callable[[], Array]) -> Array:
        values = self._by_tile.get((what, tile))
        if values is None:
            values = self._by_tile[what, tile] = formula()
        return values
