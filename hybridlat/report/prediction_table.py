"""Networks × batches × targets as one table: on the terminal, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from rich.console import Console
from rich.text import Text

from hybridlat.report.table import Cell, Column, Table, titled
from hybridlat.report.units import (
    interval_text,
    latency_text,
    throughput_text,
)
from hybridlat.schema.estimate import Estimate

COLUMNS = (
    "network", "target", "batch", "latency_us", "low_us", "high_us", "confidence",
    "throughput_per_s", "throughput_low_per_s", "throughput_high_per_s", "measured_share",
    "trusted", "grade", "error",
)  # fmt: skip
"""Of the CSV: one row for each network, target and batch, empty where there is nothing to say."""
_FIGURES = ("interval", "throughput", "grade")
DOUBT = "?"
NOTHING = "–"
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

    def step(self, place: Place) -> str:
        """``predicting a.onnx on l4/tensorrt/fp16 (3 of 24)``: one after the other, by target."""
        network, batch, target = place
        size = (len(self.networks), len(self.batches))
        number = (target * size[1] + batch) * size[0] + network + 1
        of = f" ({number} of {self.size})" if self.size > 1 else ""
        return f"predicting {self.networks[network]} on {self.targets[target]}{of}"

    def batch_text(self, network: int, batch: int) -> str:
        """The batch of a row: that of its estimates where none was given."""
        asked = self.batches[batch]
        if asked is None:
            asked = next((e.batch for e in self.of(network, batch) if e is not None), None)
        return NOTHING if asked is None else f"{asked:,}"


def print_table(console: Console, table: PredictionTable) -> None:
    """One row for each network, batch and target; what is doubtful carries a question mark."""
    console.print(_of_targets(table, blank=True).terminal())
    if note := _note(table):
        console.print(Text(note, "dim"))


def print_curve(console: Console, estimates: Sequence[Estimate]) -> None:
    """``curve_table`` with its heading."""
    first = estimates[0]
    console.print(Text.assemble((first.network, "bold"), f"  on {first.target}"))
    console.print(curve_table(estimates).terminal())
    if any(not estimate.trusted for estimate in estimates):
        console.print(Text(_DOUBTFUL, "dim"))


def curve_table(estimates: Sequence[Estimate]) -> Table:
    """One network on one target over batches: latency and throughput of each."""
    rows = [[f"{e.batch:,}", *_figures(e)] for e in estimates]
    return Table(titled("batch", "latency", *_FIGURES, right=True), rows)


def markdown(table: PredictionTable) -> str:
    """A table of GitHub's Markdown, one row for each network, batch and target."""
    shown = _of_targets(table) if len(table.targets) > 1 else _of_one_target(table)
    note = _note(table)
    return shown.markdown() + "\n" + (f"\n{note}\n" if note else "")


def comma_separated(table: PredictionTable) -> str:
    """CSV with ``COLUMNS``; numbers as they are, times in microseconds."""
    rows: list[list[object]] = []
    for i, network in enumerate(table.networks):
        for j, batch in enumerate(table.batches):
            for k, target in enumerate(table.targets):
                estimate = table.answers.get((i, j, k))
                if estimate is None:
                    reason = table.reasons.get((i, j, k), "")
                    nothing = [None] * (len(COLUMNS) - 4)
                    rows.append([network, target, batch or None, *nothing, reason])
                else:
                    rows.append([network, target, *values_of(estimate)[2:], None])
    return Table(titled(*COLUMNS), rows).csv()


def values_of(estimate: Estimate) -> list[object]:
    """The row of an estimate in the CSV, all but the error."""
    return [
        estimate.network, estimate.target, estimate.batch, estimate.latency_us,
        estimate.low_us, estimate.finite_high_us, estimate.confidence, estimate.throughput_per_s,
        *(estimate.throughput_interval_per_s or (None, None)),
        estimate.measured_share, estimate.trusted, estimate.grade,
    ]  # fmt: skip


def _of_targets(table: PredictionTable, blank: bool = False) -> Table:
    """The targets of a network one below the other; ``blank`` where the row above says it."""
    several = len(table.batches) > 1
    rows = []
    files = [PurePath(network).stem for network in table.networks]
    short = blank and len(set(files)) == len(files)
    for i, network in enumerate(files if short else table.networks):
        for j in range(len(table.batches)):
            for k, estimate in enumerate(table.of(i, j)):
                latency, interval, _, grade = _figures(estimate)
                batch = ["" if blank and k else table.batch_text(i, j)] if several else []
                name = "" if blank and (j or k) else network
                rows.append([name, *batch, table.targets[k], latency, interval, grade])
    columns = [Column("network"), *titled(*(["batch"] if several else []), right=True),
               Column("target"), *titled("latency", "interval", right=True)]  # fmt: skip
    return Table([*columns, Column("grade", wraps=True)], rows)


def _of_one_target(table: PredictionTable) -> Table:
    rows = [
        [network, table.batch_text(i, j), *_figures(table.of(i, j)[0])]
        for i, network in enumerate(table.networks)
        for j in range(len(table.batches))
    ]
    titles = ("batch", table.targets[0], *_FIGURES)
    return Table([Column("network"), *titled(*titles, right=True)], rows)


def _figures(estimate: Estimate | None) -> list[str | Cell]:
    if estimate is None:
        return [_short(None), *[NOTHING] * len(_FIGURES)]
    return [
        _short(estimate),
        interval_text(estimate.interval_us) if estimate.supported else NOTHING,
        throughput_text(estimate.throughput_per_s),
        estimate.grade or NOTHING,
    ]


def _short(estimate: Estimate | None) -> Cell:
    """``8.12 ms``, with a question mark where it is not to be trusted."""
    if estimate is None or estimate.latency_us is None:
        return Cell(NOTHING, "bad")
    text = latency_text(estimate.latency_us)
    if not estimate.supported:
        text = interval_text(estimate.interval_us)
    return Cell(text, "latency") if estimate.trusted else Cell(f"{text} {DOUBT}", "warn")


def _note(table: PredictionTable) -> str:
    notes = []
    if any(not e.trusted and e.latency_us is not None for e in table.estimates()):
        notes.append(_DOUBTFUL)
    if any(e is None or e.latency_us is None
           for i in range(len(table.networks)) for j in range(len(table.batches))
           for e in table.of(i, j)):  # fmt: skip
        notes.append(f"{NOTHING} no answer.")
    return " ".join(notes)
