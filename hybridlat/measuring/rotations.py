"""Parts whose sessions run in turn, and one visit of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hybridlat.board.visits import take_turns
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

    def goes_on(samples: Mapping[str, Sequence[float]], passes: int, spent_s: float) -> bool:
        if not sessions or passes <= MIN_PASSES:
            return bool(sessions)
        if any(len(taken) < MIN_SAMPLES for taken in samples.values()):
            return spent_s < PATIENCE * span_s
        return spent_s < span_s and passes <= MAX_PASSES

    return take_turns({key: partial(s.run_us, 1) for key, s in sessions.items()}, goes_on)
