"""An engine that computes its latencies: for tests, rehearsals and demonstrations.

It needs no hardware and no engine, is deterministic, and behaves like one where it matters: a
roofline for each kernel, a launch overhead, a cost at the borders between cells, noise, a drifting
clock, operators that it refuses and cells that crash. Its records must never be taken for real
ones, so its device is called ``fake`` unless a test says otherwise.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from hybridlat.engines import registry
from hybridlat.engines.base import Backend, Method, Session
from hybridlat.errors import MeasurementError
from hybridlat.graph.cells import cut_positions
from hybridlat.graph.network import Lowered, Network, Node
from hybridlat.graph.operators import KINDS, kind_of
from hybridlat.graph.signature import sign
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.target import Target

FAKE = "fake/fake-1.0/fp32/1t"
QUICK = MeasurementConfig(
    rounds=1, processes=1, max_processes=1, visit_ms=2.0, network_visit_ms=5.0
)
RULES = Target("fake", "tensorrt-8.6", "fp32")
# What tests ask of a fake engine in a process of its own: seconds that a run lasts, and networks
# (by name) whose run takes the process down.
SLEEP_VARIABLE = "FAKE_ENGINE_SLEEP_S"
DIES_VARIABLE = "FAKE_ENGINE_DIES"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the pretended machine can do.

    A kernel takes ``launch_us + max(FLOP / flop_per_us, bytes / bytes_per_us)``. Every run takes
    ``session_us`` more (what a measuring protocol must take off), and every border between two
    cells of a network ``border_us``, which no cell shows when it runs alone. A sample is slower
    than that by ``noise_share`` times a half-normal number. Launches and FLOP rates are those of
    a small CPU.
    """

    flop_per_us: float = 40_000.0
    bytes_per_us: float = 8_000.0
    launch_us: float = 0.5
    session_us: float = 3.0
    border_us: float = 0.0
    noise_share: float = 0.01


class FakeBackend(Backend):
    """See the module. ``fuses`` lowers as TensorRT does.

    ``refused_ops`` cannot be built; a network whose signature hash is in ``crashing`` can, and
    fails when run. ``drift`` gives the slowness of the machine (1 = as stated) from the number of
    inferences that this backend has run.
    """

    name = "fake"
    method: ClassVar[Method] = Method.REPLICAS

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        target: Target | None = None,
        fuses: bool = False,
        refused_ops: Collection[str] = (),
        crashing: Collection[str] = (),
        drift: Callable[[int], float] | None = None,
    ) -> None:
        self.machine = machine or Machine()
        self.target = target or Target("fake", "fake-1.0", "fp32", 1)
        self._fuses = fuses
        self._refused = frozenset(refused_ops)
        self.crashing = frozenset(crashing)
        self._drift = drift
        self.runs = 0

    def environment(self) -> Mapping[str, str]:
        return {"engine": "fake 1.0", "machine": repr(self.machine)}

    def lower(self, network: Network) -> Lowered:
        self._accept(network)
        if self._fuses:
            return registry.lower(network, RULES)
        origins = tuple((i,) for i in range(len(network.nodes)))
        return Lowered(network, origins, (), "fake 1.0")

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        self._accept(network)
        graph = network if lowered else self.lower(network).network
        return FakeSession(self, graph, seed, crashes=sign(network).hash in self.crashing)

    def ideal_us(self, network: Network) -> float:
        """Time of one inference of a lowered network, without noise and ``session_us``."""
        machine = self.machine
        kernels = math.fsum(self.kernel_us(network, node) for node in network.nodes)
        return kernels + machine.border_us * (len(cut_positions(network)) - 1)

    def kernel_us(self, network: Network, node: Node) -> float:
        """Time of one kernel: launch and roofline."""
        machine = self.machine
        names = [n for n in (*node.inputs, *node.outputs) if n]
        moved = sum(network.type_of(n).bytes for n in names)
        work = max(flop(network, node) / machine.flop_per_us, moved / machine.bytes_per_us)
        return machine.launch_us + work

    def slowness(self) -> float:
        """How slow the machine is for the next inference, which this call counts."""
        self.runs += 1
        return 1.0 if self._drift is None else self._drift(self.runs - 1)

    def _accept(self, network: Network) -> None:
        """Refuse what no engine would take: unknown tensors, wrong channels, refused operators."""
        ready = {*network.inputs, *network.constants}
        for node in network.nodes:
            label = f"{node.name or 'a node'} ({node.qualified_op}) of {network.name}"
            if node.op in self._refused:
                raise MeasurementError(f"the fake engine has no kernel for {label}")
            for name in node.inputs:
                if name and name not in ready:
                    raise MeasurementError(f"{label} reads {name!r}, which nothing makes before it")
            ready.update(node.outputs)
            if node.op == "Conv":
                data, weight = (network.type_of(n).shape for n in node.inputs[:2])
                group = node.attribute("group", 1)
                if not isinstance(group, int) or data[1] != weight[1] * group:
                    raise MeasurementError(
                        f"{label} has {data[1]} channels, its weights take {weight[1]} x {group}"
                    )
        for name in network.outputs:
            if name not in ready:
                raise MeasurementError(f"the output {name!r} of {network.name} is made by nothing")


class FakeDifferentialBackend(FakeBackend):
    """The same machine behind an engine whose cells can only be timed behind their predecessor."""

    method: ClassVar[Method] = Method.DIFFERENTIAL


class FakeSession(Session):
    """Noise depends on what is run, the seed, and how many samples were taken, on nothing else."""

    def __init__(self, backend: FakeBackend, network: Network, seed: int, crashes: bool) -> None:
        self._backend = backend
        self._time_us = backend.ideal_us(network) + backend.machine.session_us
        self._network = network.name
        self._crashes = crashes
        self._random = random.Random(f"{sign(network).hash} {seed}")

    def run_us(self, count: int) -> list[float]:
        time.sleep(float(os.environ.get(SLEEP_VARIABLE, "0")))
        if self._network in os.environ.get(DIES_VARIABLE, "").split():
            sys.stderr.write("the fake engine lost its head\n")
            os.abort()
        if self._crashes:
            raise MeasurementError(f"the fake engine crashed while it ran {self._network}")
        noise = self._backend.machine.noise_share
        return [
            self._time_us
            * self._backend.slowness()
            * (1 + noise * abs(self._random.gauss(0.0, 1.0)))
            for _ in range(count)
        ]


def flop(network: Network, node: Node) -> float:
    """FLOP of a kernel: 2·(output elements)·(elements of a weight's filter) for contractions,
    one per element read or written for everything else."""
    out = sum(network.type_of(name).elements for name in node.outputs if name)
    kind = kind_of(node.qualified_op)
    if kind == KINDS["conv"] and len(node.inputs) > 1:
        return 2.0 * out * math.prod(network.type_of(node.inputs[1]).shape[1:])
    if kind == KINDS["matmul"] and node.inputs:
        left = network.type_of(node.inputs[0]).shape
        rows = -2 if node.attribute("transA", 0) and len(left) > 1 else -1
        return 2.0 * out * (left[rows] if left else 1)
    return float(sum(network.type_of(n).elements for n in (*node.inputs, *node.outputs) if n))
