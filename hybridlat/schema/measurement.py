"""An immutable record of one thing measured once: raw samples, protocol, environment, result."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal

from hybridlat.errors import TargetError
from hybridlat.schema.target import Target

RECORD_FORMAT = 1
Kind = Literal["cell", "network", "layer"]
KINDS: Final[tuple[Kind, ...]] = ("cell", "network", "layer")


@dataclass(frozen=True, slots=True)
class Visit:
    """Samples taken in a row. ``drift`` is the machine's speed then: divide samples by it.

    A drift of 1.05 says that the reference kernels ran 5 % slower around this visit than in the
    median of the run. ``process`` tells visits of different processes apart.
    """

    samples_us: tuple[float, ...]
    drift: float = 1.0
    process: int = 0


@dataclass(frozen=True)
class Measurement:
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

    @property
    def id(self) -> str:
        """Hash of the whole content, 32 hex digits: the same record imported twice is one."""
        return _content_id(self.to_json())

    def to_json(self) -> dict[str, object]:
        """The record as JSON types (format 1)."""
        return {
            "format": RECORD_FORMAT,
            "target": str(self.target),
            "signature": self.signature,
            "kind": self.kind,
            "latency_us": None if self.latency_us is None else float(self.latency_us),
            "spread_share": float(self.spread_share),
            "visits": [
                {
                    "samples_us": [float(s) for s in v.samples_us],
                    "drift": float(v.drift),
                    "process": v.process,
                }
                for v in self.visits
            ],
            "overhead_us": float(self.overhead_us),
            "protocol": self.protocol,
            "environment": dict(self.environment),
            "measured_at": self.measured_at,
            "failure": self.failure,
            "labels": dict(self.labels),
        }

    @classmethod
    def from_json(cls, body: object) -> Measurement:
        """The record that ``to_json`` wrote; ValueError names the field that is not as written.

        Strict: a field too many, a missing one or one of another type is damage, not a variant.
        """
        fields = _record_fields(body, "measurement", _MEASUREMENT_FIELDS)
        record = cls(
            target=_target(fields["target"]),
            signature=_text(fields, "signature"),
            kind=_kind(fields["kind"]),
            latency_us=None
            if fields["latency_us"] is None
            else _number(fields["latency_us"], "latency_us"),
            spread_share=_number(fields["spread_share"], "spread_share"),
            visits=tuple(_visit(v) for v in _list(fields["visits"], "visits")),
            overhead_us=_number(fields["overhead_us"], "overhead_us"),
            protocol=_text(fields, "protocol"),
            environment=_texts(fields, "environment"),
            measured_at=_text(fields, "measured_at"),
            failure=None if fields["failure"] is None else _text(fields, "failure"),
            labels=_texts(fields, "labels"),
        )
        wrong = record.problems()
        if wrong:
            raise ValueError(wrong[0])
        return record

    def problems(self) -> tuple[str, ...]:
        """What makes the record impossible, one sentence each; empty for a sound record."""
        found = []
        if not _HASH.fullmatch(self.signature):
            found.append(f"signature {self.signature[:60]!r} is not 32 hex digits")
        if (self.latency_us is None) == (self.failure is None):
            found.append("a record has either a latency_us or a failure, and never both")
        if self.latency_us is not None and not 0 < self.latency_us < math.inf:
            found.append(f"latency_us {self.latency_us!r} is not a positive finite number")
        if not 0 <= self.spread_share < math.inf:
            found.append(f"spread_share {self.spread_share!r} is not a finite number from 0 up")
        if not math.isfinite(self.overhead_us):
            found.append(f"overhead_us {self.overhead_us!r} is not finite")
        for visit in self.visits:
            if not 0 < visit.drift < math.inf:
                found.append(f"drift {visit.drift!r} is not a positive finite number")
            if not all(map(math.isfinite, visit.samples_us)):
                found.append("a sample is not finite")
        return tuple(found)


@dataclass(frozen=True)
class Breakdown:
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
        return _content_id(self.to_json())

    def to_json(self) -> dict[str, object]:
        """The breakdown as JSON types (format 1)."""
        return {
            "format": RECORD_FORMAT,
            "target": str(self.target),
            "network": self.network,
            "signature": self.signature,
            "cells": [[signature, count] for signature, count in self.cells],
            "layers": [[signature, count] for signature, count in self.layers],
            "labels": dict(self.labels),
        }

    @classmethod
    def from_json(cls, body: object) -> Breakdown:
        """The breakdown that ``to_json`` wrote; ValueError as for a Measurement."""
        fields = _record_fields(body, "breakdown", _BREAKDOWN_FIELDS)
        found = cls(
            target=_target(fields["target"]),
            network=_text(fields, "network"),
            signature=_text(fields, "signature"),
            cells=tuple(_counted(item, "cells") for item in _list(fields["cells"], "cells")),
            layers=tuple(_counted(item, "layers") for item in _list(fields["layers"], "layers")),
            labels=_texts(fields, "labels"),
        )
        wrong = found.problems()
        if wrong:
            raise ValueError(wrong[0])
        return found

    def problems(self) -> tuple[str, ...]:
        """What makes the breakdown impossible; empty for a sound one."""
        hashes = (self.signature, *(h for h, _ in self.cells), *(h for h, _ in self.layers))
        found = [f"{h[:60]!r} is not 32 hex digits" for h in hashes if not _HASH.fullmatch(h)]
        for signature, count in (*self.cells, *self.layers):
            if count < 1:
                found.append(f"count {count!r} of {signature} is not a positive number")
        return tuple(found)


_HASH = re.compile(r"[0-9a-f]{32}")
_MEASUREMENT_FIELDS = frozenset(f.name for f in fields(Measurement))
_BREAKDOWN_FIELDS = frozenset(f.name for f in fields(Breakdown))


def _content_id(body: Mapping[str, object]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _record_fields(body: object, what: str, names: frozenset[str]) -> dict[str, object]:
    if not isinstance(body, dict):
        raise ValueError(f"a {what} is a JSON object, not {type(body).__name__}")
    version = body.get("format")
    if type(version) is not int or version < 1:
        raise ValueError(f"format {version!r} of a {what} is not a format number")
    if version > RECORD_FORMAT:
        raise ValueError(
            f"a {what} of format {version} is newer than format {RECORD_FORMAT}, "
            "the newest this version reads: upgrade hybridlat"
        )
    given = body.keys() - {"format"}
    if given != names:
        missing, surplus = sorted(names - given), sorted(map(str, given - names))
        raise ValueError(f"a {what} has missing fields {missing} and unknown fields {surplus}")
    return body


def _target(value: object) -> Target:
    if not isinstance(value, str):
        raise ValueError(f"target {value!r} is not text")
    try:
        return Target.parse(value)
    except TargetError as error:
        raise ValueError(str(error)) from error


def _kind(value: object) -> Kind:
    for kind in KINDS:
        if value == kind:
            return kind
    raise ValueError(f"kind {value!r} is not one of {', '.join(KINDS)}")


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} {value!r} is not text")
    return value


def _texts(fields: Mapping[str, object], name: str) -> dict[str, str]:
    value = fields[name]
    if not isinstance(value, dict) or not all(
        isinstance(k, str) and isinstance(v, str) for k, v in value.items()
    ):
        raise ValueError(f"{name} is not an object of texts")
    return value


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} {value!r} is not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{name} is too large a number") from error


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    return value


def _visit(value: object) -> Visit:
    if not isinstance(value, dict) or value.keys() != {"samples_us", "drift", "process"}:
        raise ValueError("a visit has the fields samples_us, drift and process")
    process = value["process"]
    if type(process) is not int:
        raise ValueError(f"process {process!r} of a visit is not a whole number")
    samples = tuple(_number(s, "a sample") for s in _list(value["samples_us"], "samples_us"))
    return Visit(samples, _number(value["drift"], "drift"), process)


def _counted(value: object, name: str) -> tuple[str, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"an entry of {name} is not a pair of signature and count")
    signature, count = value
    if not isinstance(signature, str) or type(count) is not int:
        raise ValueError(f"an entry of {name} is not a pair of signature and count")
    return signature, count
