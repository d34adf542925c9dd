"""One self-contained page: answers, graphs of cells, curves and comparisons; no outside requests.

Everything that the page says stands in it as text and tables; the script adds drawings. Its
libraries are part of the file (``assets/vendor``), and a content policy forbids all requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from functools import cache
from importlib.metadata import version
from itertools import compress
from operator import attrgetter
from typing import Any

from hybridlat.report import units
from hybridlat.report.cell_texts import abbreviated, chain, kernel_sizes, row_of, where_text
from hybridlat.report.compare import Ratios, differences_table, letter_of, networks_table
from hybridlat.report.html_section import asset, network_section
from hybridlat.report.prediction_table import basis_note, table_of
from hybridlat.report.table import Table, escape
from hybridlat.schema.estimate import Estimate

_LIBRARIES = ("d3", "dagre")
_SCRIPTS = ("format.js", "layout.js", "graph.js", "plots.js", "main.js")
_DIFFERENCES = 20  # cells that are shown
_STEERING = re.compile("[<\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LABEL = 40  # letters of a chain of kernels; its whole is beside it


def page(
    estimates: Sequence[Estimate], *, command: str = "", over: str = "",
    values: Sequence[float] = (), table: Table | None = None, ratios: Ratios = (),
) -> str:  # fmt: skip
    """The whole HTML document for one or several estimates; ``command`` made it, says its foot.

    Estimates of one network on one target at several batches are drawn as a curve of latency and
    throughput, estimates of several networks or targets are compared. Those of a sweep are one
    curve ``over`` its ``values``, with its own ``table``.
    """
    names = list(dict.fromkeys(estimate.network for estimate in estimates))
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    named = headings(estimates)
    parts = []
    if len(named) > 1:
        links = "".join(f'<li><a href="#n{i}">{escape(n)}</a></li>' for i, n in enumerate(named))
        parts.append(f'<nav aria-label="Networks on this page"><ol>{links}</ol></nav>')
    if table is not None:
        parts.append(_curve(estimates, range(len(estimates)), over, values, table))
    elif len({(e.network, e.target) for e in estimates}) > 1:
        parts.append(_comparison(estimates, ratios))
    for curve in curves_of(estimates) if table is None else ():
        parts.append(_curve([estimates[i] for i in curve], curve))
    parts += [network_section(estimate, i, named[i]) for i, estimate in enumerate(estimates)]
    networks = [
        {"letter": letter_of(i), "heading": named[i], **_network(estimate)}
        for i, estimate in enumerate(estimates)
    ]
    made = f"hybridlat {version('hybridlat')} · {date.today().isoformat()}"
    return asset("page.html").substitute(
        title=escape(title),
        style=asset("page.css").template,
        body="\n".join(parts),
        foot=f"{made} · <code>{escape(command)}</code>" if command else made,
        data=_script_json({"networks": networks}),
        libraries=_libraries(),
        scripts="".join(asset(name).template for name in _SCRIPTS),
    )


@cache
def _libraries() -> str:
    """The libraries as they were published, each after its licence."""
    scripts = []
    for name in _LIBRARIES:
        code = asset(f"vendor/{name}.min.js").template
        lines = [line for line in code.splitlines() if not line.startswith("//# sourceMappingURL")]
        licence = asset(f"vendor/{name}.LICENSE").template.strip()
        scripts.append(f"<script>\n/* {name}\n{licence}\n*/\n" + "\n".join(lines) + "\n</script>\n")
    return "".join(scripts)


def headings(estimates: Sequence[Estimate]) -> list[str]:
    """The networks' names, with what the estimates differ by: batches, targets."""
    words = [(e.network, f"batch {e.batch}", e.target) for e in estimates]
    _, *others = (len(set(column)) > 1 for column in zip(*words, strict=True))
    return [" · ".join(compress(each, [True, *others])) for each in words]


def _comparison(estimates: Sequence[Estimate], ratios: Ratios) -> str:
    table = networks_table(estimates, ratios)
    cells = differences_table(estimates, _DIFFERENCES)
    apart = f"<h2>Cells that make the difference</h2>\n{cells.page()}" if cells.rows else ""
    hints = filter(None, [str(table.caption or ""), basis_note(estimates)])
    where = "".join(f'<p class="hint">{escape(hint)}</p>\n' for hint in hints)
    return (
        f"<section>\n<h1>{len(estimates)} estimates side by side</h1>\n{where}"
        '<figure class="comparison" hidden><div class="plot"></div></figure>\n'
        f"{table.page()}{apart}</section>"
    )


def curves_of(estimates: Sequence[Estimate]) -> list[list[int]]:
    """A curve for every network and target that there are two batches or more of.

    It is the positions of the estimates by rising batch, each batch once.
    """
    by_network: dict[tuple[str, str], dict[int, int]] = {}
    for i, estimate in enumerate(estimates):
        by_network.setdefault((estimate.network, estimate.target), {})[estimate.batch] = i
    batches = (sorted(by_batch.items()) for by_batch in by_network.values())
    return [[i for _, i in curve] for curve in batches if len(curve) > 1]


_batch = attrgetter("batch")


def _curve(
    curve: Sequence[Estimate], positions: Sequence[int], over: str = "batch",
    values: Sequence[float] = (), table: Table | None = None,
) -> str:  # fmt: skip
    points, at = (" ".join(map(str, each)) for each in (positions, values or map(_batch, curve)))
    name = curve[0].network.removesuffix(f" at {over} {at.split()[0]}")
    return (
        f"<section>\n<h1>{escape(name)} over {over}{'es' if over == 'batch' else 's'}</h1>\n"
        f'<p class="hint">on {escape(curve[0].target)}</p>\n'
        f'<figure data-curve="{points}" data-over="{over}" data-values="{at}" hidden>'
        f'<div class="plot"></div></figure>\n{(table or table_of(curve)).page()}</section>'
    )


def _script_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _network(estimate: Estimate) -> dict[str, Any]:
    structure, body = estimate.structure, estimate.to_json()
    return {name: body[name] for name in ("network", "batch", "latency_us", "interval_us")} | {
        "latency": units.answer_text(estimate)[0],
        "throughput": units.fps_text(estimate.throughput_per_s),
        "cells": [_cell(estimate, i, cell) for i, cell in enumerate(body["cells"])],
        "places": [asdict(place) for place in structure.places] if structure else [],
        "roofs": asdict(structure.roofs) if structure and structure.roofs else None,
    }  # fmt: skip


def _cell(estimate: Estimate, position: int, body: dict[str, Any]) -> dict[str, Any]:
    cell, row = estimate.cells[position], row_of(estimate, position)
    latency = units.latency_text(cell.latency_us)
    if cell.latency_us is not None and cell.latency_us < units.RESOLUTION_US:
        latency = f"< {units.RESOLUTION_US:g} µs"
    made_of = () if estimate.structure is None else estimate.structure.cells[position].kernels
    return body | {
        "nodes": None,  # they stand in the places
        "label": chain(row.ops, _LABEL),
        "operators": " ".join(sorted({*row.ops})),
        "ops": chain(row.ops),
        "latency": latency,
        "reach": "" if row.half_width_share is None else row.reach(),
        "half_width_share": row.half_width_share,
        "share_text": units.percent_text(cell.share if cell.latency_us is not None else None),
        "where": where_text(row.paths),
        "what": row.what,
        "kernels": [
            {"op": abbreviated(kernel.op), "what": kernel_sizes(kernel), "reads": kernel.reads}
            for kernel in made_of
        ],
    }
