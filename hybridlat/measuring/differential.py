"""The differential protocol: what a cell adds to its predecessor.

For engines whose graph cannot be cut in its own layout. A cell is timed as T(previous ++ cell) −
T(previous): entering the engine and layout changes at the border are in both and cancel. The two
networks are built from the file's operators, so the engine optimises them as it does the whole.

A network's sessions run in turn, one inference each, in *rotations* that hold together as much
memory as the network works in: each part is as cold as it is inside the network, and a change of
the machine's speed meets a cell and its predecessor alike. A reference network is run around every
visit. What little drift there is is divided out; visits made while the machine was markedly slow
are made again, since slowness does not meet memory and arithmetic alike.
"""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybridlat.engines.base import Backend, Session
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Network
from hybridlat.graph.reference_networks import null_network
from hybridlat.graph.signature import sign
from hybridlat.measuring.differential_tasks import (
    Part,
    isolated_parts,
    parts_of,
    tapped,
    whole,
    working_bytes,
)
from hybridlat.measuring.statistics import NULL_CHAINS, combine, entry_cost_us, level_us
from hybridlat.measuring.visiting import References
from hybridlat.schema.measurement import Measurement, Visit

__all__ = [
    "PROTOCOL", "Differential", "Effort", "Part", "isolated_parts", "measure_differential",
    "parts_of", "tapped", "whole", "working_bytes",
]  # fmt: skip

PROTOCOL = "differential-2"
# More memory than this is cold anyway, and building it all at once costs too much of it.
MAX_ROOM_BYTES = 300_000_000
MIN_PASSES = 7
MAX_PASSES = 60
MIN_SAMPLES = 4
# On a busy machine samples are dropped as disturbed: a visit goes on up to so many times its span.
PATIENCE = 12
# A cell that the noise of two runs hides costs something all the same.
FLOOR_US = 0.05
# A visit is calm if the reference around it is at most so much slower than the level below which
# three in ten references of the run lie.
CALM = 1.06
USUAL_QUANTILE = 0.3
LEAST_CALM = 2

Journal = MutableMapping[str, Any]
"""Visits by key, in JSON types. One that outlives the process makes a run go on where it was."""


@dataclass(frozen=True)
class Effort:
    """How much measuring: every rotation is visited in ``rounds``, and in up to ``max_rounds``
    until so many visits were calm.

    A visit lasts ``session_ms`` for each session of a rotation, ``network_visit_ms`` for a whole
    network, and at least ``MIN_PASSES`` passes.
    """

    rounds: int = 3
    max_rounds: int = 5
    session_ms: float = 10.0
    network_visit_ms: float = 200.0
    seed: int = 0


@dataclass
class Rotation:
    """Parts whose sessions run in turn; ``networks`` are the distinct ones by signature hash."""

    name: str
    parts: list[Part]
    networks: dict[str, Network] = field(default_factory=dict)
    held_bytes: int = 0


def rotations(parts: Sequence[Part]) -> list[Rotation]:
    """Parts of one network together, up to the memory that the network works in."""
    found: list[Rotation] = []
    counts: dict[tuple[str, ...], int] = {}
    last: tuple[str, ...] = ()
    for part in parts:
        group = (part.kind, *map(str, part.labels.values()))
        new = {sign(n).hash: n for n in (part.alone, part.behind) if n is not None}
        room = min(part.room_bytes, MAX_ROOM_BYTES)
        current = found[-1] if found and group == last and part.kind != "network" else None
        added = [n for h, n in new.items() if current is None or h not in current.networks]
        held_bytes = sum(map(working_bytes, added))
        if current is None or current.held_bytes + held_bytes > room:
            counts[group] = counts.get(group, -1) + 1
            current = Rotation("/".join((*group, str(counts[group]))), [])
            found.append(current)
            held_bytes = sum(map(working_bytes, new.values()))
        current.parts.append(part)
        current.networks.update(new)
        current.held_bytes += held_bytes
        last = group
    return found


