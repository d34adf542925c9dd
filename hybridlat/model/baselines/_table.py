"""What the regressing baselines share: rows as geometry, and a line fitted to relative errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import InputError
from hybridlat.model.baselines.base import TrainingRow
from hybridlat.model.geometry import Geometry, geometry
from hybridlat.model.kernel_view import View
from hybridlat.schema.device import Device

Array = NDArray[np.float64]


def usable(rows: Sequence[TrainingRow]) -> tuple[list[str], Array]:
    """Texts and latencies of the rows that have one; InputError when there is none."""
    kept = [row for row in rows if np.isfinite(row.latency_us) and row.latency_us > 0]
    if not kept:
        raise InputError("a baseline needs at least one row with a positive latency, got none")
    return [row.text for row in kept], np.array([row.latency_us for row in kept])


def summed(cells: Geometry, per_kernel: Array) -> Array:
    """Per cell, the sum over its kernels."""
    return np.asarray(np.bincount(cells.cell, per_kernel, cells.cells), np.float64)


def read(texts: Sequence[str], device: Device, precision: str) -> tuple[Geometry, View]:
    """Geometry of the texts, and its view on the device."""
    cells = geometry(texts)
    return cells, View(cells, device, precision)


def relative_line(columns: Array, latencies_us: Array) -> Array:
    """Coefficients c ≥ 0 that make columns·c close to the latencies in relative terms.

    Non-negative least squares on columns divided by the latency, so that a small kernel counts as
    much as a large one. Solved by coordinate descent: columns are few.
    """
    scaled = columns / latencies_us[:, None]
    size = np.sqrt((scaled**2).sum(axis=0))
    size[size == 0] = 1.0
    scaled = scaled / size
    gram, right = scaled.T @ scaled, scaled.sum(axis=0)
    result = np.zeros(columns.shape[1])
    for _ in range(2000):
        before = result.copy()
        for i in range(len(result)):
            if gram[i, i] > 0:
                step = (right[i] - gram[i] @ result) / gram[i, i]
                result[i] = max(result[i] + step, 0.0)
        if np.abs(result - before).max() <= 1e-9 * max(np.abs(result).max(), 1e-30):
            break
    return np.asarray(result / size)
