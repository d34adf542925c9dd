"""Fit a CellModel to measured cells: the training half of model.py, never loaded to predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybridlat.core.device import Device
from hybridlat.model import CellModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def fit_model(
    texts: Sequence[str],
    latencies_us: Sequence[float] | NDArray[np.float64],
    groups: Sequence[str],
    device: Device,
    seed: int = 0,
    *,
    precision: str = "fp32",
    priors: Sequence[CellModel] = (),
    confidence: float = 0.9,
) -> CellModel:
    """A model of one target from measured cells; the same input gives the same model.

    ``texts`` are signature texts, ``latencies_us`` their measured latencies, ``groups`` the network
    each was met in (any constant or unique name where there is none): folds of the inner
    cross-validation never share a group. ``priors`` are models of other targets to start from.
    Raises InputError when fewer than 20 usable rows are given.
    """
    raise NotImplementedError
