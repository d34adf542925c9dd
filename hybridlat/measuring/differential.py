"""The differential protocol in this process: what a cell adds to its predecessor.

For engines whose graph cannot be cut in its own layout. A cell is timed as
T(predecessor ++ cell) − T(predecessor): entering the engine and layout changes at the border are in
both and cancel. The two networks are built from the file's operators, so the engine optimises them
as it does the whole network.

A network's sessions run in turn, one inference each, in *rotations* that hold together as much
memory as the network works in: each part is as cold as it is inside the network, and a change of
the machine's speed meets a cell and its predecessor alike. Drift, as a reference network around
every visit shows it, is divided out; visits made while the machine was markedly slow are made
again, since slowness does not meet memory and arithmetic alike.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from hybridlat.board.visits import take_turns
from hybridlat.engines.base import Backend, Session
from hybridlat.engines.host import LoadMeter
from hybridlat.errors import MeasurementError
from hybridlat.graph.signature import sign
from hybridlat.measuring.machine import fit_dispatch_overhead_us, overhead_probes
from hybridlat.measuring.pairs import Part, Rotation, rotations
from hybridlat.measuring.statistics import (
    Subject,
    difference,
    failure_of,
    level_us,
    now,
    record_of,
    usual_us,
)
from hybridlat.measuring.visiting import References
from hybridlat.schema.measurement import MachineLoad, Measurement, Visit, mean_load

PROTOCOL = "differential-3"
# A visit is undisturbed if the reference around it is at most so much slower than it usually is.
UNDISTURBED = 1.06
LEAST_UNDISTURBED = 2
MIN_PASSES = 7
MAX_PASSES = 60
MIN_SAMPLES = 4
# On a busy machine samples are dropped as disturbed: a visit goes on up to so many times its span.
PATIENCE = 12

Journal = MutableMapping[str, Any]
"""Visits by key, in JSON types. A journal on disk lets a later process continue the run."""


@dataclass(frozen=True)
class DifferentialConfig:
    """Every rotation is visited in ``rounds``, and in up to ``max_rounds`` until so many visits
    were undisturbed: ``session_ms`` for each of its sessions, ``network_visit_ms`` for a network.
    """

    rounds: int = 3
    max_rounds: int = 5
    session_ms: float = 10.0
    network_visit_ms: float = 200.0
    seed: int = 0


class Differential:
    """One run of the protocol over ``parts``; with a ``journal`` an interrupted run continues."""

    def __init__(
        self,
        backend: Backend,
        parts: Sequence[Part],
        config: DifferentialConfig,
        journal: Journal | None = None,
    ) -> None:
        self._backend, self._parts, self._config = backend, parts, config
        self._journal: Journal = {} if journal is None else journal
        self._rotations = rotations(parts)

    def visit(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Make the visits that are missing."""
        references = References(self._backend)
        entries = len(self._entries_us())
        self._journal[f"entry/{entries}"] = _fit_overhead_us(self._backend)
        total = self._config.rounds * len(self._rotations)
        for done, (round_, rotation) in enumerate(self._todo(), 1):
            key = self._key(round_, rotation)
            if key not in self._journal:
                self._journal[key] = self._visit(rotation, round_, references)
            if progress is not None:
                progress(min(done, total), total)

    def _todo(self) -> Iterator[tuple[int, Rotation]]:
        for round_ in range(self._config.max_rounds):
            order = list(self._rotations)
            random.Random(f"{self._config.seed}/{round_}").shuffle(order)
            for rotation in order:
                wanted = round_ < self._config.rounds
                if wanted or self._undisturbed(rotation) < self._config.rounds:
                    yield round_, rotation

    def _key(self, round_: int, rotation: Rotation) -> str:
        return f"visit/{PROTOCOL}/{self._config.seed}/{round_}/{rotation.name}"

    def _visits(self, rotation: Rotation) -> list[dict[str, Any]]:
        keys = (self._key(round_, rotation) for round_ in range(self._config.max_rounds))
        return [self._journal[key] for key in keys if key in self._journal]

    def _undisturbed(self, rotation: Rotation) -> int:
        limit_us = UNDISTURBED * self.usual_us()
        return sum(visit["reference_us"] <= limit_us for visit in self._visits(rotation))

    def _visit(self, rotation: Rotation, round_: int, references: References) -> dict[str, Any]:
        seed = 1 + 1000 * round_ + 100_000 * self._config.seed
        meter = LoadMeter(self._backend.target.threads or 1)
        sessions: dict[str, Session] = {}
        failures: dict[str, str] = {}
        try:
            for index, (hash_, network) in enumerate(rotation.networks.items()):
                try:
                    sessions[hash_] = self._backend.build(network, seed=seed + index, lowered=False)
                    sessions[hash_].run_us(1)
                except MeasurementError as error:
                    failures[hash_] = str(error)
                    if hash_ in sessions:
                        sessions.pop(hash_).close()
            before_us = references.run_us()
            span_ms = self._config.session_ms * len(sessions)
            if rotation.parts[0].kind == "network":
                span_ms = self._config.network_visit_ms
            meter.sample()
            samples = rotate(sessions, span_ms / 1e3)
            meter.sample()
            reference_us = (before_us + references.run_us()) / 2
        finally:
            for session in sessions.values():
                session.close()
        return {
            "reference_us": round(reference_us, 2),
            "samples_us": {h: [round(s, 2) for s in taken] for h, taken in samples.items()},
            "failures": failures,
            "load": None if (load := meter.load()) is None else astuple(load),
        }

    def _all_visits(self) -> list[dict[str, Any]]:
        return [visit for key, visit in self._journal.items() if key.startswith("visit/")]

    def _entries_us(self) -> list[float]:
        return [float(v) for k, v in self._journal.items() if k.startswith("entry/")]

    def usual_us(self) -> float:
        """What the reference network takes when nothing slows the machine down."""
        return usual_us([visit["reference_us"] for visit in self._all_visits()])

    @property
    def load(self) -> MachineLoad | None:
        """How busy the machine was with other work, on average over all visits."""
        return _load_of(self._all_visits())

    @property
    def overhead_us(self) -> float:
        """The engine's dispatch overhead: to be added once to the sum of a network's parts."""
        return statistics.median(self._entries_us() or [0.0])

    def records(
        self, reference_us: float | None = None, overhead_us: float | None = None
    ) -> list[Measurement]:
        """One record for each part, in order.

        ``reference_us`` and ``overhead_us`` are the target's own, by default those of this run.
        """
        reference_us = reference_us or self.usual_us()
        overhead_us = self.overhead_us if overhead_us is None else overhead_us
        visits_of = {
            id(part): self._visits(rotation) for rotation in self._rotations
            for part in rotation.parts
        }  # fmt: skip
        measured_at, environment = now(), self._backend.environment()
        records: list[Measurement] = []
        limit_us = UNDISTURBED * self.usual_us()
        for part in self._parts:
            made = visits_of[id(part)]
            subject = Subject(
                self._backend.target, part.signature.hash, part.kind, PROTOCOL, environment,
                part.labels, measured_at, _load_of(made),
            )  # fmt: skip
            hashes = [sign(network).hash for network in part.networks]
            reasons = [v["failures"][h] for v in made for h in hashes if h in v["failures"]]
            visits = [
                Visit(samples, round(visit["reference_us"] / reference_us, 5))
                for visit in _quietest(made, limit_us)
                if (samples := _samples(hashes, visit["samples_us"]))
            ]
            if reasons or not visits:
                missing = "every sample was disturbed" if made else "it was not visited"
                records.append(failure_of(subject, reasons[0] if reasons else missing))
                continue
            is_first = part.predecessor is None and part.kind != "network"
            records.append(record_of(subject, visits, overhead_us if is_first else 0.0))
        return records


