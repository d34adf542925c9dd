"""The blocks of a search space as a table: on the terminal, as Markdown and as CSV."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from hybridlat.report.prediction_table import DOUBT, NOTHING
from hybridlat.report.table import Table, titled
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
_SHOWN = (
    *titled("position", "block", wraps=True),
    *titled("latency", "±", "interval", "measured", "networks", right=True),
)


def comma_separated(table: BlockTable) -> str:
    """CSV with ``COLUMNS``; numbers as they are, times in microseconds."""
    asked = (table.target, table.batch)
    rows: list[list[object]] = [
        [CONSTANT, None, None, *asked, table.constant_us, None, None, table.confidence, None, None,
         table.networks, None]
    ]  # fmt: skip
    rows += [
        [row.position, row.block, row.key, *asked, row.latency_us,
         *(row.interval_us or (None, None)), table.confidence, row.measured_share, row.trusted,
         row.networks, row.reason]
        for row in table.rows
    ]  # fmt: skip
    return Table(titled(*COLUMNS), rows).csv()


def markdown(table: BlockTable) -> str:
    """A table of GitHub's Markdown, and what to know of it."""
    rows = Table(_SHOWN, [_texts(row) for row in table.rows])
    return "\n".join([rows.markdown(), "", *_notes(table)]) + "\n"


def print_blocks(console: Console, table: BlockTable) -> None:
    """The same on a terminal."""
    rows = []
    before = ""
    for row in table.rows:
        position, *rest = _texts(row)
        style = "" if row.trusted else "yellow"
        rows.append(["" if position == before else position, *(Text(t, style) for t in rest)])
        before = position
    console.print(Table(_SHOWN, rows).terminal())
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
