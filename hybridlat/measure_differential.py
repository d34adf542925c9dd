"""The differential protocol: what a cell adds to its predecessor.

For engines whose graph cannot be cut in its own layout. A cell is timed as T(previous ++ cell) −
T(previous): entering the engine and layout changes at the border are in both and cancel. The two
networks are built from the file's operators, so the engine optimises them as it does the whole.
Their sessions run in turn, so that a change of the machine's speed meets both; what drift is left
is divided out by a reference network around every visit.
"""

from __future__ import annotations

import datetime
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hybridlat.backends.base import Backend, Session
from hybridlat.core.cells import Cell, cut, file_part, kernels
from hybridlat.core.measurement import Kind, Measurement, Visit
from hybridlat.core.network import Lowered, Network
from hybridlat.core.sampling import LEVEL_QUANTILE, combine, entry_cost_us, level_us
from hybridlat.core.signature import sign
from hybridlat.errors import MeasurementError
from hybridlat.measure_worker import NULL_CHAINS, References, null_network

PROTOCOL = "differential-1"
MIN_PASSES = 6
MIN_SAMPLES = 4
# On a busy machine samples are dropped as disturbed: a visit goes on up to so many times its span.
PATIENCE = 12
# A cell that the noise of two runs hides costs something all the same.
FLOOR_US = 0.05


@dataclass(frozen=True)
class Part:
    """One thing to measure: ``behind`` is what is timed, ``alone`` what is taken off it.

    ``alone`` None: nothing is taken off but the cost of entering the engine (the first cell of a
    network), or nothing at all (a whole network).
    """

    signature: str
    kind: Kind
    behind: Network
    alone: Network | None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Effort:
    """How much measuring: every part is visited in ``rounds``, with ``twins`` of each session.

    A visit lasts ``visit_ms`` and at least ``MIN_PASSES`` passes over its sessions.
    """

    rounds: int = 3
    twins: int = 2
    visit_ms: float = 60.0
    network_visit_ms: float = 200.0
    seed: int = 0


def whole(name: str, network: Network) -> Part:
    """A whole network, timed directly."""
    return Part(sign(network).hash, "network", network, None, {"network": name})


def parts_of(name: str, network: Network, lowered: Lowered) -> list[tuple[Part, int]]:
    """The distinct cells of a network with the number of their uses, each behind the one before.

    A cell that is met several times is measured behind its first predecessor.
    """
    found: dict[str, Part] = {}
    counts: dict[str, int] = {}
    before: Cell | None = None
    for cell in cut(lowered, network):
        if cell.origins:
            signature = sign(cell.network).hash
            counts[signature] = counts.get(signature, 0) + 1
            if signature not in found:
                first = before.origins if before else ()
                behind = file_part(network, lowered, (*first, *cell.origins))
                alone = file_part(network, lowered, first) if first else None
                found[signature] = Part(signature, "cell", behind, alone, {"network": name})
            before = cell
    return [(part, counts[signature]) for signature, part in found.items()]


def isolated_parts(
    name: str, network: Network, lowered: Lowered, *, by: str
) -> list[tuple[Part, int]]:
    """The cells (``by="cells"``) or kernels of a lowered network, each timed alone.

    With the file itself for ``lowered``, kernels are its unfused layers.
    """
    counts: dict[str, tuple[Part, int]] = {}
    for cell in (cut if by == "cells" else kernels)(lowered, network):
        if cell.origins:
            behind = file_part(network, lowered, cell.origins)
            key = sign(behind).hash
            part = Part(key, "layer", behind, None, {"network": name, "by": by})
            counts[key] = (part, counts.get(key, (part, 0))[1] + 1)
    return list(counts.values())