def measure_differential(
    backend: Backend,
    parts: Sequence[Part],
    effort: Effort | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Measurement]:
    """Measure ``parts`` in this process; one record each, in order, a failure too.

    Rotations are shuffled together in every round, whole networks among them.
    """
    run = Differential(backend, parts, effort)
    run.visit(progress)
    return run.records()


class Differential:
    """One run of the protocol over ``parts``. With a ``journal`` it can be cut off and gone on."""

    def __init__(
        self,
        backend: Backend,
        parts: Sequence[Part],
        effort: Effort | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._backend, self._parts, self._effort = backend, parts, effort or Effort()
        self._journal: Journal = {} if journal is None else journal
        self._rotations = rotations(parts)
        self._hashes = {
            id(n): sign(n).hash for p in parts for n in (p.alone, p.behind) if n is not None
        }

    def visit(
        self, progress: Callable[[int, int], None] | None = None, budget_s: float | None = None
    ) -> bool:
        """Make the visits that are still to be made; False when ``budget_s`` cut them short."""
        began = time.monotonic()
        references = References(self._backend)
        self._journal[f"entry/{len(self._entries())}"] = _entry_cost(self._backend)
        total = self._effort.rounds * len(self._rotations)
        for done, (round_, rotation) in enumerate(self._todo()):
            if budget_s is not None and time.monotonic() - began > budget_s:
                return False
            key = self._key(round_, rotation)
            if key not in self._journal:
                self._journal[key] = self._visit(rotation, round_, references)
            if progress is not None:
                progress(min(done + 1, total), total)
        return True

    def _todo(self) -> Iterator[tuple[int, Rotation]]:
        for round_ in range(self._effort.max_rounds):
            order = list(self._rotations)
            random.Random(f"{self._effort.seed}/{round_}").shuffle(order)
            for rotation in order:
                wanted = round_ < self._effort.rounds
                if wanted or self._calm_visits(rotation) < self._effort.rounds:
                    yield round_, rotation

    def _key(self, round_: int, rotation: Rotation) -> str:
        return f"visit/{PROTOCOL}/{self._effort.seed}/{round_}/{rotation.name}"

    def _visits(self, rotation: Rotation) -> list[dict[str, Any]]:
        keys = (self._key(round_, rotation) for round_ in range(self._effort.max_rounds))
        return [self._journal[key] for key in keys if key in self._journal]

    def _calm_visits(self, rotation: Rotation) -> int:
        limit = CALM * self.usual_us()
        return sum(visit["reference_us"] <= limit for visit in self._visits(rotation))

    def usual_us(self) -> float:
        """What the reference network takes when nothing slows the machine down."""
        found = [v["reference_us"] for k, v in self._journal.items() if k.startswith("visit/")]
        return level_us(found, USUAL_QUANTILE) if found else 1.0

    def _entries(self) -> list[float]:
        return [float(v) for k, v in self._journal.items() if k.startswith("entry/")]

    @property
    def entry_us(self) -> float:
        """What entering the engine costs: to be added once to the sum of a network's parts."""
        return level_us(self._entries() or [0.0], 0.5)

    # ---- one visit -----------------------------------------------------------------------------

    def _visit(self, rotation: Rotation, round_: int, references: References) -> dict[str, Any]:
        """Samples of every session; a session that cannot be built or run is told of instead."""
        seed = 1 + 1000 * round_ + 100_000 * self._effort.seed
        sessions: dict[str, Session] = {}
        failures: dict[str, str] = {}
        try:
            for place, (hash_, network) in enumerate(rotation.networks.items()):
                try:
                    sessions[hash_] = self._backend.build(network, seed=seed + place, lowered=False)
                    sessions[hash_].run_us(1)
                except MeasurementError as error:
                    failures[hash_] = str(error)
                    if hash_ in sessions:
                        sessions.pop(hash_).close()
            before_us = references.run_us()
            is_network = rotation.parts[0].kind == "network"
            effort = self._effort
            span_ms = effort.network_visit_ms if is_network else effort.session_ms * len(sessions)
            samples = _rotate(sessions, span_ms / 1e3)
            reference_us = (before_us + references.run_us()) / 2
        finally:
            for session in sessions.values():
                session.close()
        return {
            "reference_us": round(reference_us, 2),
            "samples_us": {h: [round(s, 2) for s in found] for h, found in samples.items()},
            "failures": failures,
        }

    # ---- records -------------------------------------------------------------------------------

    def records(self) -> list[Measurement]:
        """One record for each part, in order, from the visits so far."""
        place = {id(part): r for r in self._rotations for part in r.parts}
        return [self._record(part, self._visits(place[id(part)])) for part in self._parts]

    def _record(self, part: Part, found: list[dict[str, Any]]) -> Measurement:
        hashes = [self._hashes[id(n)] for n in (part.alone, part.behind) if n is not None]
        reasons = [v["failures"][h] for v in found for h in hashes if h in v["failures"]]
        failure = reasons[0] if reasons else None
        usual_us = self.usual_us()
        visits: list[Visit] = []
        for visit in _calmest(found, CALM * usual_us) if failure is None else []:
            samples = self._samples(part, visit["samples_us"])
            if samples:
                visits.append(Visit(samples, round(visit["reference_us"] / usual_us, 5)))
        if not visits and failure is None:
            failure = "every sample was disturbed" if found else "it was not visited"
        result = combine(visits) if failure is None else None
        return Measurement(
            target=self._backend.target,
            signature=part.signature,
            kind=part.kind,
            latency_us=max(result.latency_us, FLOOR_US) if result else None,
            spread_share=result.spread_share if result else 0.0,
            visits=tuple(visits),
            protocol=PROTOCOL,
            environment=dict(self._backend.environment()),
            measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            failure=failure,
            labels=dict(part.labels),
        )

    def _samples(self, part: Part, samples: dict[str, list[float]]) -> tuple[float, ...]:
        """What the part adds, for each of its runs: less its predecessor's level, or the entry."""
        timed = samples.get(self._hashes[id(part.behind)], [])
        if part.kind == "network":
            return tuple(timed)
        off_us = self.entry_us
        if part.alone is not None:
            alone = samples.get(self._hashes[id(part.alone)], [])
            if not alone:
                return ()
            # Disturbance only adds time, so it is the lower part of either side that is compared.
            off_us = level_us(alone)
        return tuple(round(max(sample - off_us, FLOOR_US), 3) for sample in timed)


def _calmest(visits: list[dict[str, Any]], limit_us: float) -> list[dict[str, Any]]:
    """The calm visits; the calmest few where there are less."""
    calm = [visit for visit in visits if visit["reference_us"] <= limit_us]
    ranked = sorted(visits, key=lambda visit: float(visit["reference_us"]))
    return calm if len(calm) >= LEAST_CALM else ranked[:LEAST_CALM]


def _rotate(sessions: dict[str, Session], span_s: float) -> dict[str, list[float]]:
    """Run all sessions in turn; the first pass warms up."""
    times: dict[str, list[float]] = {key: [] for key in sessions}
    passes = 0
    began = time.perf_counter()
    while sessions and _goes_on(times, passes, (time.perf_counter() - began) / span_s):
        for key, session in sessions.items():
            found = session.run_us(1)
            if passes:
                times[key].extend(found)
        if not passes:
            began = time.perf_counter()
        passes += 1
    return times


def _goes_on(times: dict[str, list[float]], passes: int, spans: float) -> bool:
    if passes <= MIN_PASSES:
        return True
    if any(len(found) < MIN_SAMPLES for found in times.values()):
        return spans < PATIENCE
    return spans < 1 and passes <= MAX_PASSES


def _entry_cost(backend: Backend) -> float:
    """What entering the engine costs, from chains of tiny operators."""
    levels = []
    for length in NULL_CHAINS:
        with backend.build(null_network(length), seed=1, lowered=False) as session:
            session.run_us(20)
            levels.append(level_us(session.run_us(200) or session.run_us(1) or [0.0]))
    return entry_cost_us(NULL_CHAINS, levels)
