"""Networks side by side: which is faster, by how much, and which cells make the difference."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from hybridlat.report import units
from hybridlat.report.cell_texts import chain, what_text
from hybridlat.report.html_section import in_notebook
from hybridlat.report.table import STYLES, Cell, Column, Table, titled
from hybridlat.report.terminal import is_command, notes, printed
from hybridlat.report.units import NOTHING, RESOLUTION_US, Ratio, Scale, ratio_to
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import visible

COMPARISON_FORMAT = 1
ROWS = 12
_OF_DIFFERENCE = ("signature", "ops", "count", "total_us", "difference_us", "module")
_SAME = 5e-4  # of a ratio's logarithm: latencies of three digits read alike
_PAGE_ROOM = 110  # characters for a cell on a page


@dataclass(slots=True)
class CellDifference:
    """One cell or ``module``: ``count`` uses in each network, taking ``total_us`` or None."""

    signature: str
    ops: tuple[str, ...]
    count: list[int]
    total_us: list[float | None]
    what: str = ""
    module: str = ""

    @property
    def difference_us(self) -> float | None:
        """The largest total minus the smallest: how far this cell moves the networks apart."""
        known = [total for total in self.total_us if total is not None]
        return max(known) - min(known) if len(known) == len(self.total_us) else None


def cell_differences(estimates: Sequence[Estimate], *, alike: bool = False) -> list[CellDifference]:
    """The cells that the networks do not spend the same time in: unknown ones, then the largest.

    ``alike``, for people: cells that read the same are one row, and what no clock can tell is left
    out. Caches are colder in a large network: its cell would seem to be another.
    """
    rows: dict[object, CellDifference] = {}
    words_of: dict[str, tuple[str, tuple[str, ...]]] = {}
    modules = _modules(estimates)
    for number, estimate in enumerate(estimates):
        for position, cell in enumerate(estimate.cells):
            structure = estimate.structure
            what = "" if structure is None else what_text(structure.cells[position])
            paired = modules[number][position] if modules else []
            uses_of: dict[object, int] = dict.fromkeys(paired, 1)
            if left := cell.uses - len(paired):
                words = words_of.setdefault(cell.signature, (what, cell.ops))
                uses_of[words if alike and what else cell.signature] = left
            for key, uses in uses_of.items():
                module = key.path if isinstance(key, _Module) else ""
                counts, totals_us = [0] * len(estimates), [0.0] * len(estimates)
                new = CellDifference(cell.signature, cell.ops, counts, [*totals_us], what, module)
                row = rows.setdefault(key, new)
                row.count[number] += uses
                if (before_us := row.total_us[number]) is not None:
                    each_us = cell.latency_us
                    row.total_us[number] = None if each_us is None else before_us + uses * each_us
    least_us = RESOLUTION_US if alike else 0.0
    apart = [(math.inf if (us := row.difference_us) is None else us, row) for row in rows.values()]
    shown = sorted(apart, key=lambda pair: -pair[0])
    return [row for us, row in shown if us > least_us]


class _Module(NamedTuple):
    path: str
    number: int  # of its cells


def _modules(estimates: Sequence[Estimate]) -> list[list[list[_Module]]]:
    """Of each cell the modules that all networks have alike; empty unless most of them are."""
    structures = [one.structure for one in estimates if one.structure is not None]
    counts = [Counter(place.path for place in structure.places) for structure in structures]
    every = set[str]().union(*counts)
    alike = {path for path in every if len({own[path] for own in counts}) == 1}
    signatures = {frozenset(cell.signature for cell in one.cells) for one in estimates}
    if len(structures) < len(estimates) or 2 * len(alike) < len(every) or len(signatures) == 1:
        return []
    modules: list[list[list[_Module]]] = []
    for estimate, structure in zip(estimates, structures, strict=True):
        seen = Counter[str]()
        own: list[list[_Module]] = [[] for _ in estimate.cells]
        for place in structure.places:
            if place.path in alike:
                own[place.cell].append(_Module(place.path, seen[place.path]))
                seen[place.path] += 1
        modules.append(own)
    return modules


@dataclass(frozen=True)
class Comparison:
    """Networks side by side; the first is what the others are compared with.

    ``str`` is the table of ``hybridlat compare``; ``estimates`` are in the order of the networks.
    ``hybridlat.to_frame`` and ``to_html`` take it. ``ratio_log_sds`` are the
    standard errors of ln(latency in that of the first), where one law predicts all of them.
    """

    estimates: tuple[Estimate, ...]
    ratio_log_sds: tuple[float, ...] = ()

    @cached_property
    def ratios(self) -> tuple[Ratio | None, ...]:
        """Each latency in that of the first: ratio, interval, ``probability_faster``.

        Most of the error is common to all candidates: intervals of ratios are narrower.
        """
        known: Sequence[float | None] = self.ratio_log_sds or [None] * len(self.estimates)
        pairs = zip(self.estimates, known, strict=True)
        return tuple(ratio_to(self.estimates[0], *pair) for pair in pairs)

    @property
    def speed_up(self) -> tuple[float | None, ...]:
        """How many times faster each network is than the first; None without a latency."""
        return tuple(None if ratio is None else 1 / ratio.ratio for ratio in self.ratios)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``hybridlat compare --json``."""
        rows = cell_differences(self.estimates)
        return {
            "format": COMPARISON_FORMAT,
            "networks": [estimate.to_json() for estimate in self.estimates],
            "speed_up": self.speed_up,
            "ratios": [ratio and asdict(ratio) for ratio in self.ratios],
            "distinguishable": [ratio is not None and ratio.is_sure for ratio in self.ratios],
            "differences": [{name: getattr(row, name) for name in _OF_DIFFERENCE} for row in rows],
        }

    def __str__(self) -> str:
        return printed(self.print)

    def _repr_html_(self) -> str:
        tables = [self.networks_table(), differences_table(self.estimates, ROWS)]
        head = [*filter(None, [str(tables[0].caption)])]
        return in_notebook(head, [table for table in tables if table.rows])

    def print(self, console: Console, *, every_cell: bool = False) -> None:
        """The networks in a table, then the cells that set them apart, the largest first."""
        self.networks_table().print(console)
        table = differences_table(self.estimates, None if every_cell else ROWS, console.width)
        if table.rows:
            console.print()
            console.print(table.terminal())
        blocks: dict[tuple[str, ...], tuple[list[str], list[Text]]] = {}
        for number, estimate in enumerate(self.estimates):
            doubt = Text(visible(f"{units.verdict_text(estimate)}."), STYLES["bad"])
            own = [] if estimate.trusted else [[doubt]]
            for note in notes(estimate, everything=every_cell):
                own += [] if is_command(note) else [[]]
                own[-1].append(note)
            for block in own:
                alike = blocks.setdefault(tuple([note.plain for note in block]), ([], block))
                alike[0].append(letter_of(number))
        for letters, (note, *commands) in blocks.values():
            console.print(Text(f"{', '.join(letters)}: ", "bold") + note)
            for command in commands:
                console.print(command, soft_wrap=True)

    def networks_table(self) -> Table:
        """The networks, and how each compares with the first; at several batches they do not."""
        estimates, rows = self.estimates, list[list[Cell | str]]()
        for number, (estimate, ratio) in enumerate(zip(estimates, self.ratios, strict=True)):
            latency, interval = units.answer_text(estimate)
            name = Cell(estimate.network, "name" if estimate.trusted else "doubtful")
            of, batch = estimate.target, str(estimate.batch)
            answer = (Cell(latency, "latency"), interval, *_against(estimates[0], estimate, ratio))
            letter = Cell(letter_of(number), "name")
            end = (estimate.grade or NOTHING, units.short_verdict(estimate))
            rows.append([letter, name, of, batch, *answer, *end])
        columns = [Column(), *titled("network", "target", wraps=True)]
        columns += titled("batch", "latency", "interval", "against A", "its interval", right=True)
        alike = {
            name: len({getattr(estimate, name) for estimate in estimates}) == 1
            for name in ("network", "target", "batch")
        }
        alike["network"] &= not alike["target"]
        left_out = alike | {"against A": not alike["batch"]}
        left_out["its interval"] = not alike["batch"] or not any(row[-3] for row in rows)
        left_out["verdict"] = not any(row[-1] for row in rows)
        caption = estimates[0].network if alike["network"] else ""
        caption = f"on {estimates[0].target}" if alike["target"] else caption
        columns += titled("grade", "verdict")
        return Table(columns, rows, caption=caption).without(left_out)


