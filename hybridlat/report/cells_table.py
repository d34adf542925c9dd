"""The table of cells: its rows, and as many columns as a terminal has room for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich import table
from rich.text import Text

from hybridlat.report.cell_texts import (
    chain,
    first_and_more,
    limit_text,
    short_chain,
    what_text,
    where_text,
)
from hybridlat.report.table import GAP, Column, Table
from hybridlat.report.units import (
    cell_half_width_share,
    each_text,
    percent_text,
    plus_minus_text,
    scale_for,
)
from hybridlat.schema.estimate import CellEstimate, CellStructure, Estimate, LatencySource

ALIKE = 1.25
"""Cells whose latencies are further apart than this factor are not folded into one row."""
SOURCE_STYLE = {"measured": "green", "predicted": "yellow", "unsupported": "bold red"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEAST_WHERE, _MOST_WHERE = 13, 28
_LEAST_CELL = 16  # a chain of kernels cannot be read in less
_SOURCE_FROM = 100  # narrower terminals have a mark for what is predicted
_AT_LEAST = 12  # for the last column of a narrow terminal


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


@dataclass(frozen=True)
class _Column:
    """A column, the least width of terminal that has room for it, and what it shows."""

    title: str
    least_width: int
    show: Callable[[Row], str | Text]
    right: bool = True


@dataclass(frozen=True)
class _Texts:
    """A column of words: its title, the texts of the rows, and the width that it may take."""

    title: str
    texts: Sequence[str]
    width: int
    style: str = ""


def cells_table(rows: Sequence[Row], others: Sequence[Row], width: int) -> table.Table:
    """Where the time goes: ``rows`` in their order, and one line for ``others``."""
    every = [*rows, *others]
    top_share = max((row.share for row in every), default=0.0)
    bar_width = 12 if width >= 140 else 6
    columns = [c for c in _columns(every, top_share, bar_width, width) if width >= c.least_width]
    if width < _SOURCE_FROM:
        columns = [_marked(c) if c.title.startswith("each") else c for c in columns]
    columns = [c for c in columns if c.title != "limit" or any(row.limit for row in rows)]
    fixed = sum(_widest(column, rows, bar_width) + GAP for column in columns)
    words = _words(rows, max(width - fixed, _AT_LEAST))
    lines: list[list[str | Text]] = [
        [*(column.show(row) for column in columns), *(Text(w.texts[i]) for w in words)]
        for i, row in enumerate(rows)
    ]
    if others:
        length = bar(share_of(others), top_share, bar_width)
        lines.append([*_others_row(others, columns, words, length)])
    marked = width < _SOURCE_FROM and any(row.source == "predicted" for row in rows)
    return Table(
        [
            *(Column(column.title, column.right) for column in columns),
            *(Column(text.title, most=text.width, style=text.style) for text in words),
        ],
        lines,
        caption=Text("≈ predicted, not measured", "dim") if marked else "",
    ).terminal()


def bar(share: float, top_share: float, width: int) -> str:
    """A bar of block characters, full at ``top_share``; anything above zero shows."""
    if top_share <= 0 or share <= 0:
        return ""
    eighths = max(1, round(8 * width * min(share / top_share, 1.0)))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _columns(rows: Sequence[Row], top_share: float, bar_width: int, width: int) -> list[_Column]:
    scale = scale_for(row.latency_us for row in rows)
    return [
        _Column("", 96, lambda row: Text(bar(row.share, top_share, bar_width), "cyan"), False),
        _Column("share", 0, _share),
        _Column("uses", 0, lambda row: f"×{row.count}"),
        _Column(f"each [{scale.name}]", 0, lambda row: each_text(scale, row.latency_us)),
        _Column("±", 72, lambda row: plus_minus_text(row.half_width_share).removeprefix("±")),
        _Column(
            "source", _SOURCE_FROM, lambda row: Text(row.source, SOURCE_STYLE[row.source]), False
        ),
        _Column(
            "limit",
            72,
            lambda row: Text(
                row.limit if width >= _SOURCE_FROM else row.limit.partition(" ")[0], "dim"
            ),
            False,
        ),
    ]


def _marked(column: _Column) -> _Column:
    """The column with a mark before what is predicted."""

    def show(row: Row) -> Text:
        predicted = row.source == "predicted"
        style = SOURCE_STYLE[row.source] if row.source != "measured" else ""
        return Text(f"{'≈ ' if predicted else ''}{column.show(row)}", style)

    return _Column(column.title, column.least_width, show)


def _words(rows: Sequence[Row], room: int) -> list[_Texts]:
    """The columns of words that ``room`` characters hold: where, what, and the kernels."""
    places = [where_text(row.paths) or _place(row) for row in rows]
    whats = [row.what for row in rows]
    chains = max((len(short_chain(row.ops, room)) for row in rows), default=0)
    what_width = max(map(len, ["what", *whats])) if any(whats) else 0
    where_width = min(max(map(len, ["where", *places])), _MOST_WHERE)
    if not what_width:  # what the cells are made of is unknown
        where_width = 0 if room < _LEAST_WHERE + chains + GAP else min(
            where_width, room - min(chains, 2 * room // 3) - GAP
        )  # fmt: skip
        cell_width = room - (where_width + GAP if where_width else 0)
    else:
        least = min(where_width, _LEAST_WHERE)
        what_width = min(what_width, max(room - least - GAP, _AT_LEAST))
        left = room - what_width - GAP
        where_width = min(where_width, left) if left >= least else 0
        left -= where_width + GAP
        cell_width = left if left >= _LEAST_CELL else 0
    table_texts = []
    if where_width:
        shown = [where_text(row.paths, where_width) or _place(row) for row in rows]
        table_texts.append(_Texts("where", shown, where_width, "" if what_width else "dim"))
    if what_width:
        table_texts.append(_Texts("what", [w or _label(row, what_width) for w, row in
                                     zip(whats, rows, strict=True)], what_width))  # fmt: skip
    if cell_width:
        texts = [_label(row, cell_width) for row in rows]
        table_texts.append(_Texts("cell", texts, cell_width, "dim" if what_width else ""))
    return table_texts


def _place(row: Row) -> str:
    """Where a cell stands in a file that says nothing of its modules: its first operator."""
    return first_and_more(row.nodes) or "by the engine"


def _label(row: Row, width: int) -> str:
    return short_chain(row.ops, width) or row.cells[0].signature[:8]


def _share(row: Row) -> str:
    return percent_text(None if row.latency_us is None else row.share)


def _widest(column: _Column, rows: Sequence[Row], bar_width: int) -> int:
    if not column.title:
        return bar_width
    return max([len(column.title), *(len(column.show(row)) for row in rows)])


def _others_row(
    others: Sequence[Row], columns: Sequence[_Column], words: Sequence[_Texts], bar_text: str
) -> list[Text]:
    texts = {
        "": bar_text,
        "share": percent_text(share_of(others)),
        "uses": f"×{sum(row.count for row in others)}",
    }
    label = f"{len(others)} more (--all)"
    fixed = [Text(texts.get(column.title, ""), "dim") for column in columns]
    widest = max(range(len(words)), key=lambda i: words[i].width)
    return fixed + [Text(label if i == widest else "", "dim") for i in range(len(words))]
