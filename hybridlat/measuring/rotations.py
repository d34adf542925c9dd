"""Parts whose sessions run in turn, and one visit of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hybridlat.engines.base import Session
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.pairs import Part, working_bytes

# More memory than this is cold anyway, and building it all at once costs too much of it.
MAX_ROOM_BYTES = 300_000_000
MIN_PASSES = 7
MAX_PASSES = 60
MIN_SAMPLES = 4
# On a busy machine samples are dropped as disturbed: a visit goes on up to so many times its span.
PATIENCE = 12


@dataclass
class Rotation:
    """Parts whose sessions run in turn; ``networks`` are the distinct ones by signature hash."""

    name: str
    parts: list[Part]
    networks: dict[str, Network] = field(default_factory=dict)
    held_bytes: int = 0


def rotations(parts: Sequence[Part]) -> list[Rotation]:
    """Parts of one network together, up to the memory that the network works in."""
    rotations_: list[Rotation] = []
    counts: dict[tuple[str, ...], int] = {}
    last: tuple[str, ...] = ()
    for part in parts:
        group = (part.kind, *map(str, part.labels.values()))
        new = {sign(network).hash: network for network in part.networks}
        room_bytes = min(part.working_bytes, MAX_ROOM_BYTES)
        current = (
            rotations_[-1] if rotations_ and group == last and part.kind != "network" else None
        )
        added = [n for h, n in new.items() if current is None or h not in current.networks]
        held_bytes = sum(map(working_bytes, added))
        if current is None or current.held_bytes + held_bytes > room_bytes:
            counts[group] = counts.get(group, -1) + 1
            current = Rotation("/".join((*group, str(counts[group]))), [])
            rotations_.append(current)
            held_bytes = sum(map(working_bytes, new.values()))
        current.parts.append(part)
        current.networks.update(new)
        current.held_bytes += held_bytes
        last = group
    return rotations_


def rotate(sessions: dict[str, Session], span_s: float) -> dict[str, list[float]]:
    """Samples of all sessions, run in turn for ``span_s``; the first pass warms up."""
    samples: dict[str, list[float]] = {key: [] for key in sessions}
    passes = 0
    began = time.perf_counter()
    while sessions and _goes_on(samples, passes, (time.perf_counter() - began) / span_s):
        for key, session in sessions.items():
            taken = session.run_us(1)
            if passes:
                samples[key].extend(taken)
        if not passes:
            began = time.perf_counter()
        passes += 1
    return samples


def _goes_on(samples: dict[str, list[float]], passes: int, spans: float) -> bool:
    if passes <= MIN_PASSES:
        return True
    if any(len(taken) < MIN_SAMPLES for taken in samples.values()):
        return spans < PATIENCE
    return spans < 1 and passes <= MAX_PASSES
