"""Is a measured latency normal, and what explains it best; a trtexec profile beside our cells."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hybridlat.errors import InputError
from hybridlat.report.cell_texts import chain, what_text, where_text
from hybridlat.report.table import Cell, Column, Table, titled
from hybridlat.report.terminal import printed
from hybridlat.report.units import first_upper, interval_text, latency_text, percent_text, scale_for
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.files import read_bytes
from hybridlat.schema.plugins import shipped_table
from hybridlat.schema.shown import count_text, part_text, visible
from hybridlat.schema.target import Target

_LIKELY = 0.05
_TELLS = math.sqrt(10)  # odds "not worth more than a bare mention" (Jeffreys, 1961, appendix B)
_CHECKS: Mapping[str, Any] = shipped_table("explain")["checks"]
_SPLIT = re.compile(r" \+ |\|\||\.\.\.|[\[\](){},]")
_MOVES = ("reformat", "copynode", "memcpy", "cast")
_TIMED = ("host copies", "launches")  # how a run was timed, and not what ran


@dataclass(frozen=True)
class Suspect:
    """A ``kind`` of circumstance and its ``probability`` (0..1).

    ``text`` is the likeliest of the kind in words, ``interval_us`` what the network takes then.
    ``check`` tells it from the others; empty for the plain prediction.
    """

    kind: str
    text: str
    interval_us: tuple[float, float]
    probability: float
    check: str = ""


def check_of(kind: str, target: Target) -> str:
    """How a circumstance shows on a target, by its engine's tools; empty where it needs none."""
    place = _CHECKS["gpu" if target.threads is None else "cpu"]
    tools = _CHECKS.get(target.engine.partition("-")[0], {})  # tensorrt-rtx has those of tensorrt
    return str({**_CHECKS, **place, **tools}.get(kind, ""))


@dataclass(frozen=True)
class Stated:
    """A ``kind`` of circumstance that a log states, in words (``text``).

    With it and those before it the network takes ``latency_us``.
    """

    kind: str
    text: str
    latency_us: float


