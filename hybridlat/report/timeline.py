"""The cells of a network end to end on a line of time, drawn as SVG."""

from __future__ import annotations

from html import escape

from hybridlat.report.cell_texts import where_text
from hybridlat.report.labels import chain, short_chain
from hybridlat.report.units import interval_text, latency_text, percent_text, scale_for
from hybridlat.schema.estimate import CellEstimate, Estimate

_WIDTH = 1000.0  # of the drawing, in its own units
_LEFT = 8.0
_SPAN = _WIDTH - 2 * _LEFT
_LETTER = 6.6  # width of a letter of the segments' labels


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
