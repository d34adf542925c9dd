"""The applicability domain: what is far from a model's training cells is not trusted."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hybridlat.graph.operators import KINDS
from hybridlat.graph.work import LIBM
from hybridlat.model.gaussian_process import CHUNK, squared_distances
from hybridlat.model.geometry import Array, Flags, Float32, Geometry, Positions

SHAPE = {
    "batch": 1.0, "c_in": 1.0, "c_out": 1.0, "h_in": 1.0, "w_in": 1.0, "k_h": 2.0, "k_w": 2.0,
    "stride": 2.0, "dilation": 2.0, "groups": 1.0,
}  # fmt: skip
"""The shape of a kernel as a point: log2 of these columns times a weight. One unit is an octave of
channels or size; half an octave of taps or stride counts as much."""
_FAR = 64.0  # octaves between kernels of different operators: never neighbours
_HAIR = 1e-6  # octaves beyond a range that are rounding

RANGED: tuple[str, ...] = (
    "batch", "c_in", "c_out", "h_in", "w_in", "k_h", "k_w", "stride", "dilation", "groups", "m",
    "n", "k", "flop", "weight_bytes", "in_bytes", "out_bytes", "activation",
)  # fmt: skip
"""Columns of the geometry whose training range is kept, per operator."""


def shape_points(geometry: Geometry, codes: Positions) -> Float32:
    """Kernels as points: octaves of their shape, and their operator far from any other."""
    octaves = np.log2(np.maximum(geometry.columns(SHAPE), 1)) * [*SHAPE.values()]
    return np.column_stack([octaves, codes * _FAR]).astype(np.float32, order="C")


COMBINED = ("batch", "c_in", "c_out", "h_in", "w_in", "k_h", "stride", "groups")
"""Columns whose values must have been met together: three at a time, in bins of half an octave."""
TRIPLES = tuple(combinations(range(len(COMBINED)), 3))
_BINS = 32
COMBINATIONS = len(TRIPLES) * _BINS**3
MOST_OPS = 4096  # whose odd forms in training are numbered behind the combinations
_PROTOTYPES = 640
_ENOUGH_ODD = 20  # kernels in odd forms by which training knows those of an operator

LIBM_ERROR, WINDOW_ERROR, PLAIN_ERROR = (3.2, 2.0), (3.2, 4.2), (1.0, 2.0)
"""(centre, half width) of nine of ten ln(measured / predicted) of CPU kernels without training.

