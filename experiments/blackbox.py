"""Which operators an engine fuses, found by timing alone: for engines that tell nothing.

Two neighbouring operators are timed apart and together. They are fused when together saves more
than a share α of the cheaper one: T₁ + T₂ − T₁₂ > α·min(T₁, T₂), the test of nn-Meter (Zhang et
al., MobiSys 2021) with its α = 0.5. A chain of three is asked as pairs: the first two as one
operator, then the third.

Every chain stands between the same frame: a convolution and a pooling before, a pooling after. The
frame alone is timed too and taken off. So the chain meets the engine's own memory layout on both
sides, and what entering the engine and changing the layout cost is not taken for a saving. The
poolings keep the chain from being fused into its frame; they average, because a ReLU can change
places with a maximum. A residual is read by the addition alone, since some engines add in its
place; where a chain has no addition yet, a pooling of one pixel a channel reads it instead.

What a fused operator still has to compute is not saved: an expensive activation (Sigmoid) can look
unfused. The result is a table for :func:`hybridlat.engines.fusion.rewriter.apply`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hybridlat.engines.base import Backend, Session
from hybridlat.engines.fusion.rewriter import FusionState, Rule, fuse
from hybridlat.errors import MeasurementError
from hybridlat.graph.builder import NetworkBuilder
from hybridlat.graph.network import AttributeValue, Lowered, Network
from hybridlat.measuring.statistics import level_us

ALPHA = 0.5
PASSES = 60
LINKS = 4  # so often is a chain repeated in its frame, for the sake of quick operators
REPEATS = 5  # with new sessions: where their buffers come to lie matters
WARM_PASSES = 10
# The second term of an Add is a residual: what a convolution and a pooling make of another input.
CHAINS: tuple[tuple[str, ...], ...] = (
    ("Conv", "BatchNormalization"),
    ("Conv", "Relu"),
    ("Conv", "BatchNormalization", "Relu"),
    ("Conv", "Add"),
    ("Conv", "Add", "Relu"),
    ("Conv", "Clip"),
    ("Conv", "MaxPool"),
    ("Conv", "AveragePool"),
    ("MaxPool", "Relu"),
    ("AveragePool", "Relu"),
    ("Add", "Relu"),
    ("Conv", "Conv"),
)
_VERSIONS = {"Conv": 11, "MaxPool": 12, "AveragePool": 11, "BatchNormalization": 14}


@dataclass(frozen=True, slots=True)
class Case:
    """A chain whose last operator is asked about, on square feature maps: (channels, size) each.

    Times are summed over the maps: on any one, an operator may be too quick to be seen. The maps
    are small enough for a second-level cache, where times repeat best.
    """

    ops: tuple[str, ...]
    maps: tuple[tuple[int, int], ...] = ((16, 80), (32, 56), (64, 40))

    @property
    def label(self) -> str:
        return "+".join(self.ops)


@dataclass(frozen=True, slots=True)
class FusionTest:
    """Times of a chain without its last operator, of that alone, and of both, net of the frame.

    Each is a sum over the case's maps.
    """

    case: Case
    first_us: float
    second_us: float
    together_us: float
    alpha: float = ALPHA

    @property
    def saved_share(self) -> float:
        """(T₁ + T₂ − T₁₂) / min(T₁, T₂): about 1 when the cheaper one became free, 0 when not."""
        cheaper = max(min(self.first_us, self.second_us), 1e-3)
        return (self.first_us + self.second_us - self.together_us) / cheaper

    @property
    def fused(self) -> bool:
        return self.saved_share > self.alpha


def framed(ops: Sequence[str], case: Case, channels: int, size: int, links: int = 1) -> Network:
    """The operators one after the other in the frame of a case, ``links`` times over.

    A pooling follows each time; the last one ends the nodes.
    """
    return _Frame("Add" in case.ops, channels, size).network(ops, links)


class _Frame:
    def __init__(self, residual: bool, channels: int, size: int) -> None:
        self._residual = residual
        self._net = NetworkBuilder()
        self._net.input((1, channels, size, size), "x")
        self._skip = ""

    def network(self, ops: Sequence[str], links: int) -> Network:
        last = self._pool("before", self._op("Conv", "x"))
        taps = []
        if self._residual:
            self._net.input(self._net.shape("x"), "z")
        for _ in range(links):
            if self._residual:
                self._skip = self._pool("residual", self._op("Conv", "z"))
                # Every network of a case has such poolings: they fall out of the difference.
                taps.append(self._one_pixel(last if "Add" in ops else self._skip))
            for op in ops:
                last = self._op(op, last)
            last = self._pool("after", last)
        self._net.name = "+".join(ops) or "frame"
        return self._net.network(last, *taps)

    def _op(self, op: str, source: str) -> str:
        c = self._net.shape(source)[1]
        operands = [source]
        attributes: dict[str, AttributeValue] = {}
        if op == "Conv":
            operands += [self._net.constant((c, c, 1, 1)), self._net.constant((c,))]
        elif op == "BatchNormalization":
            operands += [self._net.constant((c,)) for _ in range(4)]
        elif op == "Clip":
            operands += [self._net.constant((), (0.0,)), self._net.constant((), (6.0,))]
        elif op == "Add":
            operands.append(self._skip)
        elif op in ("MaxPool", "AveragePool"):
            attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
        return self._add(op, operands, self._net.shape(source), attributes)

    def _pool(self, name: str, source: str) -> str:
        attributes: dict[str, AttributeValue] = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
        return self._add("AveragePool", [source], self._net.shape(source), attributes, name)

    def _one_pixel(self, source: str) -> str:
        n, c, *size = self._net.shape(source)
        attributes: dict[str, AttributeValue] = {"kernel_shape": (1, 1), "strides": tuple(size)}
        return self._add("MaxPool", [source], (n, c, 1, 1), attributes, "tap")

    def _add(
        self,
        op: str,
        operands: list[str],
        shape: tuple[int, ...],
        attributes: dict[str, AttributeValue],
        name: str = "",
    ) -> str:
        out = self._net.op(op, operands, shape, _VERSIONS.get(op, 13), attributes)
        self._net.nodes[-1] = replace(self._net.nodes[-1], name=f"{name or op}_{out}")
        return out


def find(
    backend: Backend, cases: Sequence[Case] | None = None, alpha: float = ALPHA
) -> list[FusionTest]:
    """Time every case on ``backend``; cases that it refuses are left out.

    The four networks of a case run in turn, so that a change of the machine's speed meets all; the
    quickest of several builds counts. A case takes about two seconds on a CPU.
    """
    result = []
    for case in cases if cases is not None else [Case(ops) for ops in CHAINS]:
        try:
            result.append(_time(backend, case, alpha))
        except MeasurementError:
            continue
    return result


def _time(backend: Backend, case: Case, alpha: float) -> FusionTest:
    total = [0.0, 0.0, 0.0]
    for channels, size in case.maps:
        chains = ((), case.ops[:-1], case.ops[-1:], case.ops)
        networks = [framed(ops, case, channels, size, LINKS) for ops in chains]
        best = [math.inf] * len(networks)
        for seed in range(1, REPEATS + 1):
            sessions: list[Session] = []
            try:
                for network in networks:
                    sessions.append(backend.build(network, seed=seed, lowered=False))
                best = [min(pair) for pair in zip(best, _levels(sessions), strict=True)]
            finally:
                for session in sessions:
                    session.close()
        total = [t + (us - best[0]) / LINKS for t, us in zip(total, best[1:], strict=True)]
    first, second, together = total
    return FusionTest(case, first, second, together, alpha)


def _levels(sessions: list[Session]) -> list[float]:
    times: list[list[float]] = [[] for _ in sessions]
    for number in range(WARM_PASSES + PASSES):
        for session, result in zip(sessions, times, strict=True):
            samples = session.run_us(2)  # the first finds the caches that the others left
            if number >= WARM_PASSES:
                result.extend(samples[-1:])
    if not all(times):
        raise MeasurementError("every sample was disturbed")
    return [level_us(result) for result in times]


def table(findings: Sequence[FusionTest]) -> tuple[Rule, ...]:
    """Rules that join what was found fused; a group's kind names all that it holds."""
    return tuple(
        fuse(
            f"found: {finding.case.label}",
            "+".join(finding.case.ops[:-1]),
            finding.case.ops[-1],
            f"timed together, {100 * finding.saved_share:.0f} % of the cheaper one is saved",
            _only_reader,
            finding.case.label,
        )
        for finding in sorted(findings, key=lambda finding: len(finding.case.ops))
        if finding.fused
    )


def _only_reader(state: FusionState, producer: int, consumer: int) -> bool:
    return state.between_only(producer, consumer)


def truth(lower: Callable[[Network], Lowered], case: Case) -> bool | None:
    """Whether an engine that can be asked runs the last operator in the kernel of the one before.

    None when the chain before it is not one kernel, so that the question makes no sense.
    """
    network = framed(case.ops, case, *case.maps[-1])
    lowered = lower(network)
    end = len(network.nodes) - 2  # the frame's last pooling follows
    chain = range(end - len(case.ops) + 1, end + 1)
    kernel_of = {i: k for k, origin in enumerate(lowered.origins) for i in origin}
    if len({kernel_of.get(i) for i in chain[:-1] if i in kernel_of}) > 1:
        return None
    return end in lowered.removed or kernel_of[end] in {kernel_of.get(i) for i in chain[:-1]}
