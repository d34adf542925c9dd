"""Networks side by side: which is faster, by how much, and which cells make the difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from hybridlat.report.cell_texts import chain, what_text
from hybridlat.report.table import STYLES, Cell, Column, Table, titled
from hybridlat.report.terminal import notes
from hybridlat.report.units import RESOLUTION_US, Scale, answer_text, scale_for, verdict_text
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import visible

COMPARISON_FORMAT = 1
ROWS = 12
_OF_DIFFERENCE = ("signature", "ops", "count", "total_us", "difference_us")
_PAGE_ROOM = 110  # characters for a cell on a page
_AT_LEAST = 14  # characters for a chain of kernels beside what they do


@dataclass(slots=True)
class CellDifference:
    """One cell over all networks: ``count`` uses in each, taking ``total_us`` (None: unknown).

    ``what`` is in few words what the cell does, where that is known.
    """

    signature: str
    ops: tuple[str, ...]
    count: list[int]
    total_us: list[float | None]
    what: str = ""

    @property
    def difference_us(self) -> float:
        """The largest total minus the smallest: how far this cell moves the networks apart."""
        known = [total for total in self.total_us if total is not None]
        return max(known) - min(known) if known else 0.0

    def cells(self, scale: Scale) -> list[Cell]:
        return [
            Cell("–", "hint") if count == 0
            else Cell("unknown", "unsupported") if total is None
            else Cell(f"{scale.number(total)} ×{count}")
            for total, count in zip(self.total_us, self.count, strict=True)
        ]  # fmt: skip


def cell_differences(estimates: Sequence[Estimate], *, alike: bool = False) -> list[CellDifference]:
    """The cells that the networks do not spend the same time in: unknown ones, then the largest.

    ``alike``, for people: cells that read the same are one row, and what no clock can tell is left
    out. A cell of a small network and the same of a large one are two, for caches are colder there,
    but shown as two one would seem to be gone and another to be new.
    """
    rows: dict[object, CellDifference] = {}
    for number, estimate in enumerate(estimates):
        for position, cell in enumerate(estimate.cells):
            structure = estimate.structure
            what = "" if structure is None else what_text(structure.cells[position])
            key = (what, cell.ops) if alike and what else cell.signature
            counts = [0 for _ in estimates]
            new = CellDifference(cell.signature, cell.ops, counts, [0.0 for _ in estimates], what)
            row = rows.setdefault(key, new)
            if cell.latency_us is None:
                row.total_us[number] = None
            elif (before := row.total_us[number]) is not None:
                row.total_us[number] = before + cell.uses * cell.latency_us
            row.count[number] += cell.uses
    least_us = RESOLUTION_US if alike else 0.0
    shown = [row for row in rows.values() if None in row.total_us or row.difference_us > least_us]
    return sorted(shown, key=lambda row: (None not in row.total_us, -row.difference_us))


def speed_up(first: Estimate, other: Estimate) -> float | None:
    """How many times faster ``other`` is than ``first``; None where either lacks a cell.

    A network with a cell without a latency takes longer than its other cells do.
    """
    if not first.latency_us or not other.latency_us:
        return None
    if first.finite_high_us is None or other.finite_high_us is None:
        return None
    return first.latency_us / other.latency_us


def distinguishable(first: Estimate, other: Estimate) -> bool:
    """True when the intervals of the two latencies do not overlap.

    On one target the pace of the machine is the same for both: it is taken out of their width.
    """
    shared = first.target == other.target
    one, two = _interval_us(first, shared), _interval_us(other, shared)
    return one is not None and two is not None and (one[1] < two[0] or two[1] < one[0])


def _interval_us(estimate: Estimate, without_pace: bool) -> tuple[float, float] | None:
    pace_share = estimate.pace_share if without_pace else 0.0
    if estimate.low_us is None or estimate.finite_high_us is None or not pace_share:
        return estimate.interval_us
    # Both parts are added as squares of logarithms.
    middle = math.sqrt(estimate.low_us * estimate.finite_high_us)
    reach = math.log(estimate.finite_high_us / middle)
    own = math.exp(math.sqrt(max(reach**2 - math.log1p(pace_share) ** 2, 0.0)))
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
            {name: getattr(row, name) for name in _OF_DIFFERENCE}
            for row in cell_differences(estimates)
        ],
    }


def print_comparison(
    console: Console, estimates: Sequence[Estimate], *, every_cell: bool = False
) -> None:
    """The networks in a table, then the cells that set them apart, the largest first."""
    console.print(networks_table(estimates).terminal())
    table = differences_table(estimates, None if every_cell else ROWS, console.width)
    if table.rows:
        console.print()
        console.print(table.terminal())
    found: dict[str, tuple[list[str], Text]] = {}
    for number, estimate in enumerate(estimates):
        doubt = (
            [] if estimate.trusted else [Text(visible(f"{verdict_text(estimate)}."), STYLES["bad"])]
        )
        for note in (*doubt, *notes(estimate, everything=every_cell)):
            found.setdefault(note.plain, ([], note))[0].append(letter_of(number))
    for letters, note in found.values():
        console.print(Text(f"{', '.join(letters)}: ", "bold") + note)


def letter_of(number: int) -> str:
    """A, B, … and after Z by number: a short name for a column."""
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def networks_table(estimates: Sequence[Estimate]) -> Table:
    """The networks, and how each compares with the first; at several batches they do not."""
    first = estimates[0]
    rows = [
        [
            Cell(letter_of(number), "name"),
            Cell(estimate.network, "name" if estimate.trusted else "doubtful"),
            estimate.target, str(estimate.batch), Cell(latency, "latency"), interval,
            "" if estimate is first else against(first, estimate), estimate.grade or "–",
        ]
        for number, estimate in enumerate(estimates)
        for latency, interval in [answer_text(estimate)]
    ]  # fmt: skip
    columns = [
        Column(), *titled("network", "target", wraps=True),
        *titled("batch", "latency", "interval", "against A", right=True), Column("grade"),
    ]  # fmt: skip
    one_target = len({estimate.target for estimate in estimates}) == 1
    one_batch = len({estimate.batch for estimate in estimates}) == 1
    left_out = {"target": one_target, "batch": one_batch, "against A": not one_batch}
    caption = f"on {first.target}" if one_target else ""
    return Table(columns, rows, caption=caption).without(left_out)


def against(first: Estimate, other: Estimate) -> Cell:
    """``1.52× faster`` or ``slower``, where that is sure; no number where cells have no latency."""
    factor = speed_up(first, other)
    if not distinguishable(first, other):
        return Cell("–") if factor is None else Cell("too close to tell", "sameness")
    kind = "faster" if (other.latency_us or 0) <= (first.latency_us or 0) else "slower"
    if factor is None:
        return Cell(kind, kind)
    times = factor if factor >= 1 else 1 / factor
    return Cell(f"{times:.{2 if times < 10 else 0}f}× {kind}", kind)


def differences_table(
    estimates: Sequence[Estimate], most: int | None, width: int | None = None
) -> Table:
    """The cells that set the networks apart, ``most`` of them; of two networks with the difference.

    All of them, also those that read the same, where ``most`` is None. ``width`` is the terminal's
    in characters; None is a page.
    """
    rows = cell_differences(estimates, alike=most is not None)
    # One hidden row would take as many lines as the row that stands for it.
    shown = rows if most is None or len(rows) == most + 1 else rows[:most]
    scale = scale_for(total for row in rows for total in row.total_us)
    titles = [f"{letter_of(number)} [{scale.name}]" for number in range(len(estimates))]
    pair = len(estimates) == 2
    titles += ["B − A"] if pair else []
    room = _PAGE_ROOM
    if width is not None:
        room = width - (19 if width >= 100 else 15) * len(estimates) - (12 if pair else 0)
    between = " · " if width is None else "  "
    lines: list[list[Cell | Text]] = []
    for row in shown:
        what = row.what if len(row.what) + _AT_LEAST <= room else ""
        ops = chain(row.ops, max(room, 12) - len(what + between if what else ""))
        # Beside what a cell does, a part of its kernels says nothing on a narrow terminal.
        if row.what.startswith(ops) or (what and width is not None and "…" in ops):
            ops = ""
        signed = [_signed(row, scale)] if pair else []
        text = Text.assemble(what, between if what and ops else "", (ops, "dim" if what else ""))
        lines.append([*row.cells(scale), *signed, text])
    if len(shown) < len(rows):
        hint = "" if width is None else " (--all shows them)"
        more = Cell(f"{len(rows) - len(shown)} more{hint}", "hint")
        lines.append([*[Cell("")] * len(titles), more])
    cells = Column("cells that make the difference", wraps=width is None)
    return Table([*titled(*titles, right=True), cells], lines)


def _signed(row: CellDifference, scale: Scale) -> Cell:
    first, second = row.total_us
    if first is None or second is None:
        return Cell("unknown", "hint")
    value = (second - first) / scale.unit_us
    text = f"{value:+,.{2 if abs(value) < 10 else 1}f}"
    return Cell(text, "slower" if value > 0 else "faster")
