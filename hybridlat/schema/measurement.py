"""An immutable record of one thing measured once: raw samples, protocol, environment, result.

Records are their wire form: the fields of a class are those of its JSON object, in their order.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import msgspec
from msgspec import Struct, field, to_builtins

from hybridlat.errors import TargetError
from hybridlat.schema.shown import count_text, phrase_of
from hybridlat.schema.target import Target

RECORD_FORMAT = 2
Launch = Literal["graph", "stream"]
"""How the device got its work: replayed from a CUDA graph, or enqueued kernel by kernel."""
Kind = Literal["cell", "network", "layer"]
KINDS: Final[tuple[Kind, ...]] = ("cell", "network", "layer")
SHORTEST_US, LONGEST_US = 1e-6, 86_400e6
"""Of one inference, from a picosecond to a day: beyond them a number is no latency."""
MOST_SPREAD = 1e6
_MOST_USES = 1_000_000  # of a cell in one network
_MOST_DRIFT = 1000.0  # times slower or faster than in the median of a run
_HASH = re.compile(r"[0-9a-f]{32}")


class _Record(Struct, frozen=True):
    """What goes into a store: known by the hash of its content, sound or refused."""

    FORMAT: ClassVar[int] = 1
    target: Target

    @property
    def id(self) -> str:
        """Hash of the whole content, 32 hex digits: the same record imported twice is one."""
        return id_of(self.text)

    @property
    def text(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))  # canonical

    def to_json(self) -> dict[str, object]:
        return {"format": self.FORMAT, **to_builtins(self), "target": str(self.target)}

    @classmethod
    def from_json(cls, body: object) -> Self:
        """The record that ``to_json`` wrote; ValueError names the field that is not as written."""
        what = cls.__name__.lower()
        if not isinstance(body, dict):
            raise ValueError(f"a {what} is a JSON object, not {type(body).__name__}")
        version: Any = body.get("format")
        if type(version) is not int or version < 1:
            raise ValueError(f"format {repr(version)[:60]} of a {what} is not a format number")
        if version > cls.FORMAT:
            raise ValueError(
                f"a {what} of format {str(version)[:20]} is newer than format {cls.FORMAT}, "
                "the newest this version reads: upgrade hybridlat"
            )
        values = {name: value for name, value in body.items() if name != "format"}
        target = values.get("target", "")
        if not isinstance(target, str):
            raise ValueError(f"target: expected str, got {type(target).__name__}")
        try:
            if "target" in values:
                values["target"] = Target.parse(target)
            record = msgspec.convert(values, cls)
        except TargetError as error:
            raise ValueError(str(error)) from error
        except msgspec.ValidationError as error:
            raise ValueError(phrase_of(error)) from None
        # A field that has a default in Python must be there too.
        missing = [name for name in cls.__struct_fields__ if name not in values]
        for visit in values.get("visits", ()):
            missing += [name for name in Visit.__struct_fields__ if name not in visit]
        if missing:
            raise ValueError(f"object missing required field {missing[0]}")
        for problem in record.problems():
            raise ValueError(problem)
        return record

    def problems(self) -> Iterator[str]:
        """What makes the record impossible, one sentence each; none for a sound record."""
        raise NotImplementedError


class Visit(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples taken in a row. ``drift`` is the machine's speed then: divide samples by it.

    A drift of 1.05 says that the reference kernels ran 5 % slower around this visit than in the
    median of the run. ``process`` tells visits of different processes apart.
    """

    samples_us: tuple[float, ...]
    drift: float = 1.0
    process: int = 0

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "samples_us", tuple(map(float, self.samples_us)))
        msgspec.structs.force_setattr(self, "drift", float(self.drift))


class Measurement(_Record, frozen=True, forbid_unknown_fields=True):
    """One record. Never edited: a newer measurement of the same thing is a further record.

    ``signature`` is the hash of what was measured on ``target``, ``kind`` whether it was a cell (a
    kernel is a cell of one), a whole network, or a single unfused layer of the file. ``latency_us``
    is the protocol's result, drift divided out and overhead taken off; None with a ``failure``.
    ``spread_share`` is the relative standard error of ``latency_us`` as the protocol sees it.
    ``labels`` says where the thing was met (``{"network": "resnet18"}``) for splits by network.
    ``visits`` hold the raw samples, taken by ``protocol`` in ``environment`` (versions, clocks,
    load) at ``measured_at`` (UTC); ``overhead_us`` is the overhead that was taken off. ``launch``
    and ``copies`` (whether moving inputs and outputs between host and device is in the latency) are
    None where they are not known; a ``suspect`` latency neither teaches nor counts.
    """

    FORMAT: ClassVar[int] = RECORD_FORMAT

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
    launch: Launch | None = None
    copies: bool | None = None
    suspect: bool = False

    def to_json(self) -> dict[str, object]:
        """The record as JSON types: in format 1 where that says the same, so that ids stay."""
        body = super().to_json()
        noted = facts_of_note(self.labels.get("note", ""))
        if any(body[name] != fact for name, fact in noted.items()):
            return body
        return {name: body[name] for name in body if name not in noted} | {"format": 1}

    @classmethod
    def from_json(cls, body: object) -> Self:
        """See ``_Record``; a record of format 1 has its facts in its note."""
        if isinstance(body, dict) and body.get("format") == 1:
            labels = body.get("labels")
            noted = facts_of_note(labels.get("note") if isinstance(labels, dict) else "")
            if surplus := sorted(noted.keys() & body):
                raise ValueError(f"object contains unknown field {surplus[0]}")
            body = body | noted
        return super().from_json(body)

    def __post_init__(self) -> None:
        for name in ("latency_us", "spread_share", "overhead_us"):  # whole and numpy's numbers too
            value = getattr(self, name)
            if value is not None:
                msgspec.structs.force_setattr(self, name, float(value))

    def problems(self) -> Iterator[str]:
        if not _HASH.fullmatch(self.signature):
            yield f"signature {self.signature[:60]!r} is not 32 hex digits"
        if (self.latency_us is None) == (self.failure is None):
            yield "a record has either a latency_us or a failure, and never both"
        if self.latency_us is not None and not SHORTEST_US <= self.latency_us <= LONGEST_US:
            yield f"latency_us {self.latency_us!r} is no latency, from 1e-06 to 8.64e+10"
        if not 0 <= self.spread_share <= MOST_SPREAD:
            yield f"spread_share {self.spread_share!r} is not a number from 0 to 1e+06"
        if not abs(self.overhead_us) <= LONGEST_US:
            yield f"overhead_us {self.overhead_us!r} is no time up to a day"
        for visit in self.visits:
            if not 1 / _MOST_DRIFT <= visit.drift <= _MOST_DRIFT:
                yield f"drift {visit.drift!r} is not a number from 0.001 to 1000"
            if not all(abs(sample) <= LONGEST_US for sample in visit.samples_us):
                yield "a sample is no time up to a day"


