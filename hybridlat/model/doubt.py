"""What a model cannot know of cells yet.

A Gaussian process over kernels stands for the model: its variance depends on where measurements
were made, not on what they said. A cell's ln(latency) moves with those of its kernels in the ratio
of their shares of the time, so a cell is a weighted sum of kernels. The process is carried by a few
hundred inducing kernels (Nyström), its posterior by one matrix over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridlat.model import features
from hybridlat.model.gaussian_process import Array, Floats, matern
from hybridlat.model.geometry import Geometry, geometry
from hybridlat.model.kernel_view import View
from hybridlat.schema.device import Device

NEAR: tuple[str, ...] = (
    "log2_c_in", "log2_c_out", "log2_h_in", "log2_w_in", "k_h", "k_w", "stride", "dilation",
    "log2_group_width", "log2_batch", "depthwise", "has_add", "activation", "align_c_in",
    "align_c_out", "log2_weight_size", "log2_activation_size", "log2_compute_to_memory", "context",
    "variant",
)  # fmt: skip
"""Features that make kernels alike; each counts in units of its spread over the wanted cells."""
INDUCING = 320
LENGTH = 4.0
"""Length scale, in those units: how far a measurement reaches."""
OTHER_OPERATOR = 2.0
"""Length scales between kernels of different operators."""
SPREAD_SHARE = 0.35
"""What a cell is taken to be off by before anything near it was measured (ln of the latency)."""
OWN_SHARE = 0.10
"""The part of a cell's error that no other cell tells."""


@dataclass(frozen=True)
class CellPoints:
    """Cells as the process sees them.

    ``vectors`` is one row a cell over the inducing kernels, ``fresh`` the variance (of 1) that
    those do not carry.
    """

    vectors: Array
    fresh: Array

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Sequence[int] | NDArray[np.intp]) -> CellPoints:
        chosen = np.asarray(rows, np.intp)
        return CellPoints(self.vectors[chosen], self.fresh[chosen])


@dataclass(frozen=True)
class KernelSpace:
    """Where kernels lie, and the inducing ones among them."""

    device: Device
    precision: str
    ops: tuple[str, ...]
    shift: Floats
    scale: Floats
    inducing: Floats
    root: Array

    @classmethod
    def over(
        cls, texts: Sequence[str], device: Device, precision: str = "fp32", seed: int = 0
    ) -> KernelSpace:
        """The space that holds the kernels of these signature texts; ValueError without any."""
        cells = geometry(list(dict.fromkeys(texts)))
        if not len(cells.values):
            raise ValueError("no kernels to measure distances between")
        rows = _near(View(cells, device, precision))
        shift, scale = rows.mean(axis=0), rows.std(axis=0)
        scale = np.where(scale > 1e-6, scale, 1.0).astype(np.float32) * LENGTH
        blank = np.zeros((0, 0), np.float32)
        space = cls(device, precision, cells.met_ops(), shift, scale, blank, np.zeros((0, 0)))
        points = np.unique(space._points(cells), axis=0)
        order = np.random.default_rng(seed).permutation(len(points))[:INDUCING]
        inducing = points[np.sort(order)]
        covariance = matern(inducing, inducing).astype(float) + 1e-4 * np.eye(len(inducing))
        return cls(
            device, precision, space.ops, shift, scale, inducing,
            np.linalg.inv(np.linalg.cholesky(covariance)),
        )  # fmt: skip

    def _points(self, cells: Geometry) -> Floats:
        rows = _near(View(cells, self.device, self.precision))
        rows = (rows - self.shift) / self.scale
        codes = cells.codes(self.ops)
        ops = np.zeros((len(rows), len(self.ops)), np.float32)
        known = np.flatnonzero(codes >= 0)
        ops[known, codes[known]] = OTHER_OPERATOR / np.sqrt(2)
        return np.concatenate([rows, ops], axis=1)

    def place(self, texts: Sequence[str]) -> CellPoints:
        """The cells of signature texts in this space; ValueError for what is no signature."""
        cells = geometry(texts)
        view = View(cells, self.device, self.precision)
        weight = view.roofline_us + 1.0
        total = np.bincount(cells.cell, weight, cells.cells)
        share = weight / total[cells.cell]
        kernels = matern(self._points(cells), self.inducing).astype(float) @ self.root.T
        vectors = np.zeros((cells.cells, len(self.inducing)))
        np.add.at(vectors, cells.cell, kernels * share[:, None])
        left = np.maximum(1.0 - np.square(kernels).sum(axis=1), 0.0)
        fresh = np.bincount(cells.cell, left * share**2, cells.cells)
        return CellPoints(vectors, np.asarray(fresh, np.float64))


def _near(view: View) -> Floats:
    chosen = [features.NAMES.index(name) for name in NEAR]
    return features.matrix(view)[:, chosen]


@dataclass(frozen=True)
class Doubt:
    """What is left unknown after measurements: ``covariance`` over the inducing kernels.

    In units of ``SPREAD_SHARE``², so 1 is the variance of a cell that nothing measured is near.
    """

    covariance: Array

    @classmethod
    def after(cls, known: CellPoints, noise_shares: Array) -> Doubt:
        """What measuring ``known`` leaves; ``noise_shares`` are relative standard errors."""
        size = known.vectors.shape[1]
        noise = _noise(known.fresh, noise_shares)
        precision = np.eye(size) + (known.vectors / noise[:, None]).T @ known.vectors
        return cls(np.asarray(np.linalg.inv(precision), np.float64))

    def spread_shares(self, points: CellPoints) -> Array:
        """Standard error of ln(latency) of cells, as the process sees it."""
        carried = np.einsum("ij,jk,ik->i", points.vectors, self.covariance, points.vectors)
        return np.asarray(SPREAD_SHARE * np.sqrt(np.maximum(carried + points.fresh, 0.0)))

    def lesson(self, known: CellPoints, noise_shares: Array, values: Array) -> Array:
        """What measurements say: weights over the inducing kernels, to multiply vectors with.

        ``values`` are ln(measured / expected before) of ``known``, the cells that this doubt is
        after, less their common level.
        """
        noise = _noise(known.fresh, noise_shares)
        return np.asarray(self.covariance @ ((known.vectors / noise[:, None]).T @ values))


def _noise(fresh: Array, noise_shares: Array) -> Array:
    return fresh + (OWN_SHARE**2 + np.square(noise_shares)) / SPREAD_SHARE**2
