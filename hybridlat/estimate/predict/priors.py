"""Turn predictions and records of cells into what the gate works on."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hybridlat.estimate.compose.posterior import CellPrior
from hybridlat.estimate.predict.source import CellLatency, stated
from hybridlat.graph.operators import KINDS
from hybridlat.model.geometry import Geometry, geometry
from hybridlat.schema.estimate import CellPrediction

_FLOP_PER_BYTE = 16.0  # balance of a present machine; only the mix within a cell depends on it
_VISIT_S = 0.025
_VISITS = 6
_BUILD_S = 0.1
_NETWORK_VISIT_S = 0.2
_NETWORK_BUILD_S = 0.5


def measuring_cost_s(latency_us: float | None) -> float:
    """Device seconds that measuring one cell takes: six visits of 25 ms or three runs each,
    and what building it takes."""
    run_s = (latency_us or 0.0) * 1e-6
    return _BUILD_S + _VISITS * max(_VISIT_S, 3 * run_s)


def network_cost_s(latency_us: float) -> float:
    """Device seconds that measuring a network as a whole takes: six visits of 200 ms or three runs
    each, and what building it takes."""
    return _NETWORK_BUILD_S + _VISITS * max(_NETWORK_VISIT_S, 3 * latency_us * 1e-6)


def work_bytes(cells: Geometry) -> list[float]:
    """Each kernel's work, the larger of its bytes moved and its FLOP, counted as 16 to a byte."""
    moved = sum(cells.column(name) for name in ("in_bytes", "weight_bytes", "out_bytes"))
    work: list[float] = np.maximum(
        np.maximum(cells.column("flop") / _FLOP_PER_BYTE, moved), 1.0
    ).tolist()
    return work


@lru_cache(maxsize=65_536)
def describe(text: str) -> tuple[tuple[tuple[str, float], ...], tuple[float, ...]]:
    """(kinds, place) of a cell: shares of its work by kind of kernel, and its shape in octaves.

    The place is the mean, weighted by work, of log2 of input channels, output channels, output
    height and taps.
    """
    cells = geometry([text])
    op, kind, c_in, c_out, h_out, k_h, k_w, groups = (
        cells.column(name)
        for name in ("op", "kind", "c_in", "c_out", "h_out", "k_h", "k_w", "groups")
    )
    works = work_bytes(cells)
    shares = np.array(works) / math.fsum(works)
    sizes = np.array([c_in, c_out, h_out, k_h * k_w])
    kinds: dict[str, float] = {}
    for i, share in enumerate(shares.tolist()):
        name = cells.ops[int(op[i])]
        if kind[i] == KINDS["conv"]:
            if groups[i] > 1:
                name += " depthwise" if groups[i] == c_in[i] else " grouped"
            else:
                name += " 1x1" if k_h[i] * k_w[i] == 1 else " kxk"
        kinds[name] = kinds.get(name, 0.0) + share
    place: list[float] = (np.log2(np.maximum(sizes, 1.0)) @ shares).tolist()
    return tuple(sorted(kinds.items())), tuple(place)


@lru_cache(maxsize=16_384)
def prior(signature: str, text: str, count: int, latency: CellLatency) -> CellPrior:
    """A cell with this latency, as the gate works on it."""
    kinds, coordinates = describe(text)
    if latency.latency_us is not None:
        # Errors of a cell of a few µs and of one of some ms have different causes: one more axis.
        coordinates = (*coordinates, math.log2(max(latency.latency_us, 1e-3)))
    return CellPrior(
        signature=signature,
        count=count,
        latency_us=latency.latency_us,
        spread_share=latency.spread_share,
        trusted=latency.trusted and latency.latency_us is not None,
        source=latency.source if latency.latency_us is not None else "unsupported",
        cost_s=0.0 if latency.source == "measured" else measuring_cost_s(latency.latency_us),
        kinds=kinds,
        coordinates=coordinates,
        reason=latency.reason,
    )


def predicted(
    signature: str,
    text: str,
    count: int,
    prediction: CellPrediction,
    confidence: float = 0.9,
    cost_s: float | None = None,
) -> CellPrior:
    """A cell as a model states it; ``confidence`` is that of its interval."""
    made = prior(signature, text, count, stated(prediction, confidence))
    return made if cost_s is None else replace(made, cost_s=cost_s)
