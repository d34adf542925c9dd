"""Networks × batches × targets as one table: on the terminal, as Markdown and as CSV."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, permutations
from operator import itemgetter
from pathlib import PurePath
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from hybridlat.errors import HybridlatError
from hybridlat.report.table import Cell, Column, Table, titled
from hybridlat.report.units import NOTHING, answer_text, fps_text, short_verdict
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import count_text, latency_text

COLUMNS = (
    "network", "target", "batch", "latency_us", "low_us", "high_us", "confidence",
    "throughput_per_s", "throughput_low_per_s", "throughput_high_per_s", "measured_share",
    "trusted", "grade", "max_latency_us", "verdict", "probability_within",
    "memory_low_bytes", "memory_high_bytes", "memory_verdict", "rests_on", "answered_as", "power_w",
    "error",
)  # fmt: skip
"""Of the CSV: one row for each network, target and batch, empty where there is nothing to say."""
_COLUMNS = [Column("network"), Column("batch", right=True), Column("target")]
_COLUMNS += titled("latency", "interval", "throughput", right=True)
_COLUMNS += titled("grade", "verdict", "memory")
_LATER = 1.005  # latencies of three digits that differ
_DOUBTFUL = (
    "? not to be trusted: a cell has no latency, the measurements are doubtful, or the "
    "tolerance is not kept."
)

Answer: TypeAlias = Estimate | HybridlatError
Place: TypeAlias = tuple[int, int, int]
"""The positions of network, batch and target."""


@dataclass(frozen=True)
class PredictionTable:
    """The answers so far, estimates or errors, by their places; a batch of None is the file's."""

    networks: Sequence[str]
    batches: Sequence[int | None]
    targets: list[str]
    answers: dict[Place, Answer] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.networks) * len(self.batches) * len(self.targets)

    def estimates(self) -> list[Estimate]:
        return [answer for _, answer in self.rows() if isinstance(answer, Estimate)]

    def rows(self) -> list[tuple[Place, Answer]]:
        """The answers with their places, by network, batch and target."""
        return sorted(self.answers.items(), key=itemgetter(0))

    def print(self, console: Console) -> None:
        """One row for each network, batch and target; what is doubtful carries a question mark."""
        targets = {self.target(place) for place in self.answers}
        if len(targets) == 1:
            console.print(Text(f"on {min(targets)}", "bold"))
        self._brief(len(targets) == 1).print(console)
        budgets = dict.fromkeys(latency_text(e.max_latency_us) for e in self.estimates())
        if budgets.keys() - {NOTHING}:
            console.print(Text(f"against {', '.join(budgets)}", "dim"))
        if note := self._note():
            console.print(Text(note, "dim"))

    def markdown(self) -> str:
        note = self._note()
        shown = self._whole().without(_empty_columns(self.estimates()))
        return shown.markdown() + "\n" + (f"\n{note}\n" if note else "")

    def csv(self) -> str:
        """CSV with ``COLUMNS``; numbers as they are, times in microseconds."""
        records = []
        for place, answer in self.rows():
            own = record_of(answer) if isinstance(answer, Estimate) else self._failed(place)
            records.append({**dict.fromkeys(COLUMNS), **own, "network": self.networks[place[0]]})
        return csv_of(records)

    def to_json(self) -> list[dict[str, object]]:
        """The answers as ``predict --json`` has them; of an error its place and ``error``."""
        return [a.to_json() if isinstance(a, Estimate) else self._failed(p) for p, a in self.rows()]

    def _failed(self, place: Place) -> dict[str, object]:
        of = {"network": self.networks[place[0]], "target": self.target(place)}
        error = str(self.answers[place])
        return {**of, "batch": self.batches[place[1]], "latency_us": None, "error": error}

    def target(self, place: Place) -> str:
        """An answer's own: a file of another precision differs; errors have the column's."""
        answer = self.answers[place]
        if isinstance(answer, Estimate):
            return answer.target
        column = (one for at, one in self.answers.items() if at[2] == place[2])
        targets = (one.target for one in column if isinstance(one, Estimate))
        return next(targets, self.targets[place[2]])

    def _whole(self) -> Table:
        rows = []
        for place, answer in self.rows():
            batch = getattr(answer, "batch", self.batches[place[1]])
            shown = NOTHING if batch is None else f"{batch:,}"
            rows.append([self.networks[place[0]], shown, self.target(place), *_figures(answer)])
        return Table(_COLUMNS, rows)

    def _brief(self, alone: bool) -> Table:
        """For a terminal: short names, and nothing that all rows or the one above say."""
        names = [PurePath(network).stem for network in self.networks]
        short = names if len(set(names)) == len(names) else self.networks
        rows = [
            ["" if j or k else short[i], "" if k else row[1], *row[2:]]
            for ((i, j, k), _), row in zip(self.rows(), self._whole().rows, strict=True)
        ]
        left_out = {"target": alone, "throughput": not alone, "batch": len(self.batches) == 1}
        return Table(_COLUMNS, rows).without(left_out | _empty_columns(self.estimates()))

    def _note(self) -> str:
        doubtful = any(not e.trusted and e.latency_us is not None for e in self.estimates())
        notes = [_DOUBTFUL if doubtful else "", compared_note(self.answers.values())]
        return "\n\n".join(filter(None, notes))


