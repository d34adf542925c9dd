"""One network over its batches, input sizes or widths: the curve, its flat parts and its steps."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from hybridlat.report.prediction_table import csv_of, record_of
from hybridlat.report.table import Cell, Column, Table, titled
from hybridlat.report.terminal import printed
from hybridlat.report.units import NOTHING, answer_text, fps_text, percent_text
from hybridlat.schema.estimate import Estimate

Over = Literal["batch", "size", "width"]
_FLAT, _STEEP, _KNEE = 0.02, 1.5, 0.9  # the knee is of the best throughput
_POWERS = {"batch": 1.0, "size": 2.0, "width": 1.5}  # of work; memory goes with width, sums twice
_KINDS = {"flat": "slower", "reverse": "slower", "step": "warn"}  # of cells of a table


@dataclass(frozen=True)
class Sweep:
    """The ``estimates`` of one network by rising values of what it is swept ``over``.

    ``refused`` are the values that the network cannot have, each with the reason.
    """

    over: Over
    estimates: Mapping[float, Estimate]
    refused: Mapping[float, str] = field(default_factory=dict)

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """What each value costs more than the one before it; the first is ``start``.

        ``flat``: less than 2 %, so that the lower value saves nothing. ``reverse``: it is faster.
        ``step``: half as much again for the work that is added as along the whole curve. ``knee``,
        over batches: the first with nine tenths of the best throughput. Else ``slope``. Most of
        an interval is common to all values, so that steps are surer than it is wide.
        """
        points = list(self._whole_us.items())
        power, (first, first_us), (last, last_us) = _POWERS[self.over], points[0], points[-1]
        whole_us = (last_us - first_us) / (last**power - first**power or 1.0)
        kinds = ["start"]
        for (a, a_us), (b, b_us) in pairwise(points):
            rise, rise_us = b_us / a_us - 1, (b_us - a_us) / (b**power - a**power)
            kind = "reverse" if rise < -_FLAT else "flat" if rise < _FLAT else "slope"
            kinds.append("step" if kind == "slope" and rise_us > _STEEP * whole_us else kind)
        rates = [one.throughput_per_s or 0.0 for one in self.estimates.values()]
        if self.over == "batch" and any(rates):
            kinds[next(i for i, rate in enumerate(rates) if rate >= _KNEE * max(rates))] = "knee"
        return tuple(kinds)

    def cheaper(self, value: float) -> float | None:
        """The next lower value that saves 2 % or more; None where none does."""
        most_us = self._whole_us[value] * (1 - _FLAT)
        return max(
            (x for x, us in self._whole_us.items() if x < value and us < most_us), default=None
        )

    @cached_property
    def _whole_us(self) -> dict[float, float]:
        """Each latency, NaN where a cell has none."""
        each = [(x, e.latency_us if e.finite_high_us else None) for x, e in self.estimates.items()]
        return {x: us or math.nan for x, us in each}

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``hybridlat sweep --json``."""
        points = [
            {self.over: x, **record_of(one), "step": step, "cheaper": self.cheaper(x)}
            for (x, one), step in zip(self.estimates.items(), self.steps, strict=True)
        ]
        refused = [{self.over: x, "reason": reason} for x, reason in self.refused.items()]
        return {"format": 1, "over": self.over, "points": points, "refused": refused}

    def to_csv(self) -> str:
        """The points as rows, in the columns of ``predict --csv`` behind value and step."""
        pairs = zip(self.estimates.items(), self.steps, strict=True)
        return csv_of({self.over: x, "step": step, **record_of(one)} for (x, one), step in pairs)

    def table(self) -> Table:
        """For a terminal or a notebook."""
        rows: list[list[str | Cell]] = []
        before: tuple[float, float | None] = math.nan, None
        for (x, one), step in zip(self.estimates.items(), self.steps, strict=True):
            latency, interval = answer_text(one)
            more = (one.latency_us or math.nan) / before[1] - 1 if before[1] else None
            lower = self.cheaper(x)
            saves = "" if lower in (None, before[0]) else f"{lower:g}"
            answer = (Cell(latency, "latency"), interval, percent_text(more))
            kind = Cell("" if step in ("start", "slope") else step, _KINDS.get(step, ""))
            others = (saves, fps_text(one.throughput_per_s), one.grade or NOTHING)
            rows.append([f"{x:g}", *answer, kind, *others])
            before = x, one.latency_us
        titles = [self.over, "latency", "interval", "more", "step", "next that saves", "throughput"]
        columns = [*titled(*titles, right=True), Column("grade")]
        left_out = {"throughput": self.over != "batch", "step": not any(str(r[4]) for r in rows)}
        left_out["next that saves"] = self.over == "batch" or not any(row[5] for row in rows)
        first = next(iter(self.estimates.values()))
        batch = "" if self.over == "batch" else f", batch {first.batch}"
        return Table(columns, rows, f"on {first.target}{batch}").without(left_out)

    def __str__(self) -> str:
        return "\n".join(filter(None, [printed(self.table().print), self.left_out]))

    @property
    def left_out(self) -> str:
        """A sentence on the values that the network cannot have, with the first of the reasons."""
        values = ", ".join(f"{x:g}" for x in self.refused)
        why = next(iter(self.refused.values()), "")
        return f"left out is {self.over} {values}: {why}" if values else ""
