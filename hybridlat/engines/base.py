"""The contract of a backend: an engine that can build a cell or a network and time it."""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target


class Method(enum.Enum):
    """How an engine's cells are measured.

    REPLICAS: the lowered graph can be cut and its parts run. DIFFERENTIAL: a cell is timed with its
    predecessor. PLAN: the same by a plan, which ``run_plan`` measures.
    """

    REPLICAS = "replicas"
    DIFFERENTIAL = "differential"
    PLAN = "plan"


class Session(AbstractContextManager["Session"]):
    """One built cell or network with its own weights, inputs and buffers, ready to run."""

    lost_share: float = 0.0
    """What others took of the CPU time of its runs, as far as it is known."""

    @abc.abstractmethod
    def run_us(self, count: int) -> list[float]:
        """Microseconds of each of ``count`` inferences, one after another.

        Samples that the operating system disturbed (involuntary context switches) are left out, so
        there may be fewer. Raises MeasurementError when a run fails.
        """

    def close(self) -> None:
        """Give back memory; the session is not used afterwards."""

    def __exit__(self, *_: object) -> None:
        self.close()


class Backend(abc.ABC):
    """An engine on this machine, for one precision (and thread count on a CPU).

    Measurements belong to ``target``: device, runtime with version, precision and threads.
    """

    name: ClassVar[str]
    method: ClassVar[Method]
    target: Target
    contexts: Mapping[str, float] = MappingProxyType({"": math.inf})
    """Contexts of cells, and the bytes of weights that a network of each holds less than."""

    @classmethod
    def options_for(cls, target: Target | None, threads: int | None) -> Mapping[str, int | str]:
        """Arguments that start this backend for ``target``, or for its default."""
        del target, threads
        return {}

    def environment(self) -> Mapping[str, str]:
        """What a record must know of engine, driver, CPU and threads; a plan's results say it."""
        return {}

    @abc.abstractmethod
    def lower(self, network: Network) -> Lowered:
        """The graph that this engine runs for the network of a file; MeasurementError."""

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        """Build a network with seeded random weights and inputs; MeasurementError where it fails.

        A ``lowered`` one must run as it is; a file's network is optimised as the engine always
        does.
        """
        raise NotImplementedError(f"{self.name} is measured by plans")

    def close(self) -> None:
        """End what this backend has started; it may start again when it is used again."""

    def run_plan(
        self, folder: Path, progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        """Measure the plan in ``folder`` on this machine; results lie in it afterwards.

        ``progress`` gets done, total and a label. A run goes on where an earlier one was cut off.
        Raises MeasurementError when nothing can be measured.
        """
        raise NotImplementedError(f"{self.name} measures no plans")

    def build_replicas(
        self, network: Network, *, count: int, seed: int, lowered: bool
    ) -> list[Session]:
        """``count`` sessions of the same network, to be run in turn, with weights of their own.

        An engine overrides this where they can share the memory of activations, as cells of a
        network do.
        """
        one = partial(self.build, network, lowered=lowered)
        return build_all(partial(one, seed=seed + replica) for replica in range(count))


def build_all(builds: Iterable[Callable[[], Session]]) -> list[Session]:
    """The sessions of all these calls; where one fails, those before it are closed."""
    sessions: list[Session] = []
    with ExitStack() as built:
        for build in builds:
            sessions.append(built.enter_context(build()))
        built.pop_all()
    return sessions
