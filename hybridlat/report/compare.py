"""Networks side by side: which is faster, by how much, and which cells make the difference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from hybridlat.report.cell_texts import chain, what_text
from hybridlat.report.table import STYLES, Cell, Column, Table, titled
from hybridlat.report.terminal import notes
from hybridlat.report.units import (
    RESOLUTION_US,
    Scale,
    answer_text,
    percent_text,
    scale_for,
    verdict_text,
)
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import visible

COMPARISON_FORMAT = 1
ROWS = 12
_LEAST_SD = 0.002  # of a ratio's logarithm: no two sessions are nearer
_OF_DIFFERENCE = ("signature", "ops", "count", "total_us", "difference_us", "module")
_PAGE_ROOM = 110  # characters for a cell on a page
_AT_LEAST = 14  # characters for a chain of kernels beside what they do


@dataclass(slots=True)
class CellDifference:
    """One cell over all networks: ``count`` uses in each, taking ``total_us`` (None: unknown).

    ``what`` is in few words what the cell does, where that is known. ``module`` is its path
    where cells of one module are a row: networks of the same modules, such as one at two sizes.
    """

    signature: str
    ops: tuple[str, ...]
    count: list[int]
    total_us: list[float | None]
    what: str = ""
    module: str = ""

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
    places = _places(estimates)
    for number, estimate in enumerate(estimates):
        for position, cell in enumerate(estimate.cells):
            structure = estimate.structure
            what = "" if structure is None else what_text(structure.cells[position])
            usual = (what, cell.ops) if alike and what else cell.signature
            keys: Sequence[object] = places[number][position] if places else [usual]
            for key in keys:
                module, uses = (key[0], 1) if isinstance(key, tuple) and places else ("", cell.uses)
                counts = [0 for _ in estimates]
                new = CellDifference(
                    cell.signature, cell.ops, counts, [0.0 for _ in estimates], what, str(module)
                )
                row = rows.setdefault(key, new)
                if cell.latency_us is None:
                    row.total_us[number] = None
                elif (before := row.total_us[number]) is not None:
                    row.total_us[number] = before + uses * cell.latency_us
                row.count[number] += uses
    least_us = RESOLUTION_US if alike else 0.0
    shown = [row for row in rows.values() if None in row.total_us or row.difference_us > least_us]
    return sorted(shown, key=lambda row: (None not in row.total_us, -row.difference_us))


def _places(estimates: Sequence[Estimate]) -> list[list[list[tuple[str, int]]]]:
    """Of each cell of each network its modules, numbered where one holds several cells.

    Empty unless all networks have the same modules, of which some are other cells.
    """
    structures = [one.structure for one in estimates if one.structure is not None]
    of_paths = {tuple(sorted(p.path for p in structure.places)) for structure in structures}
    signatures = {frozenset(cell.signature for cell in one.cells) for one in estimates}
    if len(structures) < len(estimates) or len(of_paths) != 1 or len(signatures) == 1:
        return []
    places: list[list[list[tuple[str, int]]]] = []
    for estimate, structure in zip(estimates, structures, strict=True):
        seen = Counter[str]()
        own: list[list[tuple[str, int]]] = [[] for _ in estimate.cells]
        for place in structure.places:
            own[place.cell].append((place.path, seen[place.path]))
            seen[place.path] += 1
        places.append(own)
    return places


def speed_up(first: Estimate, other: Estimate) -> float | None:
    """How many times faster ``other`` is than ``first``; None where either lacks a cell.

    A network with a cell without a latency takes longer than its other cells do.
    """
    if not first.latency_us or not other.latency_us:
        return None
    if first.finite_high_us is None or other.finite_high_us is None:
        return None
    return first.latency_us / other.latency_us


@dataclass(frozen=True)
class Ratio:
    """A network's latency in that of the first: the ratio, its interval, and P(it is faster)."""

    ratio: float
    interval: tuple[float, float]
    probability_faster: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval says which of the two is faster."""
        return not self.interval[0] <= 1 <= self.interval[1]


def ratio_to(first: Estimate, other: Estimate, correlation: float | None = None) -> Ratio | None:
    """How ``other`` compares with ``first``; None where either lacks a cell.

    The logarithm of a ratio has the variance a² + b² - 2ρab of those of two latencies. Without the
    ``correlation`` ρ of their errors, it is that of cells that both hold, and of the machine's
    pace, which is the same for all that runs there.
    """
    up, z = speed_up(first, other), NormalDist().inv_cdf((1 + first.confidence) / 2)
    spreads = [_log_sd(first.interval_us, z), _log_sd(other.interval_us, z)]
    if up is None or first is other:
        return None if up is None else Ratio(1.0, (1.0, 1.0), 0.5)
    uses = [{(c.signature, c.uses) for c in each.cells} for each in (first, other)]
    common = 1.0 if first.target == other.target and uses[0] == uses[1] else correlation
    if common is None:
        common = _common(first, other, z) / max(math.prod(spreads), 1e-12)
    a, b = spreads
    sd = math.sqrt(max(a**2 + b**2 - 2 * min(common, 1.0) * a * b, _LEAST_SD**2))
    reach = math.exp(z * sd)
    return Ratio(1 / up, (1 / up / reach, reach / up), NormalDist(0, sd).cdf(math.log(up)))


Ratios: TypeAlias = "Sequence[Ratio | None]"


def ratios_of(
    estimates: Sequence[Estimate], correlations: Sequence[float] = ()
) -> tuple[Ratio | None, ...]:
    """Each against the first; ``correlations`` of their errors with the first's, where known."""
    known: Sequence[float | None] = correlations or [None] * len(estimates)
    pairs = zip(estimates, known, strict=True)
    return tuple(ratio_to(estimates[0], other, correlation) for other, correlation in pairs)


