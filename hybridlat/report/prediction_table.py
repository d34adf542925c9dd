"""Networks × batches × targets as one table: on the terminal, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import PurePath

from rich.console import Console
from rich.text import Text

from hybridlat.errors import HybridlatError
from hybridlat.report.table import Cell, Column, Table, titled
from hybridlat.report.units import NOTHING, answer_text, fps_text, latency_text, sureness_text
from hybridlat.schema.estimate import Estimate

COLUMNS = (
    "network", "target", "batch", "latency_us", "low_us", "high_us", "confidence",
    "throughput_per_s", "throughput_low_per_s", "throughput_high_per_s", "measured_share",
    "trusted", "grade", "max_latency_us", "verdict", "probability_within",
    "memory_low_bytes", "memory_high_bytes", "memory_verdict", "rests_on", "answered_as", "power_w",
    "error",
)  # fmt: skip
"""Of the CSV: one row for each network, target and batch, empty where there is nothing to say."""
_COLUMNS = [
    Column("network"), Column("batch", right=True), Column("target"),
    *titled("latency", "interval", "throughput", right=True), Column("grade", wraps=True),
    *titled("verdict", "memory"),
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
    """What was asked, and the answers so far: estimates, or errors in their places.

    A batch of None is the one that the file states.
    """

    networks: Sequence[str]
    batches: Sequence[int | None]
    targets: list[str]
    answers: dict[Place, Estimate | HybridlatError] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.networks) * len(self.batches) * len(self.targets)

    def estimates(self) -> list[Estimate]:
        return [answer for _, answer in self.rows() if isinstance(answer, Estimate)]

    def rows(self) -> list[tuple[Place, Estimate | HybridlatError]]:
        """The answers with their places, by network, batch and target."""
        return sorted(self.answers.items(), key=itemgetter(0))

    def next_text(self) -> str:
        """``, 3 of 24``: the number of the next answer; empty for a single one."""
        return f", {len(self.answers) + 1} of {self.size}" if self.size > 1 else ""

    def batch_text(self, network: int, batch: int) -> str:
        """The batch of a row: that of its estimates where none was given."""
        row = (self.answers[network, batch, i] for i in range(len(self.targets)))
        found = (answer.batch for answer in row if isinstance(answer, Estimate))
        shown = self.batches[batch] or next(found, None)
        return NOTHING if shown is None else f"{shown:,}"

    def print(self, console: Console) -> None:
        """One row for each network, batch and target; what is doubtful carries a question mark."""
        if len(self.targets) == 1:
            console.print(Text(f"on {self.targets[0]}", "bold"))
        console.print(_brief(self).terminal())
        budgets = dict.fromkeys(latency_text(e.max_latency_us) for e in self.estimates())
        if budgets.keys() - {NOTHING}:
            console.print(Text(f"against {', '.join(budgets)}", "dim"))
        if note := _note(self):
            console.print(Text(note, "dim"))

    def markdown(self) -> str:
        note = _note(self)
        shown = _whole(self).without(_without(self.estimates()))
        return shown.markdown() + "\n" + (f"\n{note}\n" if note else "")

    def csv(self) -> str:
        """CSV with ``COLUMNS``; numbers as they are, times in microseconds."""
        rows = []
        for (i, j, k), answer in self.rows():
            if isinstance(answer, Estimate):
                figures = [*values_of(answer)[2:], None]
            else:
                figures = [self.batches[j], *[None] * (len(COLUMNS) - 4), str(answer)]
            rows.append([self.networks[i], self.targets[k], *figures])
        return Table(titled(*COLUMNS), rows).csv()


def choice_table(estimates: Sequence[Estimate], *, wide: bool) -> Table:
    """Targets to choose from, in their order: power, answer, verdict and what each rests on."""
    powers = [NOTHING if e.power_w is None else f"{e.power_w:g} W" for e in estimates]
    rows = [
        [e.target, power, *_figures(e), e.rests_on]
        for e, power in zip(estimates, powers, strict=True)
    ]
    columns = [_COLUMNS[2], Column("power", True), *_COLUMNS[3:], Column("rests on")]
    left_out = {} if wide else dict.fromkeys(("throughput", "grade", "rests on"), True)
    return Table(columns, rows).without(left_out | _without(estimates))


def table_of(answers: Sequence[Estimate | HybridlatError]) -> Table:
    """One row for each; what is the same in all, such as their target, stands in the caption."""
    keys = [
        (each.network, f"{each.batch:,}", each.target) if isinstance(each, Estimate)
        else (str(each), NOTHING, NOTHING) for each in answers
    ]  # fmt: skip
    rows = [[*key, *_figures(each)] for key, each in zip(keys, answers, strict=True)]
    alike = {c.title: len({k[i] for k in keys} - {NOTHING}) < 2 for i, c in enumerate(_COLUMNS[:3])}
    alike["network"] &= len(keys) > 1
    words = [keys[0][i] for i in (0, 2) if keys and alike[_COLUMNS[i].title]]
    estimates = [each for each in answers if isinstance(each, Estimate)]
    return Table(_COLUMNS, rows, " on ".join(words)).without(alike | _without(estimates))


def values_of(estimate: Estimate) -> list[object]:
    """The row of an estimate in the CSV, all but the error."""
    memory = estimate.memory
    return [
        estimate.network, estimate.target, estimate.batch, estimate.latency_us,
        estimate.low_us, estimate.finite_high_us, estimate.confidence, estimate.throughput_per_s,
        *(estimate.throughput_interval_per_s or (None, None)),
        estimate.measured_share, estimate.trusted, estimate.grade, estimate.max_latency_us,
        estimate.verdict, estimate.probability_within,
        *((memory and memory.total_bytes) or (None, None)), memory and memory.verdict,
        estimate.rests_on, estimate.answered_as, estimate.power_w,
    ]  # fmt: skip


def _whole(table: PredictionTable) -> Table:
    rows = [
        [table.networks[i], table.batch_text(i, j), table.targets[k], *_figures(answer)]
        for (i, j, k), answer in table.rows()
    ]
    return Table(_COLUMNS, rows)


def _without(estimates: Sequence[Estimate]) -> dict[str, object]:
    """The columns that say nothing: no budget, and memory that suffices everywhere."""
    memory = {estimate.memory and estimate.memory.verdict for estimate in estimates}
    no_budget = all(estimate.verdict is None for estimate in estimates)
    return {"verdict": no_budget, "memory": memory <= {None, "fits"}}


def _brief(table: PredictionTable) -> Table:
    """The same for a terminal: short names, and nothing that all rows or the one above say."""
    names = [PurePath(network).stem for network in table.networks]
    short = names if len(set(names)) == len(names) else table.networks
    rows = [
        ["" if j or k else short[i], "" if k else row[1], *row[2:]]
        for ((i, j, k), _), row in zip(table.rows(), _whole(table).rows, strict=True)
    ]
    alone = len(table.targets) == 1
    left_out = {"target": alone, "throughput": not alone, "batch": len(table.batches) == 1}
    return Table(_COLUMNS, rows).without(left_out | _without(table.estimates()))


def _figures(estimate: Estimate | HybridlatError) -> list[str | Cell]:
    if isinstance(estimate, HybridlatError):
        return [Cell(NOTHING, "bad"), *[NOTHING] * 5]
    answer, interval = answer_text(estimate)
    latency = Cell(answer, "latency" if answer != NOTHING else "bad")
    if answer != NOTHING and not estimate.trusted:
        latency = Cell(f"{answer} {DOUBT}", "warn")
    sure = sureness_text(estimate).partition(" %")  # of a probability of 1 there is nothing to say
    verdict = f"{estimate.verdict or ''} {sure[0] + sure[1] if sure[1] else ''}".strip()
    memory = (estimate.memory and estimate.memory.verdict) or NOTHING
    throughput, grade = fps_text(estimate.throughput_per_s), estimate.grade or NOTHING
    return [latency, interval, throughput, grade, verdict, memory]


def _note(table: PredictionTable) -> str:
    doubtful = any(not e.trusted and e.latency_us is not None for e in table.estimates())
    return "\n\n".join(filter(None, [_DOUBTFUL if doubtful else "", basis_note(table.estimates())]))


def basis_note(estimates: Sequence[Estimate]) -> str:
    """A line where targets rest on different things, which do not compare; else nothing."""
    rests = {estimate.target: estimate.rests_on for estimate in estimates}
    if len(rests) < 2 or len({estimate.basis for estimate in estimates}) < 2:
        return ""
    listed = "; ".join(f"{target}: {text}" for target, text in rests.items())
    return f"These rows rest on different things and do not compare closely. {listed}."
