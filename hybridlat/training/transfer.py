"""Where a new machine's model starts: the model of another device under the same engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.model_folders import model_folders, read_model, read_target, readable
from hybridlat.model import features
from hybridlat.model.cell_model import CellModel
from hybridlat.model.geometry import geometry
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target

_LAUNCH_US = 1.0  # of a kernel that no model knows, on top of its roofline


def kin_of(target: Target) -> tuple[Target, CellModel] | None:
    """The model of another device, with the engine, precision and threads of ``target``.

    Of several the one whose threads agree, then the user's own, then the first by name. None where
    there is no such model, or none that can be read.
    """
    found: dict[str, tuple[bool, Target, Path]] = {}
    for folder in reversed(model_folders(None)):
        other = readable(read_target, folder)
        if (
            other is not None
            and other.device != target.device
            and (other.engine, other.precision) == (target.engine, target.precision)
        ):
            found[other.folder] = (other.threads != target.threads, other, folder)
    for _, other, folder in sorted(found.values()):
        model = readable(read_model, folder)
        if model is not None:
            return other, model
    return None


def start_us(
    texts: Sequence[str], kin: CellModel | None, device: Device, precision: str
) -> NDArray[np.float64]:
    """What cells are taken to last before any was measured: the kin's word, else the roofline's."""
    cells = geometry(texts)
    view = features.View(cells, device, precision)
    total = np.bincount(cells.cell, view.roofline_us + _LAUNCH_US, cells.cells)
    plain = np.asarray(total, np.float64)
    if kin is None:
        return plain
    said = kin.predict_geometry(cells).latency_us
    return np.asarray(np.where(np.isfinite(said) & (said > 0), said, plain))
