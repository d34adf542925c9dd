"""Networks side by side on the page: latencies, and the cells that make the difference."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hybridlat.report.compare import CellDifference, against_text, letter_of, shown_differences
from hybridlat.report.labels import chain
from hybridlat.report.units import (
    half_width_share,
    latency_text,
    part_text,
    plus_minus_text,
    scale_for,
)
from hybridlat.schema.estimate import Estimate

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
