"""What a fit is given: its options, folds, the trust in rows, and the model it starts from."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import MissingExtra
from hybridlat.model.cell_model import CellModel
from hybridlat.model.gaussian_process import Array
from hybridlat.model.geometry import Geometry
from hybridlat.schema.device import Device

LEAST_ROWS = 20
FOLDS = 5
MODEL_SHARE = 0.1
"""What a model gets wrong of a cell by itself: noise well below it does not matter."""
SOUND = 0.2  # trust of a measurement whose noise is twice what the model itself gets wrong


@dataclass(frozen=True)
class FitConfig:
    """Everything but the records that a fit depends on.

    ``priors`` are models of other targets: the one that explains the records best is taken as a
    start, if it helps.
    """

    device: Device
    precision: str = "fp32"
    seed: int = 0
    priors: tuple[CellModel, ...] = ()
    confidence: float = 0.9


def check_installed(purpose: str = "training a model") -> None:
    """MissingExtra where the packages that fit a model are missing: checked before long work."""
    if importlib.util.find_spec("sklearn") is None:
        raise MissingExtra("scikit-learn", "train", purpose)


def records_hash(texts: Sequence[str], latencies_us: Sequence[float] | Array) -> str:
    """Names the training set: the same rows in any order give the same hash."""
    rows = sorted(f"{text}{us!r}" for text, us in zip(texts, map(float, latencies_us), strict=True))
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:32]


def trust_of(noise_shares: Array) -> Array:
    """Weight of rows by their noise, 1 for an exact one: what is left of what a model misses."""
    noise = np.maximum(np.nan_to_num(noise_shares, nan=math.inf, posinf=math.inf), 0.0)
    return np.asarray(MODEL_SHARE**2 / (MODEL_SHARE**2 + noise**2))


def make_folds(groups: Sequence[str], seed: int) -> NDArray[np.intp]:
    """A fold for every row; rows of a group share one, unless there are fewer groups than folds."""
    names = sorted(set(groups))
    random = np.random.default_rng(seed)
    if len(names) < FOLDS:
        return np.asarray(random.permutation(len(groups)) % FOLDS)
    fold_of = dict(zip(names, random.permutation(len(names)) % FOLDS, strict=True))
    return np.array([fold_of[name] for name in groups])


def choose_prior(
    cells: Geometry, truth: Array, base: Array, priors: Sequence[CellModel]
) -> tuple[CellModel | None, tuple[float, float]]:
    """The prior whose log ratio explains these cells' best by a line, if it explains half."""
    best: tuple[float, CellModel | None, tuple[float, float]] = (0.5, None, (0.0, 0.0))
    total = np.bincount(cells.cell, base, cells.cells)
    values = np.log(truth / total)
    for prior in priors:
        ratio = np.log(prior.predict_geometry(cells).latency_us / total)
        good = np.isfinite(ratio)
        if good.mean() < 0.8 or np.std(ratio[good]) < 1e-6:
            continue
        slope, offset = np.polyfit(ratio[good], values[good], 1)
        left = np.var(values[good] - offset - slope * ratio[good]) / max(np.var(values), 1e-12)
        if left < best[0]:
            best = (float(left), prior, (float(offset), float(slope)))
    return best[1], best[2]
