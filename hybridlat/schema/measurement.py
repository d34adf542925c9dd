"""An immutable record of one thing measured once: raw samples, protocol, environment, result.

Records are their wire form: the fields of a class are those of its JSON object, in their order.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import force_setattr

from hybridlat.schema import wire
from hybridlat.schema.target import Target

RECORD_FORMAT = 1
Kind = Literal["cell", "network", "layer"]
KINDS: Final[tuple[Kind, ...]] = ("cell", "network", "layer")


class Visit(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples taken in a row. ``drift`` is the machine's speed then: divide samples by it.

    A drift of 1.05 says that the reference kernels ran 5 % slower around this visit than in the
    median of the run. ``process`` tells visits of different processes apart.
    """

    samples_us: tuple[float, ...]
    drift: float = 1.0
    process: int = 0

    def __post_init__(self) -> None:
        force_setattr(self, "samples_us", tuple(map(float, self.samples_us)))
        force_setattr(self, "drift", float(self.drift))


class Measurement(Struct, frozen=True, forbid_unknown_fields=True):
    """One record. Never edited: a newer measurement of the same thing is a further record.

    ``signature`` is the hash of what was measured, ``kind`` whether it was a cell (a kernel is a
    cell of one), a whole network, or a single unfused layer of the file. ``latency_us`` is the
    protocol's result, drift divided out and overhead taken off; None with a ``failure``.
    ``spread_share`` is the relative standard error of ``latency_us`` as the protocol sees it.
    ``labels`` says where the thing was met (``{"network": "resnet18"}``) for splits by network.
    """

    target: Target
    signature: str
    kind: Kind
    latency_us: float | None
    spread_share: float = 0.0
    visits: tuple[Visit, ...] = ()
    overhead_us: float = 0.0
    protocol: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    measured_at: str = ""
    failure: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("latency_us", "spread_share", "overhead_us"):  # whole and numpy's numbers too
            value = getattr(self, name)
            if value is not None:
                force_setattr(self, name, float(value))

    @property
    def id(self) -> str:
        """Hash of the whole content, 32 hex digits: the same record imported twice is one."""
        return id_of(self.text)

    @property
    def text(self) -> str:
        """The whole content as canonical JSON."""
        numbers = [self.spread_share, self.overhead_us, *(visit.drift for visit in self.visits)]
        numbers += [] if self.latency_us is None else [self.latency_us]
        numbers += [sample for visit in self.visits for sample in visit.samples_us]
        return wire.canonical(self.to_json(), numbers)

    def to_json(self) -> dict[str, object]:
        """The record as JSON types (format 1)."""
        return wire.body_of(self, RECORD_FORMAT)

    @classmethod
    def from_json(cls, body: object) -> Measurement:
        """The record that ``to_json`` wrote; ValueError names the field that is not as written.

        Strict: a field too many, a missing one or one of another type is damage, not a variant.
        """
        return _sound(wire.record(body, cls, "measurement", RECORD_FORMAT, {"visits": Visit}))

    def problems(self) -> tuple[str, ...]:
        """What makes the record impossible, one sentence each; empty for a sound record."""
        problems = []
        if not _HASH.fullmatch(self.signature):
            problems.append(f"signature {self.signature[:60]!r} is not 32 hex digits")
        if (self.latency_us is None) == (self.failure is None):
            problems.append("a record has either a latency_us or a failure, and never both")
        if self.latency_us is not None and not 0 < self.latency_us < math.inf:
            problems.append(f"latency_us {self.latency_us!r} is not a positive finite number")
        if not 0 <= self.spread_share < math.inf:
            problems.append(f"spread_share {self.spread_share!r} is not a finite number from 0 up")
        if not math.isfinite(self.overhead_us):
            problems.append(f"overhead_us {self.overhead_us!r} is not finite")
        for visit in self.visits:
            if not 0 < visit.drift < math.inf:
                problems.append(f"drift {visit.drift!r} is not a positive finite number")
            if not all(map(math.isfinite, visit.samples_us)):
                problems.append("a sample is not finite")
        return tuple(problems)


class Breakdown(Struct, frozen=True, forbid_unknown_fields=True):
    """How a measured whole network falls into cells (lowered) and layers (of the file, unfused).

    ``network`` is its readable name, ``signature`` the hash that its whole-network records carry;
    ``cells`` and ``layers`` are (signature hash, count) pairs. With it a network is judged from a
    pack alone, without its ONNX file.
    """

    target: Target
    network: str
    signature: str
    cells: tuple[tuple[str, int], ...]
    layers: tuple[tuple[str, int], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Hash of the whole content, as for a Measurement."""
        return id_of(self.text)

    @property
    def text(self) -> str:
        """The whole content as canonical JSON."""
        return wire.canonical(self.to_json(), ())

    def to_json(self) -> dict[str, object]:
        """The breakdown as JSON types (format 1)."""
        return wire.body_of(self, RECORD_FORMAT)

    @classmethod
    def from_json(cls, body: object) -> Breakdown:
        """The breakdown that ``to_json`` wrote; ValueError as for a Measurement."""
        return _sound(wire.record(body, cls, "breakdown", RECORD_FORMAT))

    def problems(self) -> tuple[str, ...]:
        """What makes the breakdown impossible; empty for a sound one."""
        hashes = (self.signature, *(h for h, _ in self.cells), *(h for h, _ in self.layers))
        problems = [f"{h[:60]!r} is not 32 hex digits" for h in hashes if not _HASH.fullmatch(h)]
        for signature, count in (*self.cells, *self.layers):
            if count < 1:
                problems.append(f"count {count!r} of {signature} is not a positive number")
        return tuple(problems)


_HASH = re.compile(r"[0-9a-f]{32}")
_Record = TypeVar("_Record", Measurement, Breakdown)


def id_of(text: str) -> str:
    """The id of the record or breakdown whose canonical JSON this is."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _sound(record: _Record) -> _Record:
    for problem in record.problems():
        raise ValueError(problem)
    return record


_WITH_COPIES, _WITHOUT_COPIES = "including IO", "not including IO"


def is_suspect(note: str) -> bool:
    """Whether the note of a figure doubts it: it neither teaches nor counts."""
    return "suspect" in note


def holds_copies(note: str) -> bool | None:
    """Whether copies between host and device are in it; None where the note does not say."""
    if _WITHOUT_COPIES in note:
        return False
    return True if _WITH_COPIES in note else None
