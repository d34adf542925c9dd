"""One network on the page: the answer, its cells in time and as a graph, a table of them."""

from __future__ import annotations

import math
from functools import cache
from html import escape
from pathlib import Path
from string import Template

from hybridlat.report.cell_texts import chain, where_text
from hybridlat.report.cells_table import Row, rows_of
from hybridlat.report.table import Html, Table, titled
from hybridlat.report.units import (
    basis_text,
    confidence_text,
    count_text,
    each_text,
    first_upper,
    interval_text,
    latency_text,
    measured_now_text,
    percent_text,
    plus_minus_text,
    remarks,
    scale_for,
    width_text,
)
from hybridlat.schema.estimate import CellEstimate, Estimate

_WIDTH = 1000.0  # of the line of time, in its own units
_LEFT = 8.0
_SPAN = _WIDTH - 2 * _LEFT
_LETTER = 6.6  # width of a letter of the segments' labels
_ASSETS = Path(__file__).parent / "assets"


@cache
def asset(name: str) -> Template:
    """A file that is part of the page, ``$name`` standing for what is filled in."""
    return Template((_ASSETS / name).read_text(encoding="utf-8"))


def network_section(estimate: Estimate, number: int, heading: str, tolerance: float | None) -> str:
    """The section of the ``number``-th estimate; ``tolerance`` is the user's (0..1)."""
    parts = [
        f'<section id="n{number}" data-network="{number}" aria-label="{escape(heading)}">',
        _header(estimate, heading), _remarks(estimate, tolerance), _timeline(estimate),
        _graph(estimate), _roofline(estimate), _table(estimate), _removed(estimate), "</section>",
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


def _header(estimate: Estimate, heading: str) -> str:
    interval = ""
    if estimate.interval_us is not None:
        interval = (
            f'<span class="interval">{width_text(estimate)} · '
            f"{interval_text(estimate.interval_us)} · {confidence_text(estimate.confidence)} sure"
            "</span>"
        )
    doubt = "" if estimate.trusted else '<span class="doubt">not to be trusted</span>'
    facts = {
        "target": estimate.target,
        "batch": str(estimate.batch),
        "rests on": basis_text(estimate),
        "measured just now": measured_now_text(estimate) or "nothing",
        "sum of cells": latency_text(estimate.sum_of_cells_us),
        "answered in": latency_text(estimate.elapsed_s * 1e6),
    }
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return (
        f"<h1>{escape(heading)}</h1>\n"
        f'<p class="answer"><span class="latency">{latency_text(estimate.latency_us)}</span>'
        f'{interval}{doubt}</p>\n<dl class="facts">{items}</dl>'
    )


def _remarks(estimate: Estimate, tolerance: float | None) -> str:
    items = "".join(
        f'<li class="{remark.kind}">{escape(remark.text)}</li>'
        for remark in remarks(estimate, tolerance)
    )
    return f'<ul class="notes">{items}</ul>' if items else ""


def _graph(estimate: Estimate) -> str:
    """The frame that the script draws the graph of cells into, hidden where there is no script."""
    if estimate.structure is None or not estimate.structure.places:
        return ""
    return asset("graph.html").template


def _roofline(estimate: Estimate) -> str:
    structure = estimate.structure
    if structure is None or structure.roofs is None:
        return ""
    roofs = structure.roofs
    source = f" Roofs: {escape(roofs.source)}." if roofs.source else ""
    return asset("roofline.html").substitute(source=source)


def _table(estimate: Estimate) -> str:
    rows = rows_of(estimate, fold=False)
    if not rows:
        return ""
    top = max(row.share for row in rows) or 1.0
    scale = scale_for(row.latency_us for row in rows)
    number_of = {cell.signature: i for i, cell in enumerate(estimate.cells)}
    limits = any(row.limit for row in rows)
    words = estimate.structure is not None
    columns = [
        *titled("", "share", "uses", f"each, {scale.name}", "interval", right=True),
        *titled("source", *(["limit"] if limits else []), *(["where", "what"] if words else []),
                "cell", wraps=True),
    ]  # fmt: skip
    lines = []
    for row in rows:
        meter = f'<i class="{row.source}" style="width:{100 * row.share / top:.1f}%"></i>'
        place = (
            '<button type="button" class="show" title="show in the graph">'
            f"{escape(row.where())}</button>"
        )
        lines.append([
            Html(meter, "meter"), percent_text(row.share), f"×{row.count}",
            each_text(scale, row.latency_us), plus_minus_text(row.half_width_share),
            Html(row.source, f"source word tight {row.source}"),
            *([Html(row.limit, "word tight")] if limits else []),
            *([Html(place, "word tight"), Html(escape(row.what), "word tight")] if words else []),
            Html(_opened(row), "word ops"),
        ])  # fmt: skip
    attributes = [f' data-cell="{number_of[row.cells[0].signature]}"' for row in rows]
    return f"<h2>Cells, slowest first</h2>\n{Table(columns, lines).page(attributes)}"


def _opened(row: Row) -> str:
    """The kernels, opened to the operators of the file and the cell's signature."""
    cell = row.cells[0]
    names = ", ".join(name for name in cell.nodes if name)
    reason = f"<p>{escape(first_upper(cell.reason))}.</p>" if cell.reason else ""
    return (
        f"<details><summary>{escape(chain(row.ops))}</summary><p>{escape(names)}</p>"
        f"{reason}<p><code>{escape(cell.signature)}</code></p></details>"
    )


def _removed(estimate: Estimate) -> str:
    """All operators that the engine does not run, folded until they are opened."""
    if not estimate.removed:
        return ""
    others = len(estimate.removed) - estimate.constants
    counts = [f"{count_text(others, 'operator')} without a kernel"] if others else []
    if estimate.constants:
        makes = "makes" if estimate.constants == 1 else "make"
        counts.append(f"{count_text(estimate.constants, 'operator')} that only {makes} constants")
    names = escape(", ".join(estimate.removed))
    return (
        f'<details class="removed"><summary>Not run: {", ".join(counts)}</summary>'
        f"<p>{names}</p></details>"
    )


def _timeline(estimate: Estimate) -> str:
    """All cells end to end, in the order in which the network first uses them, as inline SVG."""
    cells = [cell for cell in estimate.cells if cell.latency_us]
    ends = [estimate.sum_of_cells_us, *(estimate.interval_us or ()), estimate.latency_us or 0.0]
    whole_us = max([*ends, sum(_total_us(cell) for cell in cells)])
    if not cells or whole_us <= 0:
        return ""
    unit = _SPAN / whole_us
    parts = []
    start = _LEFT
    for position, cell in enumerate(cells):
        width = _total_us(cell) * unit
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
    label = chain(cell.ops, room) if room >= 6 else ""
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
    power = 10.0 ** math.floor(math.log10(step_us))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step_us)


def _total_us(cell: CellEstimate) -> float:
    """Time of all uses of a cell in µs; 0 for one without a latency."""
    return cell.count * (cell.latency_us or 0.0)
