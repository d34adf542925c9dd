"""An engine that computes its latencies: a roofline for each kernel, a launch overhead, noise.

Its records must never be taken for real ones, so its device is called ``fake``.
"""

import math
import os
import random
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hybridlat.engines import registry
from hybridlat.engines.base import Backend, Method, Session
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Lowered, Network, Node
from hybridlat.graph.operators import KINDS, kind_of
from hybridlat.graph.signature import sign
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.target import Target

FAKE = "fake/fake-1.0/fp32/1t"
QUICK = MeasurementConfig(rounds=1, processes=1, max_processes=1, visit_ms=2, network_visit_ms=5)
# Seconds that a run lasts in a process of its own, and names of networks that take that down.
SLEEP_VARIABLE = "FAKE_ENGINE_SLEEP_S"
DIES_VARIABLE = "FAKE_ENGINE_DIES"
RUNS_VARIABLE = "FAKE_ENGINE_RUNS"  # a file that each run adds its process to


@dataclass(frozen=True, slots=True)
class Machine:
    """What the pretended machine can do.

    A kernel takes ``launch_us + max(FLOP / flop_per_us, bytes / bytes_per_us)``, every run
    ``session_us`` more. A sample is slower by ``noise_share`` times a half-normal number.
    """

    flop_per_us: float = 40_000.0
    bytes_per_us: float = 8_000.0
    launch_us: float = 0.5
    session_us: float = 3.0
    noise_share: float = 0.01


class FakeBackend(Backend):
    """See the module. ``fuses`` lowers as TensorRT does; ``refused_ops`` cannot be built."""

    name = "fake"
    method: ClassVar[Method] = Method.REPLICAS

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        fuses: bool = False,
        refused_ops: Collection[str] = (),
    ) -> None:
        self.machine = machine or Machine()
        self.target = Target.parse(FAKE)
        self._fuses, self._refused = fuses, frozenset(refused_ops)

    def environment(self) -> Mapping[str, str]:
        return {"engine": "fake 1.0", "machine": repr(self.machine)}

    def lower(self, network: Network) -> Lowered:
        self._accept(network)
        if self._fuses:
            return registry.lower(network, Target("fake", "tensorrt-8.6", "fp32"))
        origins = tuple((i,) for i in range(len(network.nodes)))
        return Lowered(network, origins, (), "fake 1.0")

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        self._accept(network)
        graph = network if lowered else self.lower(network).network
        return FakeSession(self, graph, seed)

    def ideal_us(self, network: Network) -> float:
        """Time of one inference of a lowered network, without noise and ``session_us``."""
        machine, kernels_us = self.machine, []
        for node in network.nodes:
            moved = sum(network.type_of(n).bytes for n in (*node.inputs, *node.outputs) if n)
            work_us = max(flop(network, node) / machine.flop_per_us, moved / machine.bytes_per_us)
            kernels_us.append(machine.launch_us + work_us)
        return math.fsum(kernels_us)

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
                    text = f"{data[1]} channels, its weights take {weight[1]} x {group}"
                    raise MeasurementError(f"{label} has {text}")
        for name in network.outputs:
            if name not in ready:
                raise MeasurementError(f"the output {name!r} of {network.name} is made by nothing")


class FakeDifferentialBackend(FakeBackend):
    """The same machine behind an engine whose cells can only be timed behind their predecessor."""

    method: ClassVar[Method] = Method.DIFFERENTIAL


class FakeSession(Session):
    """Noise depends on what is run, the seed, and how many samples were taken, on nothing else."""

    def __init__(self, backend: FakeBackend, network: Network, seed: int) -> None:
        self._time_us = backend.ideal_us(network) + backend.machine.session_us
        self._noise_share, self._network = backend.machine.noise_share, network.name
        self._random = random.Random(f"{sign(network).hash} {seed}")

    def run_us(self, count: int) -> list[float]:
        time.sleep(float(os.environ.get(SLEEP_VARIABLE, "0")))
        if self._network in os.environ.get(DIES_VARIABLE, "").split():
            sys.stderr.write("the fake engine lost its head\n")
            os.abort()
        if RUNS_VARIABLE in os.environ:
            with Path(os.environ[RUNS_VARIABLE]).open("a", encoding="ascii") as runs:
                runs.write(f"{os.getpid()}\n")
        noise = (self._noise_share * abs(self._random.gauss(0.0, 1.0)) for _ in range(count))
        return [self._time_us * (1 + share) for share in noise]


def flop(network: Network, node: Node) -> float:
    """FLOP of a kernel: 2·outputs·(elements of a filter), or one per element read or written."""
    out = sum(network.type_of(name).elements for name in node.outputs if name)
    kind = kind_of(node.qualified_op)
    if kind == KINDS["conv"] and len(node.inputs) > 1:
        return 2.0 * out * math.prod(network.type_of(node.inputs[1]).shape[1:])
    if kind == KINDS["matmul"] and node.inputs:
        left = network.type_of(node.inputs[0]).shape
        rows = -2 if node.attribute("transA", 0) and len(left) > 1 else -1
        return 2.0 * out * (left[rows] if left else 1)
    return float(sum(network.type_of(n).elements for n in (*node.inputs, *node.outputs) if n))
