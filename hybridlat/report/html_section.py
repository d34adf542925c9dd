"""One network on the page: the answer, its cells in time and as a graph, a table of them."""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path
from string import Template

from hybridlat.report.cell_texts import Row, chain, rows_of, where_text
from hybridlat.report.table import Html, Table, titled
from hybridlat.report.units import (
    basis_text,
    confidence_text,
    each_text,
    first_upper,
    interval_text,
    latency_text,
    measured_now_text,
    not_run_text,
    percent_text,
    plus_minus_text,
    remarks,
    scale_for,
    width_text,
)
from hybridlat.schema.estimate import Estimate

_CHAIN = 60  # letters of a cell's kernels until it is opened
_LETTERS, _LEAST = 150, 7  # that the whole line of time has room for; fewer say nothing
_LIMITS = ("compute", "memory", "launch", "")  # the last: nothing explains the time
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
    shown = {row.limit.partition(" ")[0] for row in rows_of(estimate, fold=False)}
    limits = "".join(
        f'<span class="key-word {name or "none"}">{name or "not known"}</span>'
        for name in _LIMITS if name in shown
    )  # fmt: skip
    return asset("roofline.html").substitute(source=source, limits=limits)


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
    whole, short = chain(row.ops), chain(row.ops, _CHAIN)
    kernels = f"<p>{escape(whole)}</p>" if short != whole else ""
    return (
        f"<details><summary>{escape(short)}</summary>{kernels}<p>{escape(names)}</p>"
        f"{reason}<p><code>{escape(cell.signature)}</code></p></details>"
    )


def _removed(estimate: Estimate) -> str:
    """All operators that the engine does not run, folded until they are opened."""
    if not estimate.removed:
        return ""
    names = escape(", ".join(estimate.removed))
    return (
        f'<details class="removed"><summary>Not run: {not_run_text(estimate)}</summary>'
        f"<p>{names}</p></details>"
    )


def _timeline(estimate: Estimate) -> str:
    """All cells in the order in which the network first uses them, each as wide as its share."""
    boxes, sources = [], set()
    for number, cell in enumerate(estimate.cells):
        if not cell.latency_us or not cell.share:
            continue
        room = int(_LETTERS * cell.share)
        kernels, label = chain(cell.ops), chain(cell.ops, room)
        if estimate.structure is not None:
            paths = estimate.structure.paths(number)
            kernels, label = f"{where_text(paths)}\n{kernels}", where_text(paths, room) or label
        tip = (
            f"{kernels}\n×{cell.uses}, {latency_text(cell.latency_us)} each, "
            f"{percent_text(cell.share)}, {cell.source}"
        )
        boxes.append(
            f'<span class="cell {cell.source}" data-cell="{number}" title="{escape(tip)}" '
            f'style="flex:{cell.share:.6f}">{escape(label) if room >= _LEAST else ""}</span>'
        )
        sources.add(cell.source)
    if not boxes:
        return ""
    keys = "".join(f'<span class="key-word {name}">{name}</span>' for name in sorted(sources))
    return (
        f'<figure class="timeline"><div class="strip">{"".join(boxes)}</div>\n'
        "<figcaption>Cells in the order of their first use, all uses of a cell together. "
        f"{keys}</figcaption>\n</figure>"
    )
