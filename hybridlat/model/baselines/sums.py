"""Baselines for targets of which only whole networks are known: learned from sums of kernels.

Each takes the kernels of many networks of one target, their latencies and which of them to learn
from, and gives a latency for every network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import MissingExtra
from hybridlat.model.family.kernels import CLASSES, KernelTable
from hybridlat.model.geometry import COLUMN, Geometry
from hybridlat.model.kernel_view import View
from hybridlat.schema.device import Device

Array = NDArray[np.float64]
_PLAIN = (
    "batch", "c_in", "h_in", "w_in", "c_out", "k_h", "stride", "groups", "has_add", "activation",
    "flop", "in_bytes", "weight_bytes", "out_bytes",
)  # fmt: skip


class Networks:
    """The kernels of many networks of one target, stacked."""

    def __init__(self, tables: Sequence[KernelTable], device: Device, precision: str) -> None:
        values = np.vstack([t.values for t in tables])
        self.count = len(tables)
        self.owner = np.repeat(np.arange(len(tables)), [len(t.values) for t in tables])
        self.counts = np.concatenate([t.counts for t in tables])
        self.classes = np.concatenate([t.classes for t in tables])
        self.copied = np.array([t.copied_bytes for t in tables])
        self.view = View(
            Geometry(values, np.arange(len(values)), len(values), ("",)), device, precision
        )
        self.plain = values[:, [COLUMN[name] for name in _PLAIN]].astype(np.float32)

    def total(self, each: Array) -> Array:
        """Per network, the sum over its kernels, each as often as it occurs."""
        return np.asarray(np.bincount(self.owner, self.counts * each, self.count), np.float64)


def _line(columns: Array, truth: Array, learn: NDArray[np.bool_]) -> Array:
    """Coefficients of at least 0 that are best in relative terms, applied to all networks."""
    from scipy.optimize import nnls

    size = np.maximum(np.abs(columns[learn]).max(axis=0), 1e-30)
    factors, _ = nnls(columns[learn] / size / truth[learn, None], np.ones(int(learn.sum())))
    return np.asarray(columns @ (factors / size))


def flops_linear(nets: Networks, truth: Array, learn: NDArray[np.bool_]) -> Array:
    """A constant per network and kernel and one per FLOP."""
    ones = np.ones(len(nets.owner))
    columns = [np.ones(nets.count), nets.total(ones), nets.total(nets.view.flop)]
    return _line(np.stack(columns, axis=1), truth, learn)


def roofline(nets: Networks, truth: Array, learn: NDArray[np.bool_]) -> Array:
    """A constant per network and kernel and a factor on the roofline."""
    ones = np.ones(len(nets.owner))
    columns = [np.ones(nets.count), nets.total(ones), nets.total(nets.view.roofline_us)]
    return _line(np.stack(columns, axis=1), truth, learn)


def per_kind_linear(nets: Networks, truth: Array, learn: NDArray[np.bool_]) -> Array:
    """A constant, a factor on compute and one on memory time for each class of kernel."""
    columns = [np.ones(nets.count), nets.copied]
    for kind in range(len(CLASSES)):
        mine = (nets.classes == kind).astype(np.float64)
        if mine.any():
            parts = (mine, mine * nets.view.compute_us, mine * nets.view.memory_us)
            columns += [nets.total(part) for part in parts]
    return _line(np.stack(columns, axis=1), truth, learn)


def kernel_forest(nets: Networks, truth: Array, learn: NDArray[np.bool_]) -> Array:
    """A random forest for each class of kernel on plain shapes (nn-Meter), taught its part of sums.

    A kernel's part of a network is in proportion to the roofline at first, then to what the
    forests say. A class that no network to learn from holds stays at the fitted roofline.
    """
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise MissingExtra("scikit-learn", "train", "the baseline kernel_forest") from None
    scale = np.exp(np.median(np.log(truth / nets.total(nets.view.roofline_us + 4.0))[learn]))
    guess = (nets.view.roofline_us + 4.0) * scale
    for _ in range(2):
        part = np.log(guess / nets.total(guess)[nets.owner] * truth[nets.owner])
        renewed = guess.copy()
        for kind in np.unique(nets.classes):
            mine = nets.classes == kind
            taught = mine & learn[nets.owner]
            if taught.sum() < 5:
                continue
            forest = RandomForestRegressor(
                30, min_samples_leaf=2, max_features=0.6, random_state=0, n_jobs=1
            )
            forest.fit(nets.plain[taught], part[taught])
            renewed[mine] = np.exp(forest.predict(nets.plain[mine]))
        guess = renewed
    return nets.total(guess)


class SumBaseline(Protocol):
    """Latencies in us of all networks, learned from those that ``learn`` marks."""

    def __call__(self, nets: Networks, truth: Array, learn: NDArray[np.bool_]) -> Array: ...


LAYERWISE = "layerwise_learned"
"""The forest on the file's operators, each a kernel of its own: what layer-wise methods add up."""
BASELINES: dict[str, SumBaseline] = {
    "flops_linear": flops_linear,
    "roofline": roofline,
    "per_kind_linear": per_kind_linear,
    "kernel_forest": kernel_forest,
    LAYERWISE: kernel_forest,
}
OF_SUMS_ALONE = ("per_kind_linear",)
"""Those that have no like among the baselines of cells."""
