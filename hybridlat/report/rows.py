"""The rows of a report's table: one for each cell, those that read the same folded into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hybridlat.report.cell_texts import limit_text, what_text
from hybridlat.report.labels import chain
from hybridlat.report.units import cell_half_width_share
from hybridlat.schema.estimate import CellEstimate, Estimate, LatencySource
from hybridlat.schema.structure import CellStructure

ALIKE = 1.25
"""Cells whose latencies are further apart than this factor are not folded into one row."""


@dataclass(frozen=True)
class Row:
    """What a table says of one cell, or of several that read the same.

    ``latency_us`` is of one use, their mean where there are several cells; ``half_width_share`` the
    widest interval among them.
    """

    cells: tuple[CellEstimate, ...]
    ops: tuple[str, ...]
    paths: tuple[str, ...] = ()
    what: str = ""
    limit: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(name for cell in self.cells for name in cell.nodes)

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
        total_us = 0.0
        for cell in self.cells:
            if cell.latency_us is None:
                return None
            total_us += cell.count * cell.latency_us
        return total_us / max(self.count, 1)

    @property
    def half_width_share(self) -> float | None:
        widths = [cell_half_width_share(cell.latency_us, cell.interval_us) for cell in self.cells]
        known = [width for width in widths if width is not None]
        return max(known) if known else None


def rows_of(estimate: Estimate, *, fold: bool) -> list[Row]:
    """The rows of an estimate: what has no latency first, then the slowest.

    ``fold`` makes one row of cells that would read the same but for where they stand.
    """
    structure = estimate.structure
    rows = []
    for position, cell in enumerate(estimate.cells):
        if structure is None:
            rows.append(Row((cell,), cell.ops))
            continue
        made_of = structure.cells[position]
        ops = running_ops(cell, made_of)
        limit = limit_text(made_of.limit(cell.latency_us))
        rows.append(Row((cell,), ops, structure.paths(position), what_text(made_of), limit))
    rows.sort(key=lambda row: (row.latency_us is not None, -row.share))
    if fold:
        rows = _folded(rows)
        rows.sort(key=lambda row: (row.latency_us is not None, -row.share))
    return rows


def running_ops(cell: CellEstimate, made_of: CellStructure) -> tuple[str, ...]:
    """The labels of a cell's kernels without what only makes constants.

    In the order of the file, which the cell's own labels have, where those say the same.
    """
    ops = tuple(made_of.kernels[i].op for i in made_of.running)
    return cell.ops if sorted(ops) == sorted(cell.ops) else ops


def share_of(rows: Iterable[Row]) -> float:
    """The share of all these rows together."""
    return sum(row.share for row in rows)


def _folded(rows: Sequence[Row]) -> list[Row]:
    folded: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        alike = folded.setdefault((row.what, chain(row.ops), row.source), [])
        for index, other in enumerate(alike):
            if _close(row, other):
                alike[index] = Row(
                    other.cells + row.cells, other.ops, other.paths + row.paths, row.what,
                    other.limit if other.limit == row.limit else _kind(other.limit, row.limit),
                )  # fmt: skip
                break
        else:
            alike.append(row)
    return [row for alike in folded.values() for row in alike]


def _close(row: Row, other: Row) -> bool:
    if not row.what or row.latency_us is None or other.latency_us is None:
        return False
    low, high = sorted((row.latency_us, other.latency_us))
    return high <= ALIKE * low


def _kind(one: str, other: str) -> str:
    """The limit that two share where they reach it to different degrees; else none."""
    kind = one.partition(" ")[0]
    return kind if kind and kind == other.partition(" ")[0] else ""