def letter_of(number: int) -> str:
    """A, B, … and after Z by number: a short name for a column."""
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def _against(first: Estimate, other: Estimate, ratio: Ratio | None) -> tuple[str | Cell, str]:
    """``1.52× faster`` or ``slower`` with the interval of that; where unsure, how probable."""
    if other is first:
        return "", ""
    if ratio is None:
        (low_us, high_us), ends = (each.interval_us or (0.0, math.inf) for each in (first, other))
        kind = "faster" if ends[1] < low_us else "slower" if ends[0] > high_us else ""
        return Cell(kind or NOTHING, kind), ""
    if abs(math.log(ratio.ratio)) < _SAME:
        return Cell("the same", "sameness"), ""
    kind = "faster" if ratio.ratio <= 1 else "slower"
    low, high = sorted(1 / end if ratio.ratio <= 1 else end for end in ratio.interval)
    times = max(ratio.ratio, 1 / ratio.ratio)
    text = Cell(f"{times:.{2 if times < 10 else 0}f}× {kind}", kind)
    if not ratio.is_sure:
        sure = units.percent_text(max(ratio.probability_faster, 1 - ratio.probability_faster), 0)
        text = Cell(f"{kind}? {sure} sure", "sameness")
    return text, f"{low:.2f} – {high:.2f}×"


