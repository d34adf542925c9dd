"""Networks × batches × targets as one table: on the terminal, as Markdown and as CSV."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from rich.console import Console
from rich.text import Text

from hybridlat.report.table import Cell, Column, Table, titled
from hybridlat.report.units import NOTHING, answer_text, throughput_text
from hybridlat.schema.estimate import Estimate

COLUMNS = (
    "network", "target", "batch", "latency_us", "low_us", "high_us", "confidence",
    "throughput_per_s", "throughput_low_per_s", "throughput_high_per_s", "measured_share",
    "trusted", "grade", "error",
)  # fmt: skip
"""Of the CSV: one row for each network, target and batch, empty where there is nothing to say."""
_COLUMNS = [
    Column("network"), Column("batch", right=True), Column("target"),
    *titled("latency", "interval", "throughput", right=True), Column("grade", wraps=True),
]  # fmt: skip
DOUBT = "?"
_DOUBTFUL = (
    f"{DOUBT} not to be trusted: a cell has no latency, the measurements are doubtful, or the "
    "tolerance is not kept."
)


Place = tuple[int, int, int]
"""The positions of network, batch and target."""


@dataclass(frozen=True)
class PredictionTable:
    """What was asked, and the answers so far; ``reasons`` says why there is none.

    A batch of None is the one that the file states.
    """

    networks: Sequence[str]
    batches: Sequence[int | None]
    targets: list[str]
    answers: dict[Place, Estimate] = field(default_factory=dict)
    reasons: dict[Place, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.networks) * len(self.batches) * len(self.targets)

    def estimates(self) -> list[Estimate]:
        """All of them, by network, batch and target."""
        return [self.answers[place] for place in sorted(self.answers)]

    def of(self, network: int, batch: int) -> list[Estimate | None]:
        """The answers of one row, by target."""
        return [self.answers.get((network, batch, i)) for i in range(len(self.targets))]

    def next_text(self) -> str:
        """``, 3 of 24``: the number of the next answer; empty for a single one."""
        number = len(self.answers) + len(self.reasons) + 1
        return f", {number} of {self.size}" if self.size > 1 else ""

    def batch_text(self, network: int, batch: int) -> str:
        """The batch of a row: that of its estimates where none was given."""
        asked = self.batches[batch]
        if asked is None:
            asked = next((e.batch for e in self.of(network, batch) if e is not None), None)
        return NOTHING if asked is None else f"{asked:,}"


def print_table(console: Console, table: PredictionTable) -> None:
    """One row for each network, batch and target; what is doubtful carries a question mark."""
    if len(table.targets) == 1:
        console.print(Text(f"on {table.targets[0]}", "bold"))
    console.print(_brief(table).terminal())
    if note := _note(table):
        console.print(Text(note, "dim"))


def curve_table(estimates: Sequence[Estimate]) -> Table:
    """One network on one target over batches: latency and throughput of each."""
    rows = [[f"{e.batch:,}", *_figures(e)] for e in estimates]
    return Table([_COLUMNS[1], *_COLUMNS[3:]], rows)


def markdown(table: PredictionTable) -> str:
    """A table of GitHub's Markdown, one row for each network, batch and target."""
    note = _note(table)
    return _whole(table).markdown() + "\n" + (f"\n{note}\n" if note else "")


def comma_separated(table: PredictionTable) -> str:
    """CSV with ``COLUMNS``; numbers as they are, times in microseconds."""
    sizes = (len(table.networks), len(table.batches), len(table.targets))
    rows: list[list[object]] = []
    for i, j, k in itertools.product(*map(range, sizes)):
        asked, estimate = [table.networks[i], table.targets[k]], table.answers.get((i, j, k))
        if estimate is None:
            nothing = [None] * (len(COLUMNS) - 4)
            reason = table.reasons.get((i, j, k), "")
            rows.append([*asked, table.batches[j], *nothing, reason])
        else:
            rows.append([*asked, *values_of(estimate)[2:], None])
    return Table(titled(*COLUMNS), rows).csv()


def values_of(estimate: Estimate) -> list[object]:
    """The row of an estimate in the CSV, all but the error."""
    return [
        estimate.network, estimate.target, estimate.batch, estimate.latency_us,
        estimate.low_us, estimate.finite_high_us, estimate.confidence, estimate.throughput_per_s,
        *(estimate.throughput_interval_per_s or (None, None)),
        estimate.measured_share, estimate.trusted, estimate.grade,
    ]  # fmt: skip


def _whole(table: PredictionTable) -> Table:
    rows = [
        [network, table.batch_text(i, j), table.targets[k], *_figures(estimate)]
        for i, network in enumerate(table.networks)
        for j in range(len(table.batches))
        for k, estimate in enumerate(table.of(i, j))
    ]
    return Table(_COLUMNS, rows)


def _brief(table: PredictionTable) -> Table:
    """The same for a terminal: short names, and nothing that all rows or the one above say."""
    names = [PurePath(network).stem for network in table.networks]
    short = names if len(set(names)) == len(names) else table.networks
    left_out = {"throughput" if len(table.targets) > 1 else "target"}
    left_out |= {"batch"} if len(table.batches) == 1 else set()
    kept = [i for i, column in enumerate(_COLUMNS) if column.title not in left_out]
    rows = []
    for number, row in enumerate(_whole(table).rows):
        network, above = divmod(number, len(table.batches) * len(table.targets))
        repeats = ["" if above else short[network], "" if above % len(table.targets) else row[1]]
        rows.append([[*repeats, *row[2:]][i] for i in kept])
    return Table([_COLUMNS[i] for i in kept], rows)


def _figures(estimate: Estimate | None) -> list[str | Cell]:
    if estimate is None:
        return [Cell(NOTHING, "bad"), *[NOTHING] * 3]
    answer, interval = answer_text(estimate)
    latency = Cell(answer, "latency" if answer != NOTHING else "bad")
    if answer != NOTHING and not estimate.trusted:
        latency = Cell(f"{answer} {DOUBT}", "warn")
    throughput = throughput_text(estimate.throughput_per_s)
    return [latency, interval, throughput, estimate.grade or NOTHING]


def _note(table: PredictionTable) -> str:
    doubtful = any(not e.trusted and e.latency_us is not None for e in table.estimates())
    return _DOUBTFUL if doubtful else ""
