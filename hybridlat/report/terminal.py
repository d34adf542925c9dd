"""An estimate as people read it in a terminal: the answer first, then where the time goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hybridlat.report.basis import basis_text, measured_now_text
from hybridlat.report.doubt import why_untrusted
from hybridlat.report.labels import first_and_more, short_chain
from hybridlat.report.units import (
    Scale,
    count_text,
    first_upper,
    half_width_share,
    interval_text,
    latency_text,
    percent_text,
    plus_minus_text,
    scale_for,
)
from hybridlat.schema.estimate import CellEstimate, Estimate

ROWS = 15  # cells shown unless all are asked for
SOURCE_STYLE = {"measured": "green", "predicted": "yellow", "unsupported": "bold red"}
_NOTE_LENGTH = 240  # about three lines
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def print_estimate(
    console: Console,
    estimate: Estimate,
    *,
    every_cell: bool = False,
    noise_floor: float | None = None,
    tolerance: float | None = None,
) -> None:
    """Print one estimate.

    ``noise_floor`` is the target's and ``tolerance`` what was asked for (0..1), where known.
    """
    console.print(headline(estimate, noise_floor))
    if estimate.cells:
        console.print()
        console.print(cells_table(estimate, console.width, every_cell=every_cell))
    for note in notes(estimate, tolerance, everything=every_cell):
        console.print(note)


def headline(estimate: Estimate, noise_floor: float | None = None) -> RenderableType:
    """Name, latency with its interval, target, and what the answer rests on."""
    first = Text.assemble(
        (estimate.network, "bold"), "  ", (latency_text(estimate.latency_us), "bold cyan")
    )
    if estimate.interval_us is not None:
        width = plus_minus_text(half_width_share(estimate.latency_us, estimate.interval_us))
        sure = percent_text(estimate.confidence, 0)
        first.append(f"  {width}  ({interval_text(estimate.interval_us)}, {sure} sure)")
    if not estimate.trusted:
        first.append("  not to be trusted", style="bold red")
    basis = [basis_text(estimate)]
    if now := measured_now_text(estimate):
        basis[0] += f", {now} just now"
    if noise_floor is not None:
        basis.append(f"noise {plus_minus_text(noise_floor)}")
    basis.append(f"sum of cells {latency_text(estimate.sum_of_cells_us)}")
    basis.append(f"answered in {latency_text(estimate.elapsed_s * 1e6)}")
    batch = f"batch {estimate.batch}"
    return Group(first, Text(f"on {estimate.target} · {batch}"), Text(" · ".join(basis), "dim"))


def shown_cells(
    estimate: Estimate, every_cell: bool
) -> tuple[list[CellEstimate], list[CellEstimate]]:
    """The rows to print, slowest first, and the rest. What has no latency is never hidden."""
    missing = [cell for cell in estimate.cells if cell.latency_us is None]
    known = sorted(
        (cell for cell in estimate.cells if cell.latency_us is not None),
        key=lambda cell: -(cell.latency_us or 0.0) * cell.count,
    )
    # One hidden cell would take as many lines as the row that stands for it.
    limit = len(known) if every_cell or len(known) == ROWS + 1 else ROWS
    return missing + known[:limit], known[limit:]


@dataclass(frozen=True)
class _Column:
    """A column, the least width of terminal that has room for it, and what it shows."""

    title: str
    least_width: int
    show: Callable[[CellEstimate], str | Text]
    right: bool = True


def cells_table(estimate: Estimate, width: int, *, every_cell: bool = False) -> Table:
    """Where the time goes: one row a cell, slowest first, as many columns as ``width`` allows."""
    rows, others = shown_cells(estimate, every_cell)
    top_share = max((cell.share for cell in estimate.cells), default=0.0)
    scale = scale_for(cell.latency_us for cell in estimate.cells)
    decimals = 3 if scale.unit_us > 1 else 1
    bar_width = 12 if width >= 100 else 6
    columns = [
        _Column("", 72, lambda cell: Text(bar(cell.share, top_share, bar_width), "cyan"), False),
        _Column("share", 0, _share_of),
        _Column("uses", 0, lambda cell: f"×{cell.count}"),
        _Column(f"each [{scale.name}]", 0, lambda cell: _number(scale, cell, decimals)),
        _Column("±", 72, _width_of),
        _Column("source", 56, _source, right=False),
    ]
    columns = [column for column in columns if width >= column.least_width]
    with_place = width >= 110
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(Text(column.title), justify="right" if column.right else "left",
                         no_wrap=True)  # fmt: skip
    fixed = sum(_widest(column, rows, bar_width) + 2 for column in columns)
    place_width = max(16, (width - fixed) // 3) if with_place else 0
    cell_width = max(12, width - fixed - (place_width + 2 if with_place else 0))
    table.add_column("cell", no_wrap=True, overflow="ellipsis", max_width=cell_width)
    if with_place:
        table.add_column("first operator", no_wrap=True, overflow="ellipsis", style="dim",
                         max_width=place_width)  # fmt: skip
    for cell in rows:
        place = [Text(first_and_more(cell.nodes))] if with_place else []
        label = Text(short_chain(cell.ops, cell_width) or cell.signature[:8])
        table.add_row(*(column.show(cell) for column in columns), label, *place)
    if others:
        table.add_row(*_others_row(others, columns, bar(_share(others), top_share, bar_width)))
    return table


def notes(
    estimate: Estimate, tolerance: float | None = None, *, everything: bool = False
) -> list[Text]:
    """What the reader must know before using the number, one line each.

    ``everything``: at any length, and with all operators that do not run.
    """
    lines: list[Text] = []
    missing = [cell for cell in estimate.cells if cell.source == "unsupported"]
    if missing:
        lines.append(Text(f"{count_text(len(missing), 'cell')} without a latency: the time above "
                          "leaves them out.", "bold red"))  # fmt: skip
        reasons = dict.fromkeys(cell.reason for cell in missing if cell.reason)
        lines += [Text(f"  {reason}", "red") for reason in reasons]
    elif not estimate.within_tolerance:
        lines.append(Text(f"{first_upper(why_untrusted(estimate, tolerance))}.", "bold red"))
    if estimate.to_measure:
        lines.append(Text(f"To be sure, measure {count_text(len(estimate.to_measure), 'cell')} on "
                          f"{estimate.target}.",
                          "yellow"))  # fmt: skip
    for warning in estimate.warnings:
        lines.append(Text(f"Note: {warning if everything else _at_length(warning)}", "yellow"))
    if everything and estimate.removed:
        lines.append(Text(f"Not run: {', '.join(estimate.removed)}", "dim"))
    return lines


def _at_length(warning: str) -> str:
    """The warning, cut where it goes on for many lines."""
    if len(warning) <= _NOTE_LENGTH:
        return warning
    return f"{warning[:_NOTE_LENGTH].rpartition(' ')[0]} … (--all shows all of it)"


def bar(share: float, top_share: float, width: int) -> str:
    """A bar of block characters, full at ``top_share``; anything above zero shows."""
    if top_share <= 0 or share <= 0:
        return ""
    eighths = max(1, round(8 * width * min(share / top_share, 1.0)))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _share_of(cell: CellEstimate) -> str:
    return percent_text(None if cell.latency_us is None else cell.share)


def _number(scale: Scale, cell: CellEstimate, decimals: int) -> str:
    return "–" if cell.latency_us is None else scale.number(cell.latency_us, decimals)


def _width_of(cell: CellEstimate) -> str:
    return plus_minus_text(half_width_share(cell.latency_us, cell.interval_us)).removeprefix("±")


def _source(cell: CellEstimate) -> Text:
    return Text(cell.source, SOURCE_STYLE[cell.source])


def _widest(column: _Column, rows: list[CellEstimate], bar_width: int) -> int:
    if not column.title:
        return bar_width
    return max([len(column.title), *(len(column.show(cell)) for cell in rows)])


def _share(cells: list[CellEstimate]) -> float:
    return sum(cell.share for cell in cells)


def _others_row(others: list[CellEstimate], columns: list[_Column], bar_text: str) -> list[Text]:
    texts = {
        "": bar_text,
        "share": percent_text(_share(others)),
        "uses": f"×{sum(cell.count for cell in others)}",
    }
    label = f"{len(others)} other cells (--all shows them)"
    return [Text(texts.get(column.title, ""), "dim") for column in columns] + [Text(label, "dim")]