Of operators that call a mathematical function for each element, of those whose family is unknown,
and of all others. Seen were half of ONNX's operators, two sizes of each, under ONNX Runtime 1.32
against the model of another CPU; operators with training divide its pace out."""


def odd_forms(geometry: Geometry) -> Flags:
    """Which kernels run in forms that engines have other code for, and few networks hold.

    Windows in one or three dimensions, depthwise convolutions with dilation or several filters a
    channel, and operands that are repeated along outer axes.
    """
    kind, groups, inputs, run, made = map(geometry.column, ("kind", "groups", "inputs", "run", "m"))
    c_in, c_out, rank, dilation = map(geometry.column, ("c_in", "c_out", "rank", "dilation"))
    windows = (kind == KINDS["conv"]) | (kind == KINDS["pool"])
    depthwise = (kind == KINDS["conv"]) & (groups > 1) & (groups == c_in)
    read_bytes = geometry.column("in_bytes") + geometry.column("weight_bytes")
    small = read_bytes / np.maximum(geometry.column("item_bytes"), 1.0) - made
    repeated = (kind == KINDS["pointwise"]) & (inputs == 2) & (small == run) & (run > 1)
    repeated &= (run < made) & (small * run != made)
    odd_depthwise = depthwise & ((c_out > c_in) | (dilation > 1))
    return np.asarray((windows & (rank != 4)) | odd_depthwise | repeated)


def error_without_training(geometry: Geometry) -> tuple[Array, Array]:
    """Centre and half width of ln(measured / predicted) of each kernel on a CPU."""
    parts = [name.rpartition("::")[2].split("+") for name in geometry.ops]
    calls = np.array([not LIBM.isdisjoint(names) for names in parts], bool)
    other = geometry.column("kind") == KINDS["other"]
    chosen = np.where(calls[geometry.column("op").astype(np.intp)], 2, other)
    centre, half = np.array([PLAIN_ERROR, WINDOW_ERROR, LIBM_ERROR])[chosen].T
    return centre, half


def combinations_of(geometry: Geometry) -> NDArray[np.int64]:
    """For every kernel the number of the bin it takes in each triple of ``COMBINED``."""
    taken = np.log2(np.maximum(geometry.columns(COMBINED), 1))
    bins = np.minimum(np.floor(2 * taken + 0.5), _BINS - 1).astype(np.int64).T
    first, second, third = (bins[list(column)] for column in zip(*TRIPLES, strict=True))
    number = np.arange(len(TRIPLES))[:, None]
    return np.asarray(((number * _BINS + first) * _BINS + second) * _BINS + third, np.int64)


@dataclass(frozen=True)
class ApplicabilityDomain:
    """Where the training cells lie, and how far from them a prediction is still trusted.

    ``low`` and ``high`` are the training range of ``RANGED``, one row per operator; ``prototypes``
    are training kernels spread so that every one has a prototype near; ``radius`` is the distance
    to the nearest prototype, in octaves, that training kernels keep to; ``seen_triples`` numbers
    the combinations of three sizes that training met, and behind them the operators that it met in
    odd forms, ``weights`` says how telling it is when one of each triple was not; ``limit`` is the
    score (distance over radius plus the weights of the unmet triples) up to which kernels are
    known.
    """

    low: Array
    high: Array
    prototypes: Float32
    radius: float
    seen_triples: NDArray[np.int64]
    weights: Float32
    limit: float

    @cached_property
    def _seen(self) -> Flags:
        table = np.zeros(COMBINATIONS + MOST_OPS, bool)
        table[self.seen_triples] = True
        return table

    def unseen_triples(self, geometry: Geometry) -> Flags:
        """For each triple of sizes and each kernel, whether training never met its values."""
        return np.asarray(~self._seen[combinations_of(geometry)], bool)

    def unmet_forms(self, geometry: Geometry, codes: Positions) -> Flags:
        """Which kernels run in an odd form in which training did not meet their operator."""
        known = np.maximum(codes, 0)
        return np.asarray(odd_forms(geometry) & ~self._seen[COMBINATIONS + known], bool)

    def score(self, kernels: Geometry, codes: Positions, chunk: int = CHUNK) -> tuple[Array, Array]:
        """Distance over radius plus weights of unmet triples, and the distance in octaves."""
        distance, points = np.empty(len(codes)), shape_points(kernels, codes)
        for start in range(0, len(points), chunk):
            part = slice(start, start + chunk)
            distance[part] = np.sqrt(squared_distances(points[part], self.prototypes).min(axis=1))
        return distance / self.radius + self.weights @ self.unseen_triples(kernels), distance

    def _beyond(self, geometry: Geometry, codes: Positions) -> Array:
        """Octaves of each kernel beyond the training range of each column, negative within it."""
        values = np.maximum(geometry.columns(RANGED), 1)
        known = np.maximum(codes, 0)
        low, high = np.maximum(self.low[known], 1), np.maximum(self.high[known], 1)
        return np.asarray(np.log2(np.maximum(values / high, low / values)), np.float64)

    def novelty(self, geometry: Geometry, codes: Positions, chunk: int = CHUNK) -> Array:
        """How strange each kernel is.

        Above 1 is outside the training range, far from every prototype, or a combination of sizes
        that training never met. Kernels of operators without training (code -1) get infinity.
        """
        novelty = self.score(geometry, codes, chunk)[0] / self.limit
        outside = self._beyond(geometry, codes).max(axis=1)
        # A range that is broken by a hair is still broken: the step by one keeps it untrusted.
        novelty = np.where(outside > _HAIR, 1 + novelty + outside, novelty)
        return np.where(codes < 0, np.inf, novelty)

    def reason(self, kernel: Geometry, code: int) -> str:
        """Why a kernel, the only row of ``kernel``, is not trusted."""
        if code < 0:
            return f"operator never seen in training: {kernel.op(0)}"
        codes = np.array([code])
        beyond = self._beyond(kernel, codes)[0]
        if beyond.max() > _HAIR:
            column = int(beyond.argmax())
            name, low, high = RANGED[column], self.low[code, column], self.high[code, column]
            value = kernel.column(name)[0]
            return f"outside the training range: {name}={value:g}, trained on {low:g}..{high:g}"
        distance, near = float(self.score(kernel, codes)[1][0]), self.radius
        if distance > near:
            return f"far from every trained cell: {distance:.1f} octaves, up to {near:.1f} is near"
        return "a combination of sizes that training never met"


def fit_domain(geometry: Geometry, codes: Positions, ops: int, seed: int) -> ApplicabilityDomain:
    """Ranges per operator, landmarks by farthest-point choice, combinations met, and the limits.

    The limits are what nearly all kernels would need if each were new: kernels of one random half
    are held against the ground of the other. A triple of sizes that those hardly ever miss is
    telling when it is missed: its weight is the negative logarithm of how often that happens.
    """
    values = geometry.columns(RANGED)
    low = np.array([values[codes == code].min(axis=0) for code in range(ops)])
    high = np.array([values[codes == code].max(axis=0) for code in range(ops)])
    points, triples = shape_points(geometry, codes), combinations_of(geometry)
    near, met = _spread_out(points, _PROTOTYPES), np.unique(triples)
    domain = ApplicabilityDomain(low, high, near, 1.0, met, np.zeros(len(triples), np.float32), 1.0)
    order = np.random.default_rng(seed).permutation(len(points))
    left, right = order[: len(order) // 2], order[len(order) // 2 :]
    near, met = _spread_out(points[left], _PROTOTYPES), np.unique(triples[:, left])
    half, new = replace(domain, prototypes=near, seen_triples=met), geometry.one_by_one(right)
    radius = max(float(np.quantile(half.score(new, codes[right])[1], 0.98)), 0.5)
    rarely = (half.unseen_triples(new).sum(axis=1) + 1) / (len(right) + 1)
    weights = -np.log(rarely).astype(np.float32)
    strange = replace(half, radius=radius, weights=weights).score(new, codes[right])[0]
    limit = max(float(np.quantile(strange, 0.93)), 1.0)
    odd = np.bincount(codes[odd_forms(geometry) & (codes >= 0)], minlength=ops) >= _ENOUGH_ODD
    met = np.concatenate([domain.seen_triples, COMBINATIONS + np.flatnonzero(odd)])
    return replace(domain, seen_triples=met, radius=radius, weights=weights, limit=limit)


def _spread_out(points: Float32, count: int) -> Float32:
    """At most ``count`` of the points, each next one the farthest from those chosen before."""
    unique = np.unique(points, axis=0)
    if len(unique) <= count:
        return unique
    chosen = [int(np.square(unique - unique.mean(axis=0)).sum(axis=1).argmin())]
    distance = np.square(unique - unique[chosen[0]]).sum(axis=1)
    while len(chosen) < count and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.square(unique - unique[chosen[-1]]).sum(axis=1))
    return unique[chosen]