class Breakdown(_Record, frozen=True, forbid_unknown_fields=True):
    """How a measured whole network falls into cells (lowered) and layers (of the file, unfused).

    ``network`` is its readable name, ``signature`` the hash that its whole-network records carry;
    ``cells`` and ``layers`` are (signature hash, count) pairs. With it a network is judged from a
    pack alone, without its ONNX file.
    """

    network: str
    signature: str
    cells: tuple[tuple[str, int], ...]
    layers: tuple[tuple[str, int], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        uses = (*self.cells, *self.layers)
        for signature in (self.signature, *(h for h, _ in uses)):
            if not _HASH.fullmatch(signature):
                yield f"{signature[:60]!r} is not 32 hex digits"
        for signature, count in uses:
            if not 1 <= count <= _MOST_USES:
                yield f"count {str(count)[:20]} of {signature} is not from 1 to 1e+06"


def id_of(text: str) -> str:
    """The id of the record or breakdown whose canonical JSON this is."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_NOTED: Mapping[object, Mapping[str, object]] = {
    "CUDA graph": {"launch": "graph"},
    "no CUDA graph": {"launch": "stream"},
    "including IO": {"copies": True},
    "not including IO": {"copies": False},
    "suspect": {"suspect": True},
}
"""The notes by which records of format 1 state facts; any other text states none."""


def facts_of_note(note: object) -> dict[str, Any]:
    """``launch``, ``copies`` and ``suspect``, as the note of a record of format 1 states them."""
    known = _NOTED.get(note, {}) if isinstance(note, str) else {}
    return {"launch": None, "copies": None, "suspect": False, **known}


BUSY_LOAD_SHARE = 0.5
"""Other tasks that run or wait, per core that one thread leaves, above which a machine is busy."""
BUSY_STEAL_SHARE = 0.05
"""Share of the CPU time that goes to others, above which a machine is busy."""
BUSY_SPREAD_SHARE = 0.5
"""Least relative standard error of what a busy machine measured. At a load of 4 on 2 cores twice
the latency was seen, in all visits alike: nothing in the samples tells."""


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """``load``: tasks besides the measuring one that ran or waited for one of the ``cores``.

    ``steal_share`` is the share of the CPU time that the hypervisor gave to others, or that others
    took from the measured runs where that is more.
    """

    load: float
    steal_share: float
    cores: int

    @property
    def is_busy(self) -> bool:
        """Whether other work made the latencies too long to be believed."""
        most = BUSY_LOAD_SHARE * max(1, self.cores - 1)
        return self.load > most or self.steal_share > BUSY_STEAL_SHARE

    @property
    def sentence(self) -> str:
        facts = f"{self.load:.1f} other tasks on {count_text(self.cores, 'core')}"
        if self.steal_share > BUSY_STEAL_SHARE:
            facts += f", {100 * self.steal_share:.0f} % of the CPU time taken by others"
        return f"the machine was busy while measuring ({facts}). Run again when it is idle"

    def environment(self) -> dict[str, str]:
        shares = {"load": f"{self.load:.2f}", "steal_share": f"{self.steal_share:.3f}"}
        return shares | {"load_cores": str(self.cores)}


def load_of(environment: Mapping[str, str]) -> MachineLoad | None:
    """The load that a record's environment tells; None where it tells none."""
    try:
        load, steal = (float(environment[name]) for name in ("load", "steal_share"))
        cores = int(environment["load_cores"])
    except (KeyError, ValueError):
        return None
    is_load = 0 <= load < math.inf and 0 <= steal <= 1 and cores > 0
    return MachineLoad(load, steal, cores) if is_load else None


def was_busy(environment: Mapping[str, str]) -> bool:
    """Whether a record was made while the machine was busy, as far as its environment tells."""
    return busiest([environment]) is not None


def mean_load(loads: Iterable[MachineLoad | None]) -> MachineLoad | None:
    """The mean over visits; None where none of them could tell."""
    known = [load for load in loads if load is not None]
    if not known:
        return None
    load = sum(each.load for each in known) / len(known)
    steal_share = sum(each.steal_share for each in known) / len(known)
    return MachineLoad(load, steal_share, known[-1].cores)


def busiest(environments: Iterable[Mapping[str, str]]) -> MachineLoad | None:
    """The highest load of the records that were made while the machine was busy."""
    loads = [load for load in map(load_of, environments) if load is not None and load.is_busy]
    return max(loads, key=lambda load: (load.load / load.cores, load.steal_share), default=None)
