"""The contract of a backend: an engine that can build a cell or a network and time it."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target


class Method(enum.Enum):
    """How an engine's cells are measured; ``hybridlat.measuring.measurer`` has one for each.

    REPLICAS: the lowered graph can be cut and its parts run as they are. DIFFERENTIAL: a cell can
    only be timed with its predecessor, in sessions of this process. PLAN: the same by a plan, which
    ``run_plan`` measures.
    """

    REPLICAS = "replicas"
    DIFFERENTIAL = "differential"
    PLAN = "plan"


class Session(abc.ABC):
    """One built cell or network with its own weights, inputs and buffers, ready to run."""

    @abc.abstractmethod
    def run_us(self, count: int) -> list[float]:
        """Run ``count`` inferences one after another; microseconds of each.

        Samples that the operating system disturbed (involuntary context switches) are left out,
        so fewer than ``count`` may come back. Raises MeasurementError when a run fails.
        """

    def close(self) -> None:
        """Give back memory; the session is not used afterwards."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Backend(abc.ABC):
    """An engine on this machine, for one precision (and thread count on a CPU).

    ``method`` says how its cells are measured.
    """

    name: ClassVar[str]
    method: ClassVar[Method]

    @classmethod
    def options_for(cls, target: Target | None, threads: int | None) -> Mapping[str, int | str]:
        """Arguments that start this backend for ``target`` (None: its default); none by default.

        ``threads`` is what the user asked for, None where nothing was said.
        """
        del target, threads
        return {}

    @property
    @abc.abstractmethod
    def target(self) -> Target:
        """Device, runtime with version, precision and threads that measurements will belong to."""

    @abc.abstractmethod
    def environment(self) -> Mapping[str, str]:
        """What a record must know of engine, driver, clocks, CPU and threads."""

    @abc.abstractmethod
    def lower(self, network: Network) -> Lowered:
        """The graph this engine runs for the network of a file: that of its target's lowering.

        Raises MeasurementError when the engine refuses the network.
        """

    @abc.abstractmethod
    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        """Build a network with seeded random weights and inputs.

        ``lowered`` True: it is a cell (or all) of a lowered graph and must run as it is; False: it
        is a file's network, to be optimised as the engine always does. Raises MeasurementError.
        """

    def close(self) -> None:
        """End what this backend has started; it may start again when it is used again."""

    def run_plan(
        self, folder: Path, progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        """Measure the plan in ``folder`` on this machine; results lie in it afterwards.

        ``progress`` gets done, total and a label. Goes on where an earlier call was cut off.
        Raises MeasurementError when nothing can be measured.
        """
        raise NotImplementedError(f"{self.name} measures no plans")

    def build_replicas(
        self, network: Network, *, count: int, seed: int, lowered: bool
    ) -> list[Session]:
        """``count`` sessions of the same network, to be run in turn; weights apart.

        An engine overrides this where replicas can share what the cells of a network share: the
        memory that activations live in.
        """
        sessions: list[Session] = []
        try:
            for replica in range(count):
                sessions.append(self.build(network, seed=seed + replica, lowered=lowered))
        except BaseException:
            for session in sessions:
                session.close()
            raise
        return sessions


@dataclass(frozen=True, slots=True, eq=False)
class LoweredStretch:
    """What becomes of a run of operators between two tensors that alone are live.

    ``inside`` is what its engine's lowering has to know of it to say what stands behind it.
    """

    lowered: Lowered
    inside: object


class LearnedRules(Protocol):
    """What a process has learned of its engine's lowering, for other processes.

    It holds under ``scope`` alone.
    """

    scope: str

    def news(self) -> str:
        """All that was learned since this was asked last, or taken over; empty for nothing."""

    def learn(self, text: str) -> None:
        """Take over what another process said is new; ValueError for what is none."""


class StretchLowering(Protocol):
    """An engine's lowering that knows what becomes of a stretch without the rest of the network.

    Two stretches meet at a *border*, which is what the lowering has to know of all before it: an
    object that only the lowering looks into. Equal borders are one object.
    """

    joining: frozenset[str]
    """Operators that may become one with what makes the tensor that they read."""
    start: object
    """The border at which networks begin."""

    @property
    def is_ready(self) -> bool:
        """Whether it knows anything yet."""

    @property
    def generation(self) -> object:
        """Changes when what was worked out before may no longer be used."""

    def context(self, weight_bytes: int) -> str:
        """The context of the cells of a network with weights of that size."""

    def form(self, before: object) -> object:
        """What the kernels behind a border hang on: equal where they are the same."""

    def lower(
        self, stretch: Network, before: object, readers: int, context: str
    ) -> LoweredStretch | None:
        """The kernels of a stretch that ``readers`` operators read from, none for the last.

        None where the engine has to be asked for the network.
        """

    def behind(self, inside: object, before: object) -> object | None:
        """The border behind a stretch (``LoweredStretch.inside``) that stands behind a border.

        None where the engine has to be asked for the network.
        """

    def may_skip_asking(self) -> bool:
        """Count one more network that the engine is not asked for; no where it is time to ask."""
