"""One self-contained page: the answer, a timeline of the cells and a table; no outside requests."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hybridlat.report.basis import basis_text, measured_now_text
from hybridlat.report.doubt import why_untrusted
from hybridlat.report.labels import chain, short_chain
from hybridlat.report.style import STYLE
from hybridlat.report.units import (
    count_text,
    first_upper,
    half_width_share,
    interval_text,
    latency_text,
    percent_text,
    plus_minus_text,
    scale_for,
)
from hybridlat.schema.estimate import CellEstimate, Estimate

_WIDTH = 1000.0  # of the drawing, in its own units
_LEFT = 8.0
_SPAN = _WIDTH - 2 * _LEFT
_LETTER = 6.6  # width of a letter of the segments' labels


def page(estimates: Sequence[Estimate], tolerance: float | None = None) -> str:
    """The whole HTML document for one or several estimates; ``tolerance`` as asked for (0..1)."""
    title = ", ".join(estimate.network for estimate in estimates)
    sections = "\n".join(_section(estimate, tolerance) for estimate in estimates)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)} · latency</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{sections}\n</main>\n</body>\n</html>\n"
    )


def _section(estimate: Estimate, tolerance: float | None) -> str:
    return "\n".join(
        ["<section>", _header(estimate), _notes(estimate, tolerance), _timeline(estimate),
         _table(estimate), _removed(estimate), "</section>"]
    )  # fmt: skip


def _header(estimate: Estimate) -> str:
    width = half_width_share(estimate.latency_us, estimate.interval_us)
    interval = ""
    if estimate.interval_us is not None:
        interval = (
            f'<span class="interval">{plus_minus_text(width)} · '
            f"{interval_text(estimate.interval_us)} · {percent_text(estimate.confidence, 0)} sure"
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
        f"<h1>{escape(estimate.network)}</h1>\n"
        f'<p class="answer"><span class="latency">{latency_text(estimate.latency_us)}</span>'
        f"{interval}{doubt}</p>\n<dl>{items}</dl>"
    )


def _notes(estimate: Estimate, tolerance: float | None) -> str:
    lines = []
    missing = [cell for cell in estimate.cells if cell.source == "unsupported"]
    for cell in missing:
        reason = f": {cell.reason}" if cell.reason else ""
        lines.append(("bad", f"{chain(cell.ops)} has no latency and is left out{reason}"))
    if not missing and not estimate.within_tolerance:
        lines.append(("bad", f"{first_upper(why_untrusted(estimate, tolerance))}."))
    if estimate.to_measure:
        lines.append(
            ("warn", f"To be sure, measure {count_text(len(estimate.to_measure), 'cell')}.")
        )
    lines += [("warn", warning) for warning in estimate.warnings]
    if not lines:
        return ""
    items = "".join(f'<li class="{kind}">{escape(text)}</li>' for kind, text in lines)
    return f'<ul class="notes">{items}</ul>'


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
        parts.append(_segment(cell, start, width, position % 2))
        start += width
    sources = sorted({cell.source for cell in cells})
    legend = "".join(f'<span class="key {source}">{source}</span>' for source in sources)
    return (
        "<figure>\n"
        f'<svg viewBox="0 0 {_WIDTH:.0f} 104" role="img" '
        'aria-label="Time of the cells in network order">\n'
        + "\n".join([*parts, _whisker(estimate, unit), _axis(whole_us, unit)])
        + f'\n</svg>\n<figcaption>Cells in the order of their first use, all uses of a cell '
        f"together. The line below is the network with its interval. {legend}</figcaption>\n"
        "</figure>"
    )  # fmt: skip


def _segment(cell: CellEstimate, start: float, width: float, parity: int) -> str:
    """One cell: a box with its name where there is room, and everything in its tooltip."""
    tip = (
        f"{chain(cell.ops)}\n×{cell.count}, {latency_text(cell.latency_us)} each, "
        f"{percent_text(cell.share)}, {cell.source}"
    )
    room = int((width - 8) / _LETTER)
    label = short_chain(cell.ops, room) if room >= 6 else ""
    if label.endswith("…") and len(label) < 9:
        label = ""
    text = f'<text x="{start + width / 2:.2f}" y="34">{escape(label)}</text>' if label else ""
    gap = 1.0 if width > 3 else 0.0
    return (
        f'<g class="cell {cell.source} p{parity}"><title>{escape(tip)}</title>'
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


def _table(estimate: Estimate) -> str:
    cells = sorted(estimate.cells, key=lambda c: (c.latency_us is not None, -_total_us(c)))
    top = max((cell.share for cell in cells), default=0.0) or 1.0
    scale = scale_for(cell.latency_us for cell in cells)
    decimals = 3 if scale.unit_us > 1 else 1
    rows = []
    for cell in cells:
        each = "–" if cell.latency_us is None else scale.number(cell.latency_us, decimals)
        width = plus_minus_text(half_width_share(cell.latency_us, cell.interval_us))
        names = ", ".join(name for name in cell.nodes if name)
        reason = f"<p>{escape(first_upper(cell.reason))}.</p>" if cell.reason else ""
        where = (
            f"<details><summary>{escape(chain(cell.ops))}</summary><p>{escape(names)}</p>"
            f"{reason}<p><code>{escape(cell.signature)}</code></p></details>"
        )
        rows.append(
            f'<tr><td class="bar"><i class="{cell.source}" '
            f'style="width:{100 * cell.share / top:.1f}%"></i></td>'
            f"<td>{percent_text(cell.share)}</td><td>×{cell.count}</td><td>{each}</td>"
            f'<td>{width}</td><td class="source {cell.source}">{cell.source}</td>'
            f'<td class="ops">{where}</td></tr>'
        )
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("", "share", "uses", f"each, {scale.name}", "interval", "source", "cell")
    )
    body = "\n".join(rows)
    return (
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _removed(estimate: Estimate) -> str:
    """All operators that the engine does not run, out of the way until they are asked for."""
    if not estimate.removed:
        return ""
    count = count_text(len(estimate.removed), "operator")
    constants = f", {estimate.constants} of them only make constants" if estimate.constants else ""
    names = escape(", ".join(estimate.removed))
    return (
        f'<details class="removed"><summary>{count} of the file not run{constants}</summary>'
        f"<p>{names}</p></details>"
    )


def _total_us(cell: CellEstimate) -> float:
    return cell.count * (cell.latency_us or 0.0)
