"""Turn predictions and records of cells into what the gate works on."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hybridlat.estimate.compose.posterior import CellPrior
from hybridlat.estimate.predict.source import CellLatency, stated
from hybridlat.graph.operators import KINDS
from hybridlat.model.geometry import COLUMN, geometry
from hybridlat.schema.estimate import CellPrediction

_FLOP_PER_BYTE = 16.0  # balance of a present machine; only the mix within a cell depends on it
_VISIT_S = 0.025
_VISITS = 6
_BUILD_S = 0.1
_NETWORK_VISIT_S = 0.2
_NETWORK_BUILD_S = 0.5

Description = tuple[tuple[tuple[str, float], ...], tuple[float, ...]]
MOST_REMEMBERED = 16_384


def measuring_cost_s(latency_us: float | None) -> float:
    """Device seconds that measuring one cell takes: six visits of 25 ms or three runs each,
    and what building it takes."""
    run_s = (latency_us or 0.0) * 1e-6
    return _BUILD_S + _VISITS * max(_VISIT_S, 3 * run_s)


def network_cost_s(latency_us: float) -> float:
    """Device seconds that measuring a network as a whole takes: six visits of 200 ms or three runs
    each, and what building it takes."""
    return _NETWORK_BUILD_S + _VISITS * max(_NETWORK_VISIT_S, 3 * latency_us * 1e-6)


def work_bytes(text: str) -> float:
    """A cell's work in bytes moved, FLOP counted as 16 to a byte: to share out what is unknown."""
    cells = geometry([text])
    moved = sum(cells.column(name) for name in ("in_bytes", "weight_bytes", "out_bytes"))
    return float(np.maximum(np.maximum(cells.column("flop") / _FLOP_PER_BYTE, moved), 1.0).sum())


@lru_cache(maxsize=65_536)
def describe(text: str) -> Description:
    """(kinds, place) of a cell: shares of its work by kind of kernel, and its shape in octaves.

    A kernel's work is the larger of its FLOP (16 to a byte) and its bytes. The place is the mean,
    weighted by work, of log2 of input channels, output channels, output height and taps.
    """
    cells = geometry([text])
    rows = [_Row(*row) for row in cells.values[:, _CHOSEN].tolist()]
    kinds: dict[str, float] = {}
    coordinates = [0.0, 0.0, 0.0, 0.0]
    works = [
        max(r.flop / _FLOP_PER_BYTE, r.in_bytes + r.weight_bytes + r.out_bytes, 1.0) for r in rows
    ]
    total = math.fsum(works)
    for row, work in zip(rows, works, strict=True):
        share = work / total
        name = _kind(cells.ops[int(row.op)], row)
        kinds[name] = kinds.get(name, 0.0) + share
        for axis, size in enumerate((row.c_in, row.c_out, row.h_out, row.k_h * row.k_w)):
            coordinates[axis] += share * math.log2(max(size, 1.0))
    return tuple(sorted(kinds.items())), tuple(coordinates)


class _Row(NamedTuple):
    """The columns of a kernel's geometry that describe it."""

    op: float
    kind: float
    c_in: float
    c_out: float
    h_out: float
    k_h: float
    k_w: float
    groups: float
    flop: float
    in_bytes: float
    weight_bytes: float
    out_bytes: float


_CHOSEN = [COLUMN[name] for name in _Row._fields]


def _kind(op: str, row: _Row) -> str:
    if int(row.kind) != KINDS["conv"]:
        return op
    if row.groups > 1:
        return f"{op} depthwise" if row.groups == row.c_in else f"{op} grouped"
    return f"{op} 1x1" if row.k_h * row.k_w == 1 else f"{op} kxk"


@lru_cache(maxsize=MOST_REMEMBERED)
def prior(signature: str, text: str, count: int, latency: CellLatency) -> CellPrior:
    """A cell with this latency, as the gate works on it."""
    kinds, coordinates = describe(text)
    is_measured = latency.source == "measured"
    return CellPrior(
        signature=signature,
        count=count,
        latency_us=latency.latency_us,
        spread_share=latency.spread_share,
        trusted=latency.trusted and latency.latency_us is not None,
        source=latency.source if latency.latency_us is not None else "unsupported",
        cost_s=0.0 if is_measured else measuring_cost_s(latency.latency_us),
        kinds=kinds,
        coordinates=_with_latency(coordinates, latency.latency_us),
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


def _with_latency(coordinates: tuple[float, ...], latency_us: float | None) -> tuple[float, ...]:
    """Errors of a cell of a few µs and of one of some ms have different causes: one more axis."""
    return coordinates if latency_us is None else (*coordinates, math.log2(max(latency_us, 1e-3)))