def _load_of(visits: Sequence[dict[str, Any]]) -> MachineLoad | None:
    loads = (visit.get("load") for visit in visits)
    return mean_load(None if load is None else MachineLoad(*load) for load in loads)


def _samples(hashes: Sequence[str], samples_us: dict[str, list[float]]) -> tuple[float, ...]:
    """What the part adds, for each of its runs: less its predecessor, if it has one."""
    timed, *taken_off = [samples_us.get(hash_, []) for hash_ in hashes]
    if not taken_off:
        return tuple(timed)
    return difference(timed, taken_off[0]) if taken_off[0] else ()


def _quietest(visits: list[dict[str, Any]], limit_us: float) -> list[dict[str, Any]]:
    """The undisturbed visits; the least disturbed where there are less than a few."""
    quiet = [visit for visit in visits if visit["reference_us"] <= limit_us]
    ranked = sorted(visits, key=lambda visit: float(visit["reference_us"]))
    return quiet if len(quiet) >= LEAST_UNDISTURBED else ranked[:LEAST_UNDISTURBED]


def _fit_overhead_us(backend: Backend) -> float:
    """The dispatch overhead, from one visit of each probe."""
    levels_us: dict[int, list[float]] = {}
    for length, network in overhead_probes().items():
        with backend.build(network, seed=1, lowered=False) as session:
            session.run_us(20)
            samples = session.run_us(200) or session.run_us(1)
            levels_us[length] = [level_us(samples)] if samples else []
    return fit_dispatch_overhead_us(levels_us)


def rotate(sessions: dict[str, Session], span_s: float) -> dict[str, list[float]]:
    """Samples of all sessions, run in turn for ``span_s``; the first pass warms up."""

    def goes_on(samples: Mapping[str, Sequence[float]], passes: int, spent_s: float) -> bool:
        if not sessions or passes <= MIN_PASSES:
            return bool(sessions)
        if any(len(taken) < MIN_SAMPLES for taken in samples.values()):
            return spent_s < PATIENCE * span_s
        return spent_s < span_s and passes <= MAX_PASSES

    return take_turns({key: partial(s.run_us, 1) for key, s in sessions.items()}, goes_on)