@dataclass(frozen=True)
class Explanation:
    """A latency, ``measured_us``, beside its ``estimate``; the likeliest of ``suspects`` is first.

    ``stated`` is what the log of the run says; the suspects come on top of it. ``nothing`` is the
    probability that none of them is it. ``verdict`` is ``normal`` (within the interval, and in
    that of what is ``stated``), ``explained`` or ``not explained``. ``spread`` is how much single
    runs vary (0..).
    """

    estimate: Estimate
    measured_us: float
    suspects: tuple[Suspect, ...]
    nothing: float
    stated: tuple[Stated, ...] = ()
    spread: float | None = None

    @property
    def cause(self) -> Stated | Suspect:
        """The likeliest suspect; of what the log states, where that suffices, what moves most."""
        if not self.stated or self.suspects[0].kind != "as predicted":
            return self.suspects[0]
        each_us = [self.estimate.latency_us or 1.0, *(one.latency_us for one in self.stated)]
        moved = [abs(math.log(after / before)) for before, after in pairwise(each_us)]
        return self.stated[moved.index(max(moved))]

    @property
    def tied(self) -> tuple[Suspect, ...]:
        """The suspects that the first is too little likelier than, itself before them."""
        least = self.suspects[0].probability / _TELLS
        return tuple(one for one in self.suspects if one.probability >= least)

    @property
    def verdict(self) -> str:
        intervals = [self.estimate.interval_us or (0.0, 0.0)]
        as_stated = (one.interval_us for one in self.suspects if one.kind == "as predicted")
        intervals += as_stated if self.stated else ()
        if all(low_us <= self.measured_us <= high_us for low_us, high_us in intervals):
            return "normal"
        return "explained" if self.suspects[0].probability > self.nothing else "not explained"

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``hybridlat explain --json``, but for the layers."""
        names = ("network", "target", "batch", "latency_us", "interval_us")
        body: dict[str, Any] = {name: getattr(self.estimate, name) for name in names}
        body |= {"format": 1, "measured_us": self.measured_us, "verdict": self.verdict}
        body |= {"nothing": self.nothing, "cause": self.cause.kind, "spread": self.spread}
        body |= {"tied": [one.kind for one in self.tied]}
        suspects = [asdict(one) for one in self.suspects]
        return body | {"suspects": suspects, "stated": [asdict(one) for one in self.stated]}

    def shown(self) -> list[Suspect]:
        """The suspects that matter to people."""
        return [one for one in self.suspects if one.probability >= _LIKELY] or [self.suspects[0]]

    def table(self) -> Table:
        """What each would take, and how probable it is."""
        rows = [("by the log", one.text, latency_text(one.latency_us)) for one in self.stated]
        for one in self.shown():
            rows.append((part_text(one.probability), one.text, interval_text(one.interval_us)))
        named = [[odds, Cell(first_upper(text), "name"), takes] for odds, text, takes in rows]
        titles = Column("probability", right=True), Column("circumstance", wraps=True)
        nothing = [part_text(self.nothing), "Nothing of these", ""]
        return Table([*titles, Column("would take", right=True)], [*named, nothing])

    def headline(self) -> str:
        """``10.0 ms where 7.12 ms (5.0 – 10.1 ms) is expected: 1.40 times as long, normal``."""
        expected = self.estimate.latency_us or 1.0
        names = " or ".join([self.cause.text, *(one.text for one in self.tied[1:])])
        words = {"normal": "within the interval", "explained": names}
        answer = words.get(self.verdict, self.verdict)
        others = [o.text for o in self.stated if o.kind not in _TIMED and o.text not in answer]
        by_log = f"; by the log {', '.join(others)}" if others else ""
        times = self.measured_us / expected
        longer = f"{times:{'.2f' if times >= 0.1 else '.2g'}} times that"
        return visible(
            f"{latency_text(self.measured_us)} where {latency_text(expected)} "
            f"({interval_text(self.estimate.interval_us)}) are expected: "
            f"{longer}, {answer}{by_log}"
        )

    def __str__(self) -> str:
        lines = [self.headline(), printed(self.table().print), ""]
        if self.spread is not None:
            lines.append(f"Single runs vary by {percent_text(self.spread)} (quiet: 0.1 to 10 %).")
        if self.tied[1:] and self.verdict == "explained":
            is_number = self.spread is None and "trtexec" in self.estimate.check
            more = " give trtexec's log (--measured run.log), or" if is_number else ""
            lines.append(f"The first {len(self.tied)} are too close to tell apart:{more} look at")
        lines += [f"{one.kind}: {one.check}" for one in self.shown() if one.check]
        return "\n".join(lines).rstrip()


@dataclass(frozen=True)
class Layers:
    """The layers of a profile beside our cells; ``moved`` only move data, ``others`` fit none."""

    estimate: Estimate
    cells_us: Mapping[int, float]
    moved: Mapping[str, float]
    others: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The cells with their latency there, and what belongs to none."""
        cells = [
            {name: getattr(cell, name) for name in ("signature", "ops", "nodes")}
            | {"predicted_us": cell.total_us, "profiled_us": self.cells_us.get(i)}
            for i, cell in enumerate(self.estimate.cells)
        ]
        return {"cells": cells, "moved_us": dict(self.moved), "others_us": dict(self.others)}

    def table(self, most: int = 12) -> Table:
        """The cells that are farthest from what is predicted, and what fell out."""
        cells, structure = self.estimate.cells, self.estimate.structure
        pairs = [(i, c.total_us or 0.0, self.cells_us.get(i)) for i, c in enumerate(cells)]
        pairs.sort(key=lambda pair: -abs((pair[2] or 0.0) - pair[1]))
        scale = scale_for([us for _, us, _ in pairs])
        rows: list[list[str | Cell]] = []
        for i, us, there in pairs[:most]:
            where = where_text(structure.paths(i)) if structure else ""
            what = what_text(structure.cells[i]) if structure else chain(cells[i].ops, 30)
            apart = "" if there is None else f"{(there - us) / scale.unit_us:+,.1f}"
            profiled = "no layer" if there is None else scale.number(there)
            rows.append([scale.number(us), profiled, apart, where, what])
        for name, layers in (("reformats and copies", self.moved), ("of no operator", self.others)):
            if layers:
                total = scale.number(sum(layers.values()))
                rows.append(["", total, f"+{total}", count_text(len(layers), "layer"), name])
        titles = (f"predicted [{scale.name}]", "profiled", "apart")
        return Table([*titled(*titles, right=True), *titled("where", "what", wraps=True)], rows)


def read_layers(file: str) -> dict[str, float]:
    """What ``trtexec --exportProfile`` wrote: the time of each layer in µs; else InputError."""
    try:
        layers = defaultdict[str, float](float)
        for one in (entry for entry in json.loads(read_bytes(Path(file))) if "averageMs" in entry):
            layers[str(one["name"])] += 1e3 * one["averageMs"]
        if not layers or not all(0 <= us < math.inf for us in layers.values()):
            raise ValueError("each has a name and averageMs, a time from 0 up")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{file} holds no layers of trtexec --exportProfile: {error}") from error
    return layers


def layers_of(estimate: Estimate, layers: Mapping[str, float]) -> Layers:
    """The ``layers`` of a profile by our cells; one is of the first operator that it names."""
    owner = {name: i for i, cell in enumerate(estimate.cells) for name in cell.nodes}
    cells: dict[int, float] = {}
    moved, others = dict[str, float](), dict[str, float]()
    for name, us in layers.items():
        known = (owner[part] for part in map(str.strip, _SPLIT.split(name)) if part in owner)
        if any(word in name.lower() for word in _MOVES):
            moved[name] = us
        elif (at := next(known, None)) is None:
            others[name] = us
        else:
            cells[at] = cells.get(at, 0.0) + us
    return Layers(estimate, cells, moved, others)
