"""The device's roofline: a last guess at a cell, and the bound that every estimate is held to.

A kernel takes max(FLOP / peak, bytes / bandwidth) of the data sheet, and the launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.composition import normal_quantile
from hybridlat.estimate.predict.source import CellLatency, NetworkCells
from hybridlat.model.geometry import View, geometry
from hybridlat.schema.device import Device

LAUNCH_US = {"gpu": 4.0, "cpu": 0.1}
"""Of a kernel, where the data sheet names no figure."""
ERROR = (-1.6, 0.7)
"""Between these lie nine of ten ln(measured / roofline with launches) of the 10,713 cells and
random kernels of the shipped CPU pack."""
SPREAD = (ERROR[1] - ERROR[0]) / 2 / normal_quantile(0.9)
MOST_RATIO = 10.0
"""Estimates farther than this from the roofline, either way, are warned of."""


def roofline_us(texts: Sequence[str], device: Device, precision: str) -> NDArray[np.float64]:
    """What the device needs for each cell at best, launches included, in µs."""
    cells = geometry(texts)
    launch = device.launch_us or LAUNCH_US[device.kind]
    kernels_us = View(cells, device, precision).roofline_us + launch
    return np.asarray(np.bincount(cells.cell, kernels_us, cells.cells), np.float64)


@dataclass(frozen=True)
class Roofline:
    """The source that answers where nothing like the cell was measured."""

    device: Device
    precision: str

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        """See ``CellSource``: what the device could do at best, with a wide spread."""
        reason = "guessed from the device's peak, bandwidth and launch time: no similar record"
        each = roofline_us(cells.texts_at(positions), self.device, self.precision).tolist()
        return [CellLatency(us, SPREAD, reason) for us in each]

    def law(self, cells: NetworkCells) -> None:
        """See ``CellSource``."""

    def network_us(self, cells: NetworkCells) -> float:
        """What the device needs for all cells of the network at best."""
        each = roofline_us(cells.texts, self.device, self.precision)
        return float(each @ np.array(cells.counts, np.float64))


def contradiction(latency_us: float, best_us: float) -> str | None:
    """A warning where an estimate is far from ``best_us``, what the device needs at best."""
    ratio = latency_us / best_us
    if 1 / MOST_RATIO <= ratio <= MOST_RATIO or not math.isfinite(ratio):
        return None
    times = f"{ratio:.0f} times" if ratio > 1 else f"only {100 * ratio:.2g} % of"
    return (
        f"the estimate is {times} the {best_us / 1e3:.3g} ms that the device needs by its peak, "
        "bandwidth and launch time: do not rely on it without a measurement"
    )