def differences_table(
    estimates: Sequence[Estimate], most: int | None, width: int | None = None
) -> Table:
    """``most`` cells that set the networks apart; ``width`` is the terminal's, None a page."""
    rows = cell_differences(estimates, alike=most is not None)
    # One hidden row would take as many lines as the row that stands for it.
    shown = rows if most is None or len(rows) == most + 1 else rows[:most]
    scale = units.scale_for(total for row in rows for total in row.total_us)
    titles = [f"{letter_of(number)} [{scale.name}]" for number in range(len(estimates))]
    titles += ["B − A"] if len(estimates) == 2 else []
    room = _PAGE_ROOM
    if width is not None:
        of_each = 19 if width >= 100 else 15
        room = width - of_each * len(estimates) - (12 if len(estimates) == 2 else 0)
    lines: list[list[Cell | Text]] = [
        [*_figures(row, scale), _words(row, room, on_page=width is None)] for row in shown
    ]
    if len(shown) < len(rows):
        hint = "" if width is None else " (--all shows them)"
        more = Cell(f"{len(rows) - len(shown)} more{hint}", "hint")
        lines.append([*[Cell("")] * len(titles), more])
    cells = Column("cells that make the difference", wraps=width is None)
    return Table([*titled(*titles, right=True), cells], lines)


def _figures(row: CellDifference, scale: Scale) -> Iterator[Cell]:
    for total, count in zip(row.total_us, row.count, strict=True):
        if count == 0:
            yield Cell(NOTHING, "hint")
        elif total is None:
            yield Cell("unknown", "unsupported")
        else:
            yield Cell(f"{scale.number(total)} ×{count}")
    if len(row.total_us) == 2:
        first, second = row.total_us
        if first is None or second is None:
            yield Cell("unknown", "hint")
        else:
            value = (second - first) / scale.unit_us
            text = f"{value:+,.{2 if abs(value) < 10 else 1}f}"
            yield Cell(text, "slower" if value > 0 else "faster")


def _words(row: CellDifference, room: int, on_page: bool) -> Text:
    between = " · " if on_page else "  "
    own = row.what if len(row.what) <= room else ""
    what = between.join(filter(None, [row.module, own]))
    ops = chain(row.ops, max(room, 12) - len(what + between if what else ""))
    # Beside what a cell does, a part of its kernels says nothing on a narrow terminal.
    if own.startswith(ops) or (what and not on_page and "…" in ops):
        ops = ""
    return Text.assemble(what, between if what and ops else "", (ops, "dim" if what else ""))
