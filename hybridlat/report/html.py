"""One self-contained page: answers, graphs of cells, curves and comparisons; no outside requests.

Everything that the page says stands in it as text and tables; the script adds drawings. Its
libraries are part of the file (``assets/vendor``), and a content policy forbids all requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from hybridlat.report.cell_texts import chain
from hybridlat.report.compare import CellDifference, against_text, letter_of, shown_differences
from hybridlat.report.html_section import network_section
from hybridlat.report.page_data import headings, page_data, script_json
from hybridlat.report.units import (
    half_width_share,
    interval_text,
    latency_text,
    part_text,
    plus_minus_text,
    scale_for,
    throughput_text,
)
from hybridlat.schema.estimate import Estimate

_ASSETS = Path(__file__).parent / "assets"
_LIBRARIES = ("d3", "dagre")
_SCRIPTS = ("format.js", "layout.js", "graph.js", "plots.js", "main.js")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(estimates: Sequence[Estimate], tolerance: float | None = None) -> str:
    """The whole HTML document for one or several estimates; ``tolerance`` is the user's (0..1).

    Estimates of one network on one target at several batches are drawn as a curve of latency and
    throughput, estimates of several networks or targets are compared.
    """
    names = list(dict.fromkeys(estimate.network for estimate in estimates))
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    curves = curves_of(estimates)
    named = headings(estimates)
    parts = [_contents(named)] if len(named) > 1 else []
    if len({(e.network, e.target) for e in estimates}) > 1:
        parts.append(comparison_section(estimates))
    parts += [curve_section(curve, number) for number, curve in enumerate(curves)]
    parts += [
        network_section(estimate, number, named[number], tolerance)
        for number, estimate in enumerate(estimates)
    ]
    data = {"networks": page_data(estimates), "curves": [curve_data(curve) for curve in curves]}
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)} · latency</title>\n"
        f"<style>\n{_asset('page.css')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n"
        f'<script type="application/json" id="data">{script_json(data)}</script>\n'
        f'{_libraries()}<script>\n(() => {{\n"use strict";\n'
        f"{''.join(map(_asset, _SCRIPTS))}}})();\n</script>\n</body>\n</html>\n"
    )


def _contents(named: Sequence[str]) -> str:
    """Links to the sections of the networks."""
    links = "".join(f'<li><a href="#n{i}">{escape(name)}</a></li>' for i, name in enumerate(named))
    return f'<nav aria-label="Networks on this page"><ol>{links}</ol></nav>'


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


@cache
def _libraries() -> str:
    """The libraries as they were published, each after its licence."""
    scripts = []
    for name in _LIBRARIES:
        code = _asset(f"vendor/{name}.min.js")
        lines = [line for line in code.splitlines() if not line.startswith("//# sourceMappingURL")]
        licence = _asset(f"vendor/{name}.LICENSE").strip()
        scripts.append(f"<script>\n/* {name}\n{licence}\n*/\n" + "\n".join(lines) + "\n</script>\n")
    return "".join(scripts)


ROWS = 20


def comparison_section(estimates: Sequence[Estimate]) -> str:
    """The comparison's part of the page; the first estimate is what the others are held against."""
    targets = len({estimate.target for estimate in estimates}) > 1
    batches = len({estimate.batch for estimate in estimates}) > 1
    first = estimates[0]
    names = ["", "network", *(["target"] if targets else []), *(["batch"] if batches else []),
             "latency", "interval", *([] if batches else ["against A"]), "measured"]  # fmt: skip
    words = ("network", "target")
    head = "".join(
        f'<th scope="col"{_WORD if name in words else ""}>{name or _UNSEEN}</th>' for name in names
    )
    rows = []
    for number, estimate in enumerate(estimates):
        width = half_width_share(estimate.latency_us, estimate.interval_us)
        text, kind = ("", "") if estimate is first else against_text(first, estimate)
        shown = [
            f"<td><b>{letter_of(number)}</b></td>",
            f"<td{_WORD}>{escape(estimate.network)}</td>",
        ]
        if targets:
            shown.append(f"<td{_WORD}>{escape(estimate.target)}</td>")
        if batches:
            shown.append(f"<td>{estimate.batch}</td>")
        shown += [
            f"<td><b>{latency_text(estimate.latency_us)}</b></td>",
            f"<td>{plus_minus_text(width)}</td>",
            *([] if batches else [f'<td class="{kind}">{text}</td>']),
            f"<td>{escape(part_text(estimate.measured_share))}</td>",
        ]
        rows.append(f"<tr>{''.join(shown)}</tr>")
    where = "" if targets else f'<p class="hint">on {escape(first.target)}</p>\n'
    return (
        f"<section>\n<h1>{len(estimates)} estimates side by side</h1>\n{where}"
        '<figure class="comparison" hidden><div class="plot"></div></figure>\n'
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{_LINE.join(rows)}\n</tbody>\n</table></div>\n"
        f"{_differences(estimates)}</section>"
    )


