"""Fit the applicability domain of a model: its ranges, its prototypes and its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hybridlat.model.applicability_domain import (
    RANGED,
    ApplicabilityDomain,
    combinations_of,
    shape_points,
)
from hybridlat.model.gaussian_process import Floats
from hybridlat.model.geometry import COLUMN, Geometry

_PROTOTYPES = 640


def fit_domain(
    geometry: Geometry, codes: NDArray[np.intp], ops: int, seed: int
) -> ApplicabilityDomain:
    """Ranges per operator, landmarks by farthest-point choice, combinations met, and the limits.

    The limits are what nearly all kernels would need if each were new: kernels of one random half
    are held against the ground of the other. A triple of sizes that those hardly ever miss is
    telling when it is missed: its weight is the negative logarithm of how often that happens.
    """
    values = geometry.values[:, [COLUMN[name] for name in RANGED]]
    low = np.full((ops, len(RANGED)), np.inf)
    high = np.full((ops, len(RANGED)), -np.inf)
    for code in range(ops):
        mine = values[codes == code]
        low[code], high[code] = mine.min(axis=0), mine.max(axis=0)
    points, triples = shape_points(geometry, codes), combinations_of(geometry)
    domain = ApplicabilityDomain(
        low, high, _spread_out(points, _PROTOTYPES), 1.0, np.unique(triples),
        np.zeros(len(triples), np.float32), 1.0,
    )  # fmt: skip
    order = np.random.default_rng(seed).permutation(len(points))
    left, right = order[: len(order) // 2], order[len(order) // 2 :]
    half = replace(
        domain,
        prototypes=_spread_out(points[left], _PROTOTYPES),
        seen_triples=np.unique(triples[:, left]),
    )
    new = geometry.one_by_one(right)
    radius = max(float(np.quantile(half.score(new, codes[right])[1], 0.98)), 0.5)
    rarely = (half.unseen_triples(new).sum(axis=1) + 1) / (len(right) + 1)
    weights = -np.log(rarely).astype(np.float32)
    strange = replace(half, radius=radius, weights=weights).score(new, codes[right])[0]
    limit = max(float(np.quantile(strange, 0.93)), 1.0)
    return replace(domain, radius=radius, weights=weights, limit=limit)


def _spread_out(points: Floats, count: int) -> Floats:
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