def measure_differential(
    backend: Backend,
    parts: Sequence[Part],
    effort: Effort | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Measurement]:
    """Measure ``parts`` in this process; one record each, in order, a failure too.

    All parts are shuffled together in every round, whole networks among them.
    """
    effort = effort or Effort()
    references = References(backend)
    entry_us = _entry_cost(backend)
    visits: dict[int, list[tuple[tuple[float, ...], float]]] = {}
    failures: dict[int, str] = {}
    for round_ in range(effort.rounds):
        order = list(range(len(parts)))
        random.Random(f"{effort.seed}/{round_}").shuffle(order)
        for done, place in enumerate(order):
            if place in failures:
                continue
            seed = 1 + 1000 * round_ + 100_000 * effort.seed
            try:
                before = references.run_us()
                samples = _visit(backend, parts[place], effort, entry_us, seed)
                around = (before + references.run_us()) / 2
                visits.setdefault(place, []).append((samples, around))
            except MeasurementError as error:
                failures[place] = str(error)
            if progress is not None:
                progress(round_ * len(parts) + done + 1, effort.rounds * len(parts))
    nominal = statistics.median([r for found in visits.values() for _, r in found] or [1.0])
    return [
        _record(backend, part, visits.get(place, []), nominal, failures.get(place))
        for place, part in enumerate(parts)
    ]


def _visit(
    backend: Backend, part: Part, effort: Effort, entry_us: float, seed: int
) -> tuple[float, ...]:
    """Differences of one visit, one for each pass over the sessions (differential), or samples."""
    networks = [part.behind] if part.alone is None else [part.alone, part.behind]
    sessions: list[list[Session]] = []
    try:
        twins = 1 if part.kind == "network" else effort.twins
        for network in networks:
            sessions.append([])
            for twin in range(twins):
                sessions[-1].append(backend.build(network, seed=seed + twin, lowered=False))
        span_ms = effort.network_visit_ms if part.kind == "network" else effort.visit_ms
        times = _alternate(sessions, span_ms / 1e3)
    finally:
        for session in (s for group in sessions for s in group):
            session.close()
    if part.alone is None:
        cost = entry_us if part.kind != "network" else 0.0
        return tuple(max(sample - cost, FLOOR_US) for sample in times[0])
    # Disturbance only adds time, so it is the lower part of either side that is compared.
    alone = level_us(times[0], LEVEL_QUANTILE)
    return tuple(max(sample - alone, FLOOR_US) for sample in times[1])


def _alternate(sessions: list[list[Session]], span_s: float) -> list[list[float]]:
    """Run all twins of all sides in turn; the first pass warms up. Times of each side."""
    times: list[list[float]] = [[] for _ in sessions]
    passes = 0
    began = time.perf_counter()
    while _goes_on(times, passes, (time.perf_counter() - began) / span_s):
        for twin in range(len(sessions[0])):
            for side, group in enumerate(sessions):
                found = group[twin].run_us(1)
                if passes:
                    times[side].extend(found)
        if not passes:
            began = time.perf_counter()
        passes += 1
    if not all(times):
        raise MeasurementError("every sample of a visit was disturbed: the machine is too busy")
    return times


def _goes_on(times: list[list[float]], passes: int, spans: float) -> bool:
    if passes <= MIN_PASSES:
        return True
    too_few = any(len(found) < MIN_SAMPLES for found in times)
    return spans < (PATIENCE if too_few else 1)


def _entry_cost(backend: Backend) -> float:
    """What entering the engine costs, from chains of tiny operators."""
    levels = []
    for length in NULL_CHAINS:
        with backend.build(null_network(length), seed=1, lowered=False) as session:
            session.run_us(20)
            levels.append(level_us(session.run_us(200) or session.run_us(1) or [0.0]))
    return entry_cost_us(NULL_CHAINS, levels)


def _record(
    backend: Backend,
    part: Part,
    found: list[tuple[tuple[float, ...], float]],
    nominal: float,
    failure: str | None,
) -> Measurement:
    visits = tuple(
        Visit(tuple(round(s, 3) for s in samples), round(reference / nominal, 5))
        for samples, reference in found
    )
    if not visits and failure is None:
        failure = "it was not visited"
    result = combine(visits) if failure is None else None
    return Measurement(
        target=backend.target,
        signature=part.signature,
        kind=part.kind,
        latency_us=result.latency_us if result else None,
        spread_share=result.spread_share if result else 0.0,
        visits=visits if failure is None else (),
        protocol=PROTOCOL,
        environment=dict(backend.environment()),
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        failure=failure,
        labels=dict(part.labels),
    )
