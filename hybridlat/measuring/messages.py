"""What the measuring process and its parent say to each other.

The classes stand here and not in ``worker``: that module is ``__main__`` in the measuring process,
where its own classes would be other classes than the parent's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hybridlat.graph.network import Network
from hybridlat.schema.machine_load import MachineLoad


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to the process: which backend to start, and where modules are found.

    ``backend`` is ``module:Class``. ``pythonpath`` is what the variable PYTHONPATH was in the
    parent (None: not set), put back for the processes that the backend starts.
    """

    backend: str
    options: Mapping[str, int | str] = field(default_factory=dict)
    module_path: tuple[str, ...] = ()
    pythonpath: str | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """The backend runs, its reference network is warm."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The backend cannot be started; ``reason`` is a sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class VisitTask:
    """One visit to make: ``replicas`` of a network in turn, for ``visit_ms``.

    ``lowered`` False: it is a file's network, to be optimised as the engine always does.
    """

    key: str
    network: Network
    lowered: bool
    visit_ms: float
    replicas: int
    seed: int


@dataclass(frozen=True, slots=True)
class VisitResult:
    """What a visit found: samples of the replicas in turn and the references around, or a failure.

    ``load`` is how busy the machine was with other work meanwhile, None where it does not tell.

    No samples and no failure: everything was disturbed, and the next visit may do better.
    """

    key: str
    samples_us: tuple[float, ...] = ()
    reference_us: float = 0.0
    seconds: float = 0.0
    failure: str | None = None
    load: MachineLoad | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The last message to the process."""
