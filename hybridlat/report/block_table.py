"""The blocks of a search space as a table: on the terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hybridlat.report.prediction_table import DOUBT, NOTHING, escaped
from hybridlat.report.units import (
    count_text,
    half_width_share,
    interval_text,
    latency_text,
    part_text,
    percent_text,
    plus_minus_text,
)
from hybridlat.schema.block_table import BlockLatency, BlockTable

COLUMNS = (
    "position", "block", "key", "target", "batch", "latency_us", "low_us", "high_us", "confidence",
    "measured_share", "trusted", "networks", "error",
)  # fmt: skip
"""Of the CSV: a row for each block at each position, and one for what they leave out."""
CONSTANT = "constant"
"""Position of what every network takes once, beside its blocks."""
_HEADER = ("position", "block", "latency", "±", "interval", "measured", "networks")


def comma_separated(table: BlockTable) -> str:
    """CSV with ``COLUMNS``; numbers as they are, times in microseconds."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    asked = (table.target, table.batch)
    constant = table.constant_us
    writer.writerow(
        [CONSTANT, "", "", *asked, constant, "", "", table.confidence, "", "", table.networks, ""]
    )
    for row in table.rows:
        low_us, high_us = row.interval_us or ("", "")
        latency = "" if row.latency_us is None else row.latency_us
        writer.writerow([
            row.position, row.block, row.key, *asked, latency, low_us, high_us, table.confidence,
            row.measured_share, str(row.trusted).lower(), row.networks, row.reason,
        ])  # fmt: skip
    return out.getvalue()


def markdown(table: BlockTable) -> str:
    """A table of GitHub's Markdown, and what to know of it."""
    rows = [_HEADER, ("---", "---", *["---:"] * (len(_HEADER) - 2)), *map(_texts, table.rows)]
    lines = ["| " + " | ".join(map(escaped, row)) + " |" for row in rows]
    return "\n".join([*lines, "", *_notes(table)]) + "\n"


def print_blocks(console: Console, table: BlockTable) -> None:
    """The same on a terminal."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, title in enumerate(_HEADER):
        shown.add_column(
            title, justify="left" if place < 2 else "right", overflow="fold", no_wrap=place >= 2
        )
    before = ""
    for row in table.rows:
        position, *rest = _texts(row)
        style = "" if row.trusted else "yellow"
        shown.add_row("" if position == before else position, *(Text(t, style) for t in rest))
        before = position
    console.print(shown)
    for note in _notes(table):
        console.print(Text(note, "dim"))


def _texts(row: BlockLatency) -> tuple[str, ...]:
    nothing = row.latency_us is None
    width = plus_minus_text(half_width_share(row.latency_us, row.interval_us))
    return (
        row.position,
        row.block,
        latency_text(row.latency_us) + ("" if row.trusted else f" {DOUBT}"),
        width.removeprefix("±"),
        interval_text(row.interval_us),
        NOTHING if nothing else part_text(row.measured_share),
        str(row.networks),
    )


def _notes(table: BlockTable) -> list[str]:
    notes = [
        f"{table.target}, batch {table.batch}. A network takes {latency_text(table.constant_us)} "
        "and the sum of its blocks."
    ]
    if table.check is not None:
        check = table.check
        notes.append(
            f"{count_text(check.networks, 'network')} drawn at random: the sum is "
            f"{percent_text(check.mean_share)} off in the mean, {percent_text(check.worst_share)} "
            "at worst, beside the cells of the network itself."
        )
    if not table.trusted:
        notes.append(f"{DOUBT} not to be trusted: wider than the tolerance, or cells are missing.")
    reasons = dict.fromkeys(row.reason for row in table.rows if row.latency_us is None)
    notes += [f"{NOTHING} no answer: {reason}." for reason in reasons if reason]
    return [*notes, *(f"Note: {warning}." for warning in table.warnings)]
