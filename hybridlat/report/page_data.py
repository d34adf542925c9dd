"""The page's drawings: the line of time, and plain values that scripts draw the others from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from hybridlat.report.cell_texts import (
    abbreviated,
    chain,
    kernel_sizes,
    short_chain,
    what_text,
    where_text,
)
from hybridlat.report.cells_table import running_ops
from hybridlat.report.compare import letter_of
from hybridlat.report.units import (
    RESOLUTION_US,
    cell_half_width_share,
    interval_text,
    latency_text,
    percent_text,
    plus_minus_text,
    scale_for,
)
from hybridlat.schema.estimate import CellEstimate, CellStructure, Estimate

_LABEL = 40  # letters of a chain of kernels; its whole is beside it
_WIDTH = 1000.0  # of the drawing, in its own units
_LEFT = 8.0
_SPAN = _WIDTH - 2 * _LEFT
_LETTER = 6.6  # width of a letter of the segments' labels


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
    """The networks' names, with what the estimates differ by: batches, targets."""
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
    """A cell's latency; `< 1 µs` below the resolution."""
    if latency_us is not None and latency_us < RESOLUTION_US:
        return f"< {RESOLUTION_US:g} µs"
    return latency_text(latency_us)


def timeline(estimate: Estimate) -> str:
    """All cells end to end, in the order in which the network first uses them, as inline SVG."""
    cells = [cell for cell in estimate.cells if cell.latency_us]
    ends = [estimate.sum_of_cells_us, *(estimate.interval_us or ()), estimate.latency_us or 0.0]
    whole_us = max([*ends, sum(total_us(cell) for cell in cells)])
    if not cells or whole_us <= 0:
        return ""
    unit = _SPAN / whole_us
    parts = []
    start = _LEFT
    for position, cell in enumerate(cells):
        width = total_us(cell) * unit
        parts.append(_segment(estimate, estimate.cells.index(cell), start, width, position % 2))
        start += width
    sources = sorted({cell.source for cell in cells})
    legend = "".join(f'<span class="key-word {source}">{source}</span>' for source in sources)
    return (
        '<figure class="timeline"><div class="scroll">\n'
        f'<svg viewBox="0 0 {_WIDTH:.0f} 104" role="img" '
        'aria-label="Time of the cells in network order">\n'
        + "\n".join([*parts, _whisker(estimate, unit), _axis(whole_us, unit)])
        + f'\n</svg></div>\n<figcaption>Cells in the order of their first use, all uses of a cell '
        f"together. The line below is the network with its interval. {legend}</figcaption>\n"
        "</figure>"
    )  # fmt: skip


def _segment(estimate: Estimate, number: int, start: float, width: float, parity: int) -> str:
    """One cell: a box with its name where there is room, and everything in its tooltip."""
    cell = estimate.cells[number]
    where = where_text(estimate.structure.paths(number)) if estimate.structure else ""
    tip = (
        f"{where}\n{chain(cell.ops)}\n×{cell.count}, {latency_text(cell.latency_us)} each, "
        f"{percent_text(cell.share)}, {cell.source}"
    )
    room = int((width - 8) / _LETTER)
    label = short_chain(cell.ops, room) if room >= 6 else ""
    if label.endswith("…") and len(label) < 9:
        label = ""
    if estimate.structure and where:
        label = where_text(estimate.structure.paths(number), room) if room >= 7 else ""
    text = f'<text x="{start + width / 2:.2f}" y="34">{escape(label)}</text>' if label else ""
    gap = 1.0 if width > 3 else 0.0
    return (
        f'<g class="cell {cell.source} p{parity}" data-cell="{number}"><title>{escape(tip)}</title>'
        f'<rect x="{start:.2f}" y="8" width="{max(width - gap, 0.3):.2f}" height="44" rx="2"/>'
        f"{text}</g>"
    )


def _whisker(estimate: Estimate, unit: float) -> str:
    """The network's latency as a point and its interval as a line, on the cells' scale."""
    if estimate.latency_us is None:
        return ""
    middle = _LEFT + estimate.latency_us * unit
    drawn = [f'<circle cx="{middle:.2f}" cy="64" r="3.5"/>']
    if estimate.interval_us is not None:
        low, high = (_LEFT + end * unit for end in estimate.interval_us)
        drawn.append(f'<path d="M{low:.2f} 59v10M{low:.2f} 64H{high:.2f}M{high:.2f} 59v10"/>')
    tip = f"{latency_text(estimate.latency_us)} ({interval_text(estimate.interval_us)})"
    return f'<g class="whisker"><title>{escape(tip)}</title>{"".join(drawn)}</g>'


def _axis(whole_us: float, unit: float) -> str:
    scale = scale_for([whole_us])
    step_us = _round_step(whole_us / 6)
    decimals = 0 if step_us >= scale.unit_us else 1 if step_us >= scale.unit_us / 10 else 2
    marks = []
    for i in range(int(whole_us / step_us) + 1):
        x = _LEFT + i * step_us * unit
        anchor = ' class="first"' if i == 0 else ""
        name = f" {scale.name}" if i == 0 else ""
        marks.append(
            f'<path d="M{x:.2f} 76v5"/>'
            f'<text x="{x:.2f}" y="97"{anchor}>{scale.number(i * step_us, decimals)}{name}</text>'
        )
    return f'<g class="axis"><path d="M{_LEFT} 76H{_LEFT + _SPAN}"/>{"".join(marks)}</g>'


def _round_step(step_us: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 1e-3
    while True:
        for factor in (1, 2, 5):
            if factor * power >= step_us:
                return factor * power
        power *= 10


def total_us(cell: CellEstimate) -> float:
    """Time of all uses of a cell in µs; 0 for one without a latency."""
    return cell.count * (cell.latency_us or 0.0)
