"""The rules of TensorRT held against its RTX compiler on one network: groups, kernels, bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hybridlat.engines.fusion.groups import Groups, differing
from hybridlat.engines.fusion.rules import apply
from hybridlat.engines.tensorrt import fusion_rules
from hybridlat.graph.network import Network

NAMES_ONLY = "names only"


@dataclass(frozen=True)
class Kind:
    """One connected set of operators in other kernels: what the rules and the compiler say.

    ``kernels`` are those of the rules less those of the compiler; ``bytes_share`` is what their
    kernels read and write less what the compiler's do, over what the whole network moves.
    """

    rules: str
    compiler: str
    kernels: int
    bytes_share: float

    @property
    def costs(self) -> str:
        """Whether the latency differs: a kernel more or less, other bytes, or names only."""
        if self.kernels:
            count = abs(self.kernels)
            number = "a kernel" if count == 1 else f"{count} kernels"
            return f"{number} {'more' if self.kernels > 0 else 'less'}"
        return "other bytes" if self.bytes_share else NAMES_ONLY


@dataclass(frozen=True)
class Verdict:
    """The rules and the compiler on one network.

    ``agreement`` is a share (0..1) of operators; ``kernels`` and ``bytes`` are those of the rules
    over those of the compiler, less one.
    """

    name: str
    precision: str
    part: str
    nodes: int
    agreement: float
    kernels: float
    bytes: float
    kinds: tuple[Kind, ...]


def is_partition(network: Network, groups: Groups) -> bool:
    """Whether every operator is in exactly one kernel or removed."""
    held = sorted(i for kernel in (*groups.kernels, groups.removed) for i in kernel)
    return held == list(range(len(network.nodes)))


def verdict(name: str, precision: str, part: str, network: Network, truth: Groups) -> Verdict:
    """Hold the rules against the compiler's groups of a network."""
    groups = apply(network, fusion_rules.rules_of(fusion_rules.RTX))
    if not is_partition(network, groups) or not is_partition(network, truth):
        raise AssertionError(f"{name}: an operator is in no group or in two")
    moved = moved_bytes(network, truth.kernels, truth.removed)
    return Verdict(
        name,
        precision,
        part,
        len(network.nodes),
        1.0 - len(differing(groups, truth)) / len(network.nodes),
        len(groups.kernels) / len(truth.kernels) - 1,
        moved_bytes(network, groups.kernels, groups.removed) / moved - 1,
        tuple(disagreements(network, groups, truth, moved)),
    )


def moved_bytes(
    network: Network, kernels: Iterable[tuple[int, ...]], removed: tuple[int, ...]
) -> int:
    """Bytes that the kernels read and write: each tensor once for each kernel that does."""
    producers, consumers, gone = network.producers, network.consumers, set(removed)
    total = 0
    for kernel in kernels:
        own = set(kernel)
        read: set[str] = set()
        waiting = [name for i in kernel for name in network.nodes[i].inputs if name]
        while waiting:
            name = waiting.pop()
            maker = producers.get(name)
            if maker is not None and maker in gone:
                waiting.extend(i for i in network.nodes[maker].inputs if i in network.types)
            elif maker is None or maker not in own:
                read.add(name)
        written = {
            out
            for i in kernel
            for out in network.nodes[i].outputs
            if out in network.outputs or any(r not in own for r in consumers.get(out, ()))
        }
        total += sum(network.type_of(name).bytes for name in read | written)
    return total


def disagreements(network: Network, result: Groups, truth: Groups, moved: int) -> list[Kind]:
    """What the rules say and what is true, once for each connected set of differing operators."""
    places: list[dict[int, tuple[int, ...]]] = [
        {node: kernel for kernel in groups.kernels for node in kernel} for groups in (result, truth)
    ]
    told: list[Kind] = []
    seen: set[int] = set()
    for start in differing(result, truth):
        if start in seen:
            continue
        together, waiting = set[int](), [start]
        while waiting:
            node = waiting.pop()
            if node not in together:
                together.add(node)
                waiting.extend(other for place in places for other in place.get(node, ()))
        seen |= together
        sides = [sorted({place.get(node, ()) for node in together}) for place in places]
        kernels = [[kernel for kernel in side if kernel] for side in sides]
        read = [
            moved_bytes(network, side, groups.removed)
            for side, groups in zip(kernels, (result, truth), strict=True)
        ]
        said = (
            " | ".join("+".join(network.nodes[i].op for i in k) or "removed" for k in side)
            for side in sides
        )
        share = (read[0] - read[1]) / moved
        told.append(Kind(*said, len(kernels[0]) - len(kernels[1]), share))
    return told
