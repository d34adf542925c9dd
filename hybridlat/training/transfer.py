"""Where a new machine's model starts: the model of another device under the same engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.cell_model import CellModel
from hybridlat.model.geometry import geometry
from hybridlat.model.kernel_view import View
from hybridlat.schema.device import Device

_LAUNCH_US = 1.0  # of a kernel that no model knows, on top of its roofline


def start_us(
    texts: Sequence[str], kin: CellModel | None, device: Device, precision: str
) -> NDArray[np.float64]:
    """What cells are taken to last before any was measured: the kin's word, else the roofline's."""
    cells = geometry(texts)
    view = View(cells, device, precision)
    total = np.bincount(cells.cell, view.roofline_us + _LAUNCH_US, cells.cells)
    plain = np.asarray(total, np.float64)
    if kin is None:
        return plain
    said = kin.predict_geometry(cells).latency_us
    return np.asarray(np.where(np.isfinite(said) & (said > 0), said, plain))