_WORD = ' class="word"'
_UNSEEN = '<span class="unseen">letter</span>'
_LINE = "\n"


def _differences(estimates: Sequence[Estimate]) -> str:
    rows = shown_differences(estimates)
    if not rows or len({(e.target, e.batch) for e in estimates}) > 1:
        return ""  # cells of other targets or batches are other cells: nothing to hold side by side
    scale = scale_for(total for row in rows for total in row.total_us)
    head = "".join(
        f'<th scope="col">{letter_of(number)}, {scale.name}</th>'
        for number in range(len(estimates))
    )

    def cells(row: CellDifference) -> str:
        return "".join(
            "<td>–</td>" if count == 0
            else "<td>unknown</td>" if total is None
            else f"<td>{scale.number(total)} ×{count}</td>"
            for total, count in zip(row.total_us, row.count, strict=True)
        )  # fmt: skip

    body = _LINE.join(
        f"<tr>{cells(row)}<td{_WORD}>{escape(row.what)}</td><td{_WORD}>{escape(chain(row.ops))}</td></tr>"
        for row in rows[:ROWS]
    )
    more = (
        f'<p class="hint">{len(rows) - ROWS} more cells differ less.</p>\n'
        if len(rows) > ROWS
        else ""
    )
    return (
        '<h2>Cells that make the difference</h2>\n<div class="scroll"><table>\n'
        f'<thead><tr>{head}<th scope="col"{_WORD}>what</th>'
        f'<th scope="col"{_WORD}>cell</th></tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>\n{more}"
    )


@dataclass(frozen=True)
class BatchCurve:
    """Estimates of one network on one target, by rising batch; each batch once."""

    estimates: tuple[Estimate, ...]


def curves_of(estimates: Sequence[Estimate]) -> list[BatchCurve]:
    """A curve for every network and target that was asked at two batches or more."""
    by_network: dict[tuple[str, str], dict[int, Estimate]] = {}
    for estimate in estimates:
        by_network.setdefault((estimate.network, estimate.target), {})[estimate.batch] = estimate
    return [
        BatchCurve(tuple(by_batch[batch] for batch in sorted(by_batch)))
        for by_batch in by_network.values()
        if len(by_batch) > 1
    ]


def curve_data(curve: BatchCurve) -> dict[str, Any]:
    """What the curve is drawn from."""
    return {
        "network": curve.estimates[0].network,
        "points": [
            {
                "batch": e.batch,
                "latency_us": e.latency_us,
                "interval_us": e.interval_us,
                "latency": latency_text(e.latency_us),
                "throughput": throughput_text(e.throughput_per_s),
            }
            for e in curve.estimates
        ],
    }


def curve_section(curve: BatchCurve, number: int) -> str:
    """The curve's part of the page: the frame of its drawing, and a table with its figures."""
    first = curve.estimates[0]
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("batch", "latency", "interval", "for each input", "throughput")
    )
    rows = "\n".join(
        f"<tr><td>{e.batch}</td><td>{latency_text(e.latency_us)}</td>"
        f"<td>{interval_text(e.interval_us)}</td>"
        f"<td>{latency_text(e.latency_us / e.batch if e.latency_us else None)}</td>"
        f"<td>{throughput_text(e.throughput_per_s)}</td></tr>"
        for e in curve.estimates
    )
    return (
        f"<section>\n<h1>{escape(first.network)} over batches</h1>\n"
        f'<p class="hint">on {escape(first.target)}</p>\n'
        f'<figure data-curve="{number}" hidden><div class="plot"></div></figure>\n'
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>\n</section>"
    )