def choice_table(estimates: Sequence[Estimate], *, wide: bool) -> Table:
    """Targets to choose from, in their order: power, answer, verdict and what each rests on."""
    rows = []
    for one in estimates:
        watts = NOTHING if one.power_w is None else f"{one.power_w:g} W"
        rows.append([one.target, watts, *_figures(one), one.rests_on])
    power, rests_on = Column("power", right=True), Column("rests on", wraps=True)
    columns = [_COLUMNS[2], power, *_COLUMNS[3:], rests_on]
    left_out = {} if wide else dict.fromkeys(("throughput", "grade", "rests on"), True)
    return Table(columns, rows).without(left_out | _empty_columns(estimates))


def table_of(answers: Sequence[Answer]) -> Table:
    """One row for each; what is the same in all, such as their target, stands in the caption."""
    rows = []
    for one in answers:
        own = (str(one), NOTHING, NOTHING)
        own = (one.network, f"{one.batch:,}", one.target) if isinstance(one, Estimate) else own
        rows.append([*own, *_figures(one)])
    distinct = [{row[i] for row in rows} - {NOTHING} for i in range(3)]
    alike = {name: len(distinct[i]) < 2 for i, name in enumerate(("network", "batch", "target"))}
    alike["network"] &= len(rows) > 1
    caption = [str(rows[0][i]) for i in (0, 2) if rows and alike[_COLUMNS[i].title]]
    estimates = [each for each in answers if isinstance(each, Estimate)]
    return Table(_COLUMNS, rows, " on ".join(caption)).without(alike | _empty_columns(estimates))


def record_of(estimate: Estimate) -> dict[str, object]:
    """The row of an estimate in the CSV, all but the error."""
    memory = estimate.memory
    low, high = estimate.throughput_interval_per_s or (None, None)
    least, most = (memory and memory.total_bytes) or (None, None)
    own: dict[str, object] = {"high_us": estimate.finite_high_us, "throughput_low_per_s": low}
    own |= {"throughput_high_per_s": high, "memory_low_bytes": least, "memory_high_bytes": most}
    own["memory_verdict"] = memory and memory.verdict
    return {n: own[n] if n in own else getattr(estimate, n) for n in COLUMNS[:-1]}


def csv_of(records: Iterable[Mapping[str, object]]) -> str:
    """CSV of rows that have the same columns."""
    rows = list(records)
    return Table(titled(*rows[0]), [list(row.values()) for row in rows]).csv()


def _empty_columns(estimates: Sequence[Estimate]) -> dict[str, object]:
    """The columns that say nothing: no budget, and memory that suffices everywhere."""
    memory = {estimate.memory and estimate.memory.verdict for estimate in estimates}
    no_budget = all(estimate.verdict is None for estimate in estimates)
    return {"verdict": no_budget, "memory": memory <= {None, "fits"}}


def _figures(estimate: Answer) -> list[str | Cell]:
    if isinstance(estimate, HybridlatError):
        return [Cell(NOTHING, "bad"), *[NOTHING] * 5]
    answer, interval = answer_text(estimate)
    latency = Cell(answer, "latency" if answer != NOTHING else "bad")
    if answer != NOTHING and not estimate.trusted:
        latency = Cell(f"{answer} ?", "warn")
    memory = (estimate.memory and estimate.memory.verdict) or NOTHING
    throughput, grade = fps_text(estimate.throughput_per_s), estimate.grade or NOTHING
    return [latency, interval, throughput, grade, short_verdict(estimate), memory]


def compared_note(answers: Iterable[Answer]) -> str:
    """Where rows rest on different things, and where their order is against a data sheet."""
    estimates = [one for one in answers if isinstance(one, Estimate)]
    rests = {estimate.target: estimate.rests_on for estimate in estimates}
    notes = [order_note(estimates)]
    if len(rests) > 1 and len({estimate.basis for estimate in estimates}) > 1:
        listed = "; ".join(f"{target}: {text}" for target, text in rests.items())
        note = "These rows rest on different things and do not compare closely."
        notes.insert(0, f"{note} {listed}.")
    return "\n\n".join(filter(None, notes))


def order_note(estimates: Iterable[Estimate]) -> str:
    """A line where a precision comes out slower than one that its device computes more slowly."""
    texts, alike = list[str](), defaultdict[tuple[object, ...], list[Estimate]](list)
    for one in estimates:
        device, runtime, _ = one.target.split("/", 2)
        alike[device, runtime, one.network, one.batch].append(one)
    for one, other in chain.from_iterable(permutations(each, 2) for each in alike.values()):
        (device, _, fine), (*_, coarse) = (each.target.split("/", 2) for each in (one, other))
        us, quick_us = (each.latency_us or 0.0 for each in (one, other))
        if us > _LATER * quick_us > 0 and (one.peak_flops or 0.0) > (other.peak_flops or 0.0):
            differ = one.basis[0] != other.basis[0]
            why = f" (the one {one.rests_on}, the other {other.rests_on})" if differ else ""
            texts.append(
                f"{one.network} at batch {one.batch}: {fine.upper()} comes out slower than "
                f"{coarse.upper()}, {latency_text(us)} against {latency_text(quick_us)}, though "
                f"{device} computes it quicker: do not choose between them by that{why}."
            )
    more = f" So it is with {count_text(len(texts) - 1, 'other pair')}." if texts[1:] else ""
    return "".join(texts[:1]) + more
