"""One network on the page: the answer, its cells in time and as a graph, a table of them."""

from __future__ import annotations

from html import escape

from hybridlat.report.cell_texts import chain, first_and_more, where_text
from hybridlat.report.cells_table import Row, rows_of
from hybridlat.report.page_data import timeline
from hybridlat.report.units import (
    basis_text,
    confidence_text,
    count_text,
    each_text,
    first_upper,
    half_width_share,
    interval_text,
    latency_text,
    measured_now_text,
    percent_text,
    plus_minus_text,
    scale_for,
    why_untrusted,
)
from hybridlat.schema.estimate import Estimate

_COLOURS = {
    "time": "time",
    "limit": "what limits it",
    "reach": "how near its limit",
    "doubt": "width of its interval",
    "source": "measured or predicted",
}


def network_section(estimate: Estimate, number: int, heading: str, tolerance: float | None) -> str:
    """The section of the ``number``-th estimate; ``tolerance`` is the user's (0..1)."""
    parts = [
        f'<section id="n{number}" data-network="{number}" aria-label="{escape(heading)}">',
        _header(estimate, heading), _notes(estimate, tolerance), timeline(estimate),
        _graph(estimate), _roofline(estimate), _table(estimate), _removed(estimate), "</section>",
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


def _header(estimate: Estimate, heading: str) -> str:
    width = half_width_share(estimate.latency_us, estimate.interval_us)
    interval = ""
    if estimate.interval_us is not None:
        interval = (
            f'<span class="interval">{plus_minus_text(width)} · '
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
    lines += [("warn", first_upper(warning)) for warning in estimate.warnings]
    if not lines:
        return ""
    items = "".join(f'<li class="{kind}">{escape(text)}</li>' for kind, text in lines)
    return f'<ul class="notes">{items}</ul>'


def _graph(estimate: Estimate) -> str:
    """The frame that the script draws the graph of cells into, hidden where there is no script."""
    if estimate.structure is None or not estimate.structure.places:
        return ""
    colours = "".join(f'<option value="{key}">{text}</option>' for key, text in _COLOURS.items())
    buttons = "".join(
        f'<button type="button" data-do="{do}" aria-label="{label}" title="{label}">{text}</button>'
        for do, text, label in (
            ("closer", "+", "Zoom in"),
            ("farther", "−", "Zoom out"),
            ("whole", "Whole", "Show the whole graph"),
            ("all", "Open all", "Open or close all cells"),
        )
    )
    return (
        '<div class="graph" hidden>\n<h2>Cells, in the order of the network</h2>\n'
        '<div class="bar-of-tools" role="toolbar" aria-label="Graph of cells">'
        '<input type="search" placeholder="Search modules, operators, node names" '
        'aria-label="Search the cells"><output class="found" aria-live="polite"></output>'
        f'<label>Colour <select data-do="colour">{colours}</select></label>{buttons}</div>\n'
        '<div class="graph-body"><div class="graph-panel"></div>'
        '<aside aria-label="The chosen cell"></aside></div>\n'
        '<div class="legend"></div>\n'
        '<p class="hint">Click a cell, or press Enter on it, to open its kernels; drag to move, '
        "Ctrl and the wheel to zoom. Keys: arrows walk, + − 0 zoom, / searches.</p>\n</div>"
    )


def _roofline(estimate: Estimate) -> str:
    structure = estimate.structure
    if structure is None or structure.roofs is None:
        return ""
    roofs = structure.roofs
    source = f" Roofs: {escape(roofs.source)}." if roofs.source else ""
    return (
        '<div class="roofline" hidden>\n<h2>Roofline</h2>\n<figure><div class="plot"></div>'
        "<figcaption>One dot for each cell, its size the share of the time, its colour what limits "
        "it. The line is what the device allows at best; what lies above its slope takes its data "
        f"from a cache.{source}</figcaption></figure>\n</div>"
    )


def _table(estimate: Estimate) -> str:
    rows = rows_of(estimate, fold=False)
    if not rows:
        return ""
    top = max(row.share for row in rows) or 1.0
    scale = scale_for(row.latency_us for row in rows)
    number_of = {cell.signature: i for i, cell in enumerate(estimate.cells)}
    limits = any(row.limit for row in rows)
    words = estimate.structure is not None
    names = ["", "share", "uses", f"each, {scale.name}", "interval", "source"]
    names += ["limit"] if limits else []
    names += ["where", "what"] if words else []
    head = "".join(
        f'<th scope="col"{_WORD if name in ("source", "limit", "where", "what") else ""}>'
        f"{name or _UNSEEN}</th>"
        for name in names
    )
    body = []
    for row in rows:
        cell = row.cells[0]
        width = "–" if row.half_width_share is None else plus_minus_text(row.half_width_share)
        number = number_of[cell.signature]
        shown = [
            f'<td class="meter"><i class="{row.source}" '
            f'style="width:{100 * row.share / top:.1f}%"></i></td>',
            f"<td>{percent_text(row.share)}</td><td>×{row.count}</td>",
            f"<td>{each_text(scale, row.latency_us)}</td><td>{width}</td>",
            f'<td class="source word tight {row.source}">{row.source}</td>',
        ]
        if limits:
            shown.append(f'<td class="word tight">{row.limit}</td>')
        if words:
            location = escape(where_text(row.paths) or first_and_more(row.nodes) or "by the engine")
            shown.append(
                f'<td class="word tight"><button type="button" class="show" '
                f'title="show in the graph">{location}</button></td>'
            )
            shown.append(f'<td class="word tight">{escape(row.what)}</td>')
        shown.append(f'<td class="word ops">{_opened(row)}</td>')
        body.append(f'<tr data-cell="{number}">{"".join(shown)}</tr>')
    return (
        '<h2>Cells, slowest first</h2>\n<div class="scroll"><table>\n'
        f'<thead><tr>{head}<th scope="col"{_WORD}>cell</th></tr></thead>\n'
        f"<tbody>\n{_LINE.join(body)}\n</tbody>\n</table></div>"
    )


_WORD = ' class="word"'
_UNSEEN = '<span class="unseen">part</span>'
_LINE = "\n"


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
