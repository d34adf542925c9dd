"""The table of cells: its rows, and as many columns as a terminal has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rich import table

from hybridlat.report.cell_texts import chain, first_and_more, what_text, where_text
from hybridlat.report.table import GAP, Cell, Column, Table
from hybridlat.report.units import (
    cell_half_width_share,
    each_text,
    percent_text,
    plus_minus_text,
    scale_for,
)
from hybridlat.schema.estimate import CellEstimate, Estimate, LatencySource

ALIKE = 1.25
"""Cells whose latencies are further apart than this factor are not folded into one row."""
_LEAST_WHERE, _MOST_WHERE = 13, 28
_LEAST_CELL = 16  # a chain of kernels cannot be read in less
_SOURCE_FROM = 100  # narrower terminals have a mark for what is predicted
_AT_LEAST = 12  # for the last column of a narrow terminal


@dataclass(frozen=True)
class Row:
    """What a table says of one cell, or of several that read the same.

    ``latency_us`` is of one use, their mean where there are several cells; ``half_width_share`` the
    widest interval among them. ``limit`` is what limits it, and how much of the time that explains.
    """

    cells: tuple[CellEstimate, ...]
    ops: tuple[str, ...]
    paths: tuple[str, ...] = ()
    what: str = ""
    limit: str = ""

    def where(self, width: int = 1000) -> str:
        """The modules that it stands in, else its first operator in the file."""
        nodes = [name for cell in self.cells for name in cell.nodes]
        return where_text(self.paths, width) or first_and_more(nodes) or "by the engine"

    def label(self, width: int) -> str:
        """Its kernels."""
        return chain(self.ops, width) or self.cells[0].signature[:8]

    @property
    def source(self) -> LatencySource:
        return self.cells[0].source

    @property
    def count(self) -> int:
        return sum(cell.count for cell in self.cells)

    @property
    def share(self) -> float:
        return sum(cell.share for cell in self.cells)

    @property
    def latency_us(self) -> float | None:
        if any(cell.latency_us is None for cell in self.cells):
            return None
        total_us = sum(cell.count * (cell.latency_us or 0.0) for cell in self.cells)
        return total_us / max(self.count, 1)

    def rank(self) -> tuple[bool, float]:
        """What has no latency comes first, then the slowest."""
        return self.latency_us is not None, -self.share

    def reads_as(self, other: Row) -> bool:
        """Whether a row of the same words takes about as long."""
        if not self.what or self.latency_us is None or other.latency_us is None:
            return False
        low, high = sorted((self.latency_us, other.latency_us))
        return high <= ALIKE * low

    def with_cells_of(self, row: Row) -> Row:
        """Both as one; a limit that they reach to different degrees loses its number."""
        name, other = (one.limit.partition(" ")[0] for one in (self, row))
        limit = self.limit if self.limit == row.limit else name if name == other else ""
        return replace(
            self, cells=self.cells + row.cells, paths=self.paths + row.paths, limit=limit
        )

    @property
    def half_width_share(self) -> float | None:
        widths = [cell_half_width_share(cell) for cell in self.cells]
        return max((width for width in widths if width is not None), default=None)


def rows_of(estimate: Estimate, *, fold: bool) -> list[Row]:
    """The rows of an estimate: what has no latency first, then the slowest.

    ``fold`` makes one row of cells that would read the same but for where they stand.
    """
    rows = sorted((row_of(estimate, i) for i in range(len(estimate.cells))), key=Row.rank)
    return sorted(_folded(rows), key=Row.rank) if fold else rows


def row_of(estimate: Estimate, position: int) -> Row:
    """The row of one cell."""
    cell = estimate.cells[position]
    if estimate.structure is None:
        return Row((cell,), cell.ops)
    made_of = estimate.structure.cells[position]
    ops = tuple(kernel.op for kernel in made_of.kernels)
    # In the order of the file, which the cell's own labels have, where those say the same.
    ops = cell.ops if sorted(ops) == sorted(cell.ops) else ops
    limit = made_of.limit(cell.latency_us)
    text = f"{limit[0]} {100 * min(limit[1], 1.0):.0f} %" if limit else ""
    return Row((cell,), ops, estimate.structure.paths(position), what_text(made_of), text)


def _folded(rows: Sequence[Row]) -> list[Row]:
    folded: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        alike = folded.setdefault((row.what, chain(row.ops), row.source), [])
        for index, other in enumerate(alike):
            if row.reads_as(other):
                alike[index] = other.with_cells_of(row)
                break
        else:
            alike.append(row)
    return [row for alike in folded.values() for row in alike]


_Shown: TypeAlias = tuple[Column, Sequence[str | Cell]]


def cells_table(rows: Sequence[Row], others: Sequence[Row], width: int) -> table.Table:
    """Where the time goes: ``rows`` in their order, and how much the ``others`` take."""
    scale = scale_for(row.latency_us for row in (*rows, *others))
    narrow = width < _SOURCE_FROM
    shares = [percent_text(None if row.latency_us is None else row.share) for row in rows]
    shown: list[_Shown] = [
        (Column("share", True), shares),
        (Column("uses", True), [f"×{row.count}" for row in rows]),
        (
            Column(f"each [{scale.name}]", True),
            [_each(row, each_text(scale, row.latency_us), narrow) for row in rows],
        ),
    ]
    if width >= 72:
        widths = [plus_minus_text(row.half_width_share).removeprefix("±") for row in rows]
        shown.append((Column("±", True), widths))
    if not narrow:
        shown.append((Column("source"), [Cell(row.source, row.source) for row in rows]))
    if width >= 72 and any(row.limit for row in rows):
        limits = [row.limit.partition(" ")[0] if narrow else row.limit for row in rows]
        shown.append((Column("limit"), [Cell(limit, "hint") for limit in limits]))
    fixed = sum(max(map(len, [c.title, *map(str, cells)])) + GAP for c, cells in shown)
    shown += _words(rows, max(width - fixed, _AT_LEAST))
    notes = []
    if others:
        rest = percent_text(sum(row.share for row in others))
        notes.append(f"{len(others)} more rows with {rest} of the time (--all)")
    if narrow and any(row.source == "predicted" for row in rows):
        notes.append("≈ predicted, not measured")
    lines = [[cells[i] for _, cells in shown] for i in range(len(rows))]
    return Table([column for column, _ in shown], lines, caption="\n".join(notes)).terminal()


def _each(row: Row, text: str, marked: bool) -> str | Cell:
    """The latency, on a narrow terminal with a mark before what is predicted."""
    if not marked or row.source == "measured":
        return text
    return Cell(f"{'≈ ' if row.source == 'predicted' else ''}{text}", row.source)


def _words(rows: Sequence[Row], room: int) -> list[_Shown]:
    """The columns of words that ``room`` characters hold: where, what, and the kernels."""
    what = max(len(row.what) for row in rows)
    where = 0
    if what:  # what the cells are made of is known
        where = min(max(map(len, ["where", *(row.where() for row in rows)])), _MOST_WHERE)
        least = min(where, _LEAST_WHERE)
        what = min(max(what, len("what")), max(room - least - GAP, _AT_LEAST))
        room -= what + GAP
        where = min(where, room) if room >= least else 0
        room -= where + GAP
        room = room if room >= _LEAST_CELL else 0
    columns = [
        (Column("where", most=where), [row.where(where) for row in rows]),
        (Column("what", most=what), [row.what or row.label(what) for row in rows]),
        (Column("cell", style="dim" if what else "", most=room), [row.label(room) for row in rows]),
    ]
    return [(column, cells) for column, cells in columns if column.most]
