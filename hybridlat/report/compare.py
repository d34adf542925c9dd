"""Networks side by side: which is faster, by how much, and which cells make the difference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from hybridlat.report.cell_texts import short_chain, what_text
from hybridlat.report.cells_table import SOURCE_STYLE
from hybridlat.report.table import Column, Table, titled
from hybridlat.report.terminal import notes
from hybridlat.report.units import (
    RESOLUTION_US,
    half_width_share,
    latency_text,
    part_text,
    plus_minus_text,
    scale_for,
)
from hybridlat.schema.estimate import Estimate

COMPARISON_FORMAT = 1
ROWS = 12
_AT_LEAST = 14  # characters for a chain of kernels beside what they do


@dataclass(frozen=True, slots=True)
class CellDifference:
    """One cell over all networks: ``count`` uses in each, taking ``total_us`` (None: unknown).

    ``what`` is in few words what the cell does, where that is known. ``difference_us`` is the
    largest total minus the smallest: how far this cell alone moves the networks apart.
    """

    signature: str
    ops: tuple[str, ...]
    count: tuple[int, ...]
    total_us: tuple[float | None, ...]
    what: str = ""

    @property
    def difference_us(self) -> float:
        known = [total for total in self.total_us if total is not None]
        return max(known) - min(known) if known else 0.0

    @property
    def matters(self) -> bool:
        """False for a cell that all networks spend the same time in."""
        return None in self.total_us or self.difference_us > 0

    @property
    def shows(self) -> bool:
        """Whether people are shown it: it matters, and by more than the resolution."""
        return None in self.total_us or self.difference_us >= RESOLUTION_US


def cell_differences(estimates: Sequence[Estimate]) -> tuple[CellDifference, ...]:
    """Every cell of any of the networks: the unknown ones, then the largest differences."""
    ops: dict[str, tuple[str, ...]] = {}
    whats: dict[str, str] = {}
    tables = []
    for estimate in estimates:
        table = {cell.signature: cell for cell in estimate.cells}
        tables.append(table)
        for position, (signature, cell) in enumerate(table.items()):
            ops.setdefault(signature, cell.ops)
            if estimate.structure is not None:
                whats.setdefault(signature, what_text(estimate.structure.cells[position]))
    rows = []
    for signature, labels in ops.items():
        cells = [table.get(signature) for table in tables]
        totals = tuple(
            0.0 if cell is None
            else None if cell.latency_us is None
            else cell.count * cell.latency_us
            for cell in cells
        )  # fmt: skip
        counts = tuple(0 if cell is None else cell.count for cell in cells)
        what = whats.get(signature, "")
        rows.append(CellDifference(signature, labels, counts, totals, what))
    return _largest_first(rows)


def shown_differences(estimates: Sequence[Estimate]) -> tuple[CellDifference, ...]:
    """What people are shown: cells that read the same are one row.

    A cell of a small network and the same of a large one are two, for caches are colder there, but
    shown as two one would seem to be gone and another to be new.
    """
    merged: dict[object, CellDifference] = {}
    for row in cell_differences(estimates):
        key = (row.what, row.ops) if row.what else row.signature
        other = merged.get(key)
        if other is not None:
            pairs = zip(other.total_us, row.total_us, strict=True)
            totals = tuple(None if a is None or b is None else a + b for a, b in pairs)
            counts = tuple(map(sum, zip(other.count, row.count, strict=True)))
            row = replace(other, total_us=totals, count=counts)
        merged[key] = row
    return _largest_first(row for row in merged.values() if row.shows)


def _largest_first(rows: Iterable[CellDifference]) -> tuple[CellDifference, ...]:
    """The unknown ones, then the largest differences."""
    return tuple(sorted(rows, key=lambda row: (None not in row.total_us, -row.difference_us)))


def speed_up(first: Estimate, other: Estimate) -> float | None:
    """How many times faster ``other`` is than ``first``; None where either has no latency."""
    if not first.latency_us or not other.latency_us:
        return None
    return first.latency_us / other.latency_us


def distinguishable(first: Estimate, other: Estimate) -> bool:
    """True when the intervals of the two latencies do not overlap.

    On one target the pace of the machine is the same for both: it is taken out of their width.
    """
    shared = first.target == other.target
    intervals = _interval_us(first, shared), _interval_us(other, shared)
    if intervals[0] is None or intervals[1] is None:
        return False
    low, high = sorted((intervals[0], intervals[1]))
    return low[1] < high[0]


def _interval_us(estimate: Estimate, without_pace: bool) -> tuple[float, float] | None:
    if estimate.interval_us is None or not without_pace or not estimate.pace_share:
        return estimate.interval_us
    # Both parts are added as squares of logarithms.
    middle = math.sqrt(estimate.interval_us[0] * estimate.interval_us[1])
    reach = math.log(estimate.interval_us[1] / middle)
    own = math.exp(math.sqrt(max(reach**2 - math.log1p(estimate.pace_share) ** 2, 0.0)))
    return middle / own, middle * own


def comparison(estimates: Sequence[Estimate]) -> dict[str, object]:
    """``compare --json`` (format 1): the estimates, speed-ups over the first, the differences."""
    first = estimates[0]
    return {
        "format": COMPARISON_FORMAT,
        "networks": [estimate.to_json() for estimate in estimates],
        "speed_up": [speed_up(first, estimate) for estimate in estimates],
        "distinguishable": [distinguishable(first, estimate) for estimate in estimates],
        "differences": [
            {
                "signature": row.signature,
                "ops": list(row.ops),
                "count": list(row.count),
                "total_us": list(row.total_us),
                "difference_us": row.difference_us,
            }
            for row in cell_differences(estimates)
            if row.matters
        ],
    }


def print_comparison(
    console: Console, estimates: Sequence[Estimate], *, every_cell: bool = False
) -> None:
    """The networks in a table, then the cells that set them apart, the largest first."""
    console.print(_networks_table(estimates).terminal())
    rows = cell_differences(estimates) if every_cell else shown_differences(estimates)
    if rows:
        console.print()
        console.print(_cells_table(estimates, rows, console.width, every_cell).terminal())
    for letter, estimate in _lettered(estimates):
        for note in notes(estimate, everything=every_cell):
            console.print(Text(f"{letter}: ", "bold") + note)


def letter_of(number: int) -> str:
    """A, B, … and after Z by number: a short name for a column."""
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def _lettered(estimates: Sequence[Estimate]) -> list[tuple[str, Estimate]]:
    return [(letter_of(i), estimate) for i, estimate in enumerate(estimates)]


def _networks_table(estimates: Sequence[Estimate]) -> Table:
    first = estimates[0]
    rows = []
    for letter, estimate in _lettered(estimates):
        width = half_width_share(estimate.latency_us, estimate.interval_us)
        rows.append([
            Text(letter, "bold"),
            Text(estimate.network, "bold" if estimate.trusted else "bold red"),
            Text(latency_text(estimate.latency_us), "bold cyan"),
            plus_minus_text(width).removeprefix("±"),
            "" if estimate is first else _against(first, estimate),
            part_text(estimate.measured_share),
        ])  # fmt: skip
    figures = titled("latency", "±", "against A", "measured", right=True)
    caption = "" if len({e.target for e in estimates}) > 1 else f"on {first.target}"
    return Table([Column(), Column("network", wraps=True), *figures], rows, caption=caption)


def against_text(first: Estimate, other: Estimate) -> tuple[str, str]:
    """``1.52× faster``, and its kind (``faster``, ``slower`` or nothing where that is not sure)."""
    factor = speed_up(first, other)
    if factor is None:
        return "–", ""
    if not distinguishable(first, other):
        return "same within intervals", ""
    kind = "faster" if factor >= 1 else "slower"
    times = factor if factor >= 1 else 1 / factor
    return f"{times:.{2 if times < 10 else 0}f}× {kind}", kind


def _against(first: Estimate, other: Estimate) -> Text:
    text, kind = against_text(first, other)
    return Text(text, {"faster": "green", "slower": "red"}.get(kind, "dim"))


def _cells_table(
    estimates: Sequence[Estimate], rows: Sequence[CellDifference], width: int, every_cell: bool
) -> Table:
    limit = len(rows) if every_cell or len(rows) == ROWS + 1 else ROWS
    shown = rows[:limit]
    scale = scale_for(total for row in rows for total in row.total_us)
    titles = [f"{letter} [{scale.name}]" for letter, _ in _lettered(estimates)]
    pair = len(estimates) == 2
    if pair:
        titles.append("B − A")
    column_width = 19 if width >= 100 else 15
    cell_width = max(12, width - column_width * len(estimates) - (12 if pair else 0))
    table_rows: list[list[Text]] = []
    for row in shown:
        cells = [
            Text("–", "dim") if count == 0
            else Text("unknown", SOURCE_STYLE["unsupported"]) if total is None
            else Text(f"{scale.number(total)} ×{count}")
            for total, count in zip(row.total_us, row.count, strict=True)
        ]  # fmt: skip
        if pair:
            cells.append(_signed(row, scale.unit_us))
        named = row.what.startswith(short_chain(row.ops, cell_width))
        what = f"{row.what}  " if row.what and len(row.what) + _AT_LEAST <= cell_width else ""
        chain = "" if named else short_chain(row.ops, cell_width - len(what))
        table_rows.append([*cells, Text.assemble(what, (chain, "dim" if what else ""))])
    if limit < len(rows):
        left = [Text("")] * (len(estimates) + pair)
        table_rows.append([*left, Text(f"{len(rows) - limit} more (--all shows them)", "dim")])
    columns = [*titled(*titles, right=True), Column("cells that make the difference")]
    return Table(columns, table_rows)


def _signed(row: CellDifference, unit_us: float) -> Text:
    first, second = row.total_us
    if first is None or second is None:
        return Text("unknown", "dim")
    value = (second - first) / unit_us
    return Text(f"{value:+,.{2 if abs(value) < 10 else 1}f}", "red" if value > 0 else "green")
