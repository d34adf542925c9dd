"""The parts of a served model that are plain arrays: a smooth surface, and what is known ground."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.features import NAMES
from hybridlat.model.geometry import COLUMN, Geometry

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
_CHUNK = 1024  # rows at a time, so that a block of kernel values stays in the cache


def squared_distances(left: Floats, right: Floats) -> Floats:
    """All squared distances between two sets of points."""
    product: Floats = left @ right.T
    product *= -2
    product += (left * left).sum(axis=1)[:, None]
    product += (right * right).sum(axis=1)[None, :]
    np.maximum(product, 0, out=product)
    return product


def matern(left: Floats, right: Floats) -> Floats:
    """Matérn 3/2 covariance of unit variance: (1 + √3·d)·exp(−√3·d)."""
    scaled = squared_distances(left, right)
    scaled *= 3
    np.sqrt(scaled, out=scaled)
    result = np.exp(-scaled)
    scaled += 1
    result *= scaled
    return result


@dataclass(frozen=True)
class Surface:
    """Mean of a Gaussian process over a few features, carried by at most some hundred points.

    ``columns`` are positions in the feature matrix, ``shift`` and ``scale`` bring them to the
    process's own length scales, ``points`` are the inducing points (already scaled).
    """

    columns: NDArray[np.intp]
    shift: Floats
    scale: Floats
    points: Floats
    weights: Floats
    level: float

    def scaled(self, rows: Floats) -> Floats:
        return (rows[:, self.columns] - self.shift) / self.scale

    def predict(self, rows: Floats) -> Array:
        result = np.full(len(rows), self.level)
        if len(self.points):
            for start in range(0, len(rows), _CHUNK):
                part = slice(start, start + _CHUNK)
                result[part] += matern(self.scaled(rows[part]), self.points) @ self.weights
        return result


PLACE: tuple[tuple[str, float], ...] = (
    ("batch", 1.0), ("c_in", 1.0), ("c_out", 1.0), ("h_in", 1.0), ("w_in", 1.0), ("k_h", 2.0),
    ("k_w", 2.0), ("stride", 2.0), ("dilation", 2.0), ("groups", 1.0),
)  # fmt: skip
"""The shape of a kernel as a point: log2 of these columns times a weight, so that one unit is an
octave of channels or size; half an octave of taps or stride counts as much."""
_FAR = 64.0  # octaves between kernels of different operators: never neighbours

RANGED: tuple[str, ...] = (
    "batch", "c_in", "c_out", "h_in", "w_in", "k_h", "k_w", "stride", "dilation", "groups", "m",
    "n", "k", "flop", "weight_bytes", "in_bytes", "out_bytes", "activation",
)  # fmt: skip
"""Columns of the geometry whose training range is kept, per operator."""


def places(geometry: Geometry, codes: NDArray[np.intp]) -> Floats:
    """Kernels as points: octaves of their shape, and their operator far from any other."""
    taken = geometry.values[:, [COLUMN[name] for name, _ in PLACE]]
    weights = np.array([weight for _, weight in PLACE])
    result = np.empty((len(taken), len(PLACE) + 1), np.float32)
    result[:, :-1] = np.log2(np.maximum(taken, 1)) * weights
    result[:, -1] = codes * _FAR
    return result


COMBINED: tuple[str, ...] = (
    "batch", "c_in", "c_out", "h_in", "w_in", "k_h", "stride", "groups",
)  # fmt: skip
"""Columns whose values must have been met together: three at a time, in bins of half an octave."""
_TRIPLES = tuple(combinations(range(len(COMBINED)), 3))
_BINS = 32


def combinations_of(geometry: Geometry) -> NDArray[np.int64]:
    """For every kernel the number of the bin it takes in each triple of ``COMBINED``."""
    taken = np.log2(np.maximum(geometry.values[:, [COLUMN[name] for name in COMBINED]], 1))
    bins = np.minimum(np.floor(2 * taken + 0.5), _BINS - 1).astype(np.int64).T
    first, second, third = (bins[list(column)] for column in zip(*_TRIPLES, strict=True))
    place = np.arange(len(_TRIPLES))[:, None]
    return np.asarray(((place * _BINS + first) * _BINS + second) * _BINS + third, np.int64)


def no_triples() -> Floats:
    """Weights of a ground that does not look at combinations."""
    return np.zeros(len(_TRIPLES), np.float32)


@dataclass(frozen=True)
class KnownGround:
    """Where the training cells lie, and how far from them a prediction is still trusted.

    ``low`` and ``high`` are the training range of ``RANGED``, one row per operator; ``landmarks``
    are training kernels spread so that every one has a landmark near; ``reach`` is the distance
    to the nearest landmark, in octaves, that training kernels keep to; ``met`` numbers the
    combinations of three sizes that training met, ``weights`` says how telling it is when one of
    each triple was not; ``limit`` is the strangeness (distance over reach plus the weights of the
    unmet triples) up to which kernels are known.
    """

    low: Array
    high: Array
    landmarks: Floats
    reach: float
    met: NDArray[np.int64]
    weights: Floats
    limit: float

    @cached_property
    def _met(self) -> NDArray[np.bool_]:
        table = np.zeros(len(_TRIPLES) * _BINS**3, bool)
        table[self.met] = True
        return table

    def unmet(self, geometry: Geometry) -> NDArray[np.bool_]:
        """For each triple of sizes and each kernel, whether training never met its values."""
        return np.asarray(~self._met[combinations_of(geometry)], bool)

    def strangeness(self, geometry: Geometry, codes: NDArray[np.intp]) -> tuple[Array, Array]:
        """Distance over reach plus weights of unmet triples, and the distance in octaves."""
        distance = np.empty(len(codes))
        points = places(geometry, codes)
        for start in range(0, len(points), _CHUNK):
            part = slice(start, start + _CHUNK)
            distance[part] = np.sqrt(squared_distances(points[part], self.landmarks).min(axis=1))
        return distance / self.reach + self.weights @ self.unmet(geometry), distance

    def novelty(
        self, geometry: Geometry, codes: NDArray[np.intp]
    ) -> tuple[Array, NDArray[np.intp], Array]:
        """How strange each kernel is, the range it breaks (-1: none) and its distance.

        Above 1 is outside the training range, far from every landmark, or a combination of sizes
        that training never met. Kernels of operators without training (code -1) get infinity.
        """
        strange, distance = self.strangeness(geometry, codes)
        values = geometry.values[:, [COLUMN[name] for name in RANGED]]
        known = np.maximum(codes, 0)
        excess = np.log2(np.maximum(values, 1) / np.maximum(self.high[known], 1))
        short = np.log2(np.maximum(self.low[known], 1) / np.maximum(values, 1))
        beyond = np.maximum(excess, short)
        worst = beyond.argmax(axis=1)
        outside = beyond[np.arange(len(beyond)), worst]
        novelty = strange / self.limit
        # A range that is broken by a hair is still broken: the step by one keeps it untrusted.
        novelty = np.where(outside > 1e-6, 1 + novelty + outside, novelty)
        novelty = np.where(codes < 0, np.inf, novelty)
        return novelty, np.where(outside > 1e-6, worst, -1), distance


def feature_names(ops: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of a model's feature matrix: the formulas, one per known operator, the surface."""
    return (*NAMES, *(f"op={op}" for op in ops), "prior", "surface")