def _log_sd(interval_us: tuple[float, float] | None, z: float) -> float:
    low, high = interval_us or (1.0, 1.0)
    return math.log(high / low) / 2 / z if 0 < low < high < math.inf else 0.0


def _common(first: Estimate, other: Estimate, z: float) -> float:
    """The covariance of two estimates' errors, of their logarithms."""
    if first.target != other.target:
        return 0.0
    shares = {cell.signature: cell.share for cell in other.cells}
    cells = sum(
        cell.share * shares.get(cell.signature, 0.0) * _log_sd(cell.interval_us, z) ** 2
        for cell in first.cells
    )
    return cells + math.log1p(first.pace_share) * math.log1p(other.pace_share) / z**2


def comparison(estimates: Sequence[Estimate], ratios: Ratios = ()) -> dict[str, object]:
    """``compare --json`` (format 1): the estimates, speed-ups over the first, the differences."""
    first, ratios = estimates[0], ratios or ratios_of(estimates)
    return {
        "format": COMPARISON_FORMAT,
        "networks": [estimate.to_json() for estimate in estimates],
        "speed_up": [speed_up(first, estimate) for estimate in estimates],
        "ratios": [ratio and asdict(ratio) for ratio in ratios],
        "distinguishable": [ratio is not None and ratio.is_sure for ratio in ratios],
        "differences": [
            {name: getattr(row, name) for name in _OF_DIFFERENCE}
            for row in cell_differences(estimates)
        ],
    }


def print_comparison(
    console: Console, estimates: Sequence[Estimate], ratios: Ratios = (), *,
    every_cell: bool = False,
) -> None:  # fmt: skip
    """The networks in a table, then the cells that set them apart, the largest first."""
    console.print(networks_table(estimates, ratios).terminal())
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


def networks_table(estimates: Sequence[Estimate], ratios: Ratios = ()) -> Table:
    """The networks, and how each compares with the first; at several batches they do not."""
    first, ratios = estimates[0], ratios or ratios_of(estimates)
    rows = [
        [
            Cell(letter_of(number), "name"),
            Cell(estimate.network, "name" if estimate.trusted else "doubtful"),
            estimate.target, str(estimate.batch), Cell(latency, "latency"), interval,
            *against(first, estimate, ratio), estimate.grade or "–",
        ]
        for number, (estimate, ratio) in enumerate(zip(estimates, ratios, strict=True))
        for latency, interval in [answer_text(estimate)]
    ]  # fmt: skip
    columns = [
        Column(), *titled("network", "target", wraps=True),
        *titled("batch", "latency", "interval", "against A", "its interval", right=True),
        Column("grade"),
    ]  # fmt: skip
    one_target = len({estimate.target for estimate in estimates}) == 1
    one_batch = len({estimate.batch for estimate in estimates}) == 1
    one_network = len({estimate.network for estimate in estimates}) == 1 and not one_target
    left_out = {
        "network": one_network, "target": one_target, "batch": one_batch,
        "against A": not one_batch,
        "its interval": not one_batch or not any(row[-2] for row in rows),
    }  # fmt: skip
    caption = f"on {first.target}" if one_target else first.network if one_network else ""
    return Table(columns, rows, caption=caption).without(left_out)


def against(first: Estimate, other: Estimate, ratio: Ratio | None) -> tuple[str | Cell, str]:
    """``1.52× faster`` or ``slower`` with the interval of that; where unsure, how probable."""
    if other is first:
        return "", ""
    if ratio is None:
        ends = [each.interval_us or (0.0, math.inf) for each in (first, other)]
        kind = "faster" if ends[1][1] < ends[0][0] else "slower" if ends[1][0] > ends[0][1] else "–"
        return Cell(kind, kind if kind != "–" else ""), ""
    kind = "faster" if ratio.ratio <= 1 else "slower"
    low, high = sorted(1 / end if ratio.ratio <= 1 else end for end in ratio.interval)
    times = max(ratio.ratio, 1 / ratio.ratio)
    if not ratio.is_sure:
        sure = percent_text(max(ratio.probability_faster, 1 - ratio.probability_faster), 0)
        return Cell(f"{kind}? {sure} sure", "sameness"), f"{low:.2f} – {high:.2f}×"
    text = f"{times:.{2 if times < 10 else 0}f}× {kind}"
    return Cell(text, kind), f"{low:.2f} – {high:.2f}×"


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
        what = between.join(filter(None, [row.module, what]))
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
