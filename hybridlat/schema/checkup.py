"""What `doctor` finds out about a machine: plain values, for whoever shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

CHECKUP_FORMAT = 1
Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class EngineCheck:
    """An engine: whether it can measure here, and what to do if not.

    ``measures`` is False for engines of which only the fusion rules are known here. ``target`` is
    what this machine is called under it, empty where it does not start; ``why_not`` says why.
    """

    name: str
    measures: bool
    target: str = ""
    version: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class PackageCheck:
    """An optional package: what it is for, its version (empty: not installed), how to get it."""

    name: str
    purpose: str
    version: str
    how: str


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How steadily the machine ran the reference network for ``seconds`` in ``processes``.

    ``latency_us`` is what it took when nothing slowed it, ``noise_share`` by how much single visits
    differ within a process (relative standard deviation), ``wander_share`` how far the visits of
    all processes are from that latency (root mean square), ``slowest_share`` the farthest.
    """

    target: str
    seconds: float
    processes: int
    visits: int
    latency_us: float
    noise_share: float
    wander_share: float
    slowest_share: float


@dataclass(frozen=True, slots=True)
class HeldTarget:
    """What the store or a shipped pack holds of a target.

    ``wander_share`` is how the pace of the machine wandered between the processes that measured it,
    None where nobody knows.
    """

    target: str
    source: str
    cells: int
    networks: int
    failures: int
    last: str
    wander_share: float | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the way: an ``error`` keeps from measuring, a ``warning`` makes it worse."""

    severity: Severity
    what: str
    fix: str


@dataclass(frozen=True)
class Checkup:
    """All of it. ``machine`` and ``places`` are facts by name."""

    version: str
    machine: Mapping[str, str]
    engines: tuple[EngineCheck, ...]
    packages: tuple[PackageCheck, ...]
    steadiness: Steadiness | None
    held: tuple[HeldTarget, ...]
    places: Mapping[str, str]
    problems: tuple[Problem, ...] = field(default=())

    @property
    def can_measure(self) -> bool:
        """Whether nothing keeps this machine from measuring."""
        return not any(problem.severity == "error" for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``doctor --json`` (format 1)."""
        return {"format": CHECKUP_FORMAT, "can_measure": self.can_measure, **asdict(self)}
