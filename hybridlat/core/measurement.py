"""An immutable record of one thing measured once: raw samples, protocol, environment, result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from hybridlat.core.target import Target

RECORD_FORMAT = 1
Kind = Literal["cell", "network", "layer"]


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
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def to_json(self) -> dict[str, object]:
        """The record as JSON types (format 1)."""
        body = asdict(self)
        body["target"] = str(self.target)
        body["visits"] = [
            {"samples_us": list(v.samples_us), "drift": v.drift, "process": v.process}
            for v in self.visits
        ]
        body["environment"] = dict(self.environment)
        body["labels"] = dict(self.labels)
        return {"format": RECORD_FORMAT, **body}


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
