"""What the page's drawings are made from: plain values, with the words that people see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hybridlat.report.cell_texts import kernel_sizes, what_text, where_text
from hybridlat.report.compare import letter_of
from hybridlat.report.labels import abbreviated, chain, short_chain
from hybridlat.report.rows import running_ops
from hybridlat.report.units import (
    RESOLUTION_US,
    cell_half_width_share,
    latency_text,
    percent_text,
    plus_minus_text,
)
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.structure import CellStructure

_LABEL = 40  # letters of a chain of kernels; its whole is beside it


def script_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def page_data(estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    """One object per estimate: cells, their places in the network, roofs of the device."""
    named = headings(estimates)
    return [
        {"letter": letter_of(number), "heading": named[number], **_network(estimate)}
        for number, estimate in enumerate(estimates)
    ]


def headings(estimates: Sequence[Estimate]) -> list[str]:
    """The networks' names, with what tells the estimates apart: their batches, their targets."""
    batches = len({estimate.batch for estimate in estimates}) > 1
    targets = len({estimate.target for estimate in estimates}) > 1
    return [
        estimate.network
        + (f" · batch {estimate.batch}" if batches else "")
        + (f" · {estimate.target}" if targets else "")
        for estimate in estimates
    ]


def _network(estimate: Estimate) -> dict[str, Any]:
    structure = estimate.structure
    return {
        "network": estimate.network,
        "target": estimate.target,
        "batch": estimate.batch,
        "latency_us": estimate.latency_us,
        "interval_us": estimate.interval_us,
        "cells": [_cell(estimate, position) for position in range(len(estimate.cells))],
        "places": [
            {
                "cell": p.cell, "reads": p.reads, "path": p.path,
                "names": [p.names[i] for i in structure.cells[p.cell].running],
            }
            for p in structure.places
        ] if structure else [],
        "roofs": {
            "title": structure.roofs.title,
            "peak_flop_per_s": structure.roofs.peak_flop_per_s,
            "bandwidth_bytes_per_s": structure.roofs.bandwidth_bytes_per_s,
            "source": structure.roofs.source,
        } if structure and structure.roofs else None,
    }  # fmt: skip


def _cell(estimate: Estimate, position: int) -> dict[str, Any]:
    cell = estimate.cells[position]
    structure = estimate.structure
    ops = running_ops(cell, structure.cells[position]) if structure else cell.ops
    half_width = cell_half_width_share(cell.latency_us, cell.interval_us)
    body: dict[str, Any] = {
        "label": short_chain(ops, _LABEL),
        "ops": chain(ops),
        "count": cell.count,
        "latency_us": cell.latency_us,
        "latency": latency_or_less(cell.latency_us),
        "plus_minus": "" if half_width is None else plus_minus_text(half_width),
        "half_width_share": half_width,
        "share": cell.share,
        "share_text": percent_text(cell.share if cell.latency_us is not None else None),
        "source": cell.source,
        "reason": cell.reason,
        "signature": cell.signature,
    }
    if estimate.structure is not None:
        made_of = estimate.structure.cells[position]
        limit = made_of.limit(cell.latency_us)
        body |= {
            "where": where_text(estimate.structure.paths(position)),
            "what": what_text(made_of),
            "flop": made_of.flop,
            "bytes": made_of.bytes,
            "limit": limit[0] if limit else None,
            "limit_share": limit[1] if limit else None,
            "kernels": _kernels(made_of),
            "constants": len(made_of.kernels) - len(made_of.running),
        }
    return body


def _kernels(cell: CellStructure) -> list[dict[str, Any]]:
    """The kernels that compute something of the input, as they read each other."""
    index_of = {kernel: i for i, kernel in enumerate(cell.running)}
    kernels = []
    for position in cell.running:
        kernel = cell.kernels[position]
        kernels.append(
            {
                "op": abbreviated(kernel.op),
                "what": kernel_sizes(kernel),
                "reads": [index_of[i] for i in kernel.reads if i in index_of],
            }
        )
    return kernels


def latency_or_less(latency_us: float | None) -> str:
    """A cell's latency; what is below the resolution is only said to be."""
    if latency_us is not None and latency_us < RESOLUTION_US:
        return f"< {RESOLUTION_US:g} µs"
    return latency_text(latency_us)
