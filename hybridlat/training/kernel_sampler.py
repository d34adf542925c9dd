"""Random realistic kernels for a new target: what its model learns from beside whole networks.

Each is drawn as a small network of a file, the kernel between two convolutions that are there to
hand it its input and take its output in the layout that the engine works in. Asked to lower that,
the engine shows the kernel as it runs inside real networks (blocked layouts, fused activations);
the cell that holds it is cut out and can be measured like any other. The same seed draws the same.

Shapes follow CNNs: channels are mostly multiples of 16, sides come from halving common input sizes,
few channels go with large images and many with small ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from hybridlat import onnx_io
from hybridlat.engines.onnxruntime.lowering import MEDIUM_BYTES, SMALL_BYTES
from hybridlat.errors import HybridlatError
from hybridlat.graph.cells import kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.training.kernel_families import DRAWERS, KernelBuilder
from hybridlat.training.rare_kernel_families import OTHERS

MOST_FLOP = 3e9
MOST_BYTES = 96e6
FAMILIES: Mapping[str, float] = {
    "conv": 0.30, "pointwise conv": 0.26, "depthwise": 0.14, "grouped": 0.06, "pool": 0.06,
    "elementwise": 0.08, "concat": 0.03, "gemm": 0.05, "squeeze": 0.02,
}  # fmt: skip
"""Families of the kernels that CNNs mostly consist of, and how often each is drawn."""
_TWICE = ("activation", "channel product", "product", "small side", "resize")
RARER: Mapping[str, float] = {name: 1.0 + (name in _TWICE) for name in OTHERS}
"""Families of what else CNNs hold."""
EVERY: Mapping[str, float] = {
    **{name: 3 * weight for name, weight in FAMILIES.items()},
    **{name: weight / sum(RARER.values()) for name, weight in RARER.items()},
}
"""Both: three kernels of the common families for one of the rarer."""
_DRAWERS = {**DRAWERS, **OTHERS}
_LAYOUT_CHANGES = frozenset({"ReorderInput", "ReorderOutput"})

CONTEXTS: Mapping[str, float] = {"small": SMALL_BYTES, "medium": MEDIUM_BYTES, "": math.inf}
"""Contexts of cells, and the most bytes of weights that a network of each holds."""


@dataclass(frozen=True)
class Drawn:
    """A small network of a file, and the names of its nodes that make the kernel."""

    network: Network
    kernel: frozenset[str]
    family: str


def draw(seed: int, families: Mapping[str, float] = FAMILIES) -> Drawn:
    """One network around a random kernel; within the limits on FLOP and bytes."""
    rng = random.Random(f"hybridlat sweep {seed}")
    while True:
        family = rng.choices(list(families), list(families.values()))[0]
        builder = KernelBuilder()
        result = _DRAWERS[family](builder, rng)
        network = builder.finish(f"{family} {seed}", result)
        if _flop(network) <= MOST_FLOP and _bytes(network) <= MOST_BYTES:
            return Drawn(network, frozenset(builder.kernel), family)


def as_read(drawn: Drawn) -> Network:
    """The drawn network from a file's bytes: attributes are those that a file would give."""
    return onnx_io.read_network(onnx_io.to_onnx(drawn.network, None), name="sweep")


def sweep(
    lower: Callable[[Network], Lowered],
    count: int,
    seed: int = 0,
    most_draws: int | None = None,
    families: Mapping[str, float] = FAMILIES,
) -> Iterator[tuple[str, Network]]:
    """(signature hash, cell) of ``count`` distinct kernels as the engine runs them.

    ``lower`` is the backend's; ``families`` are FAMILIES or RARER, or some of either. What an
    engine refuses is passed over; the iterator ends early when ``most_draws`` (twenty per kernel
    wanted) have not given enough.
    """
    seen: set[str] = set()
    for draws in range(most_draws or 20 * count):
        if len(seen) >= count:
            return
        drawn = draw(seed * 1_000_003 + draws, families)
        network = as_read(drawn)
        try:
            lowered = lower(network)
        except HybridlatError:
            continue
        wanted = {i for i, node in enumerate(network.nodes) if node.name in drawn.kernel}
        for cell in kernels(lowered, network):
            if not wanted & set(cell.origins) and not _also(drawn.family, cell.network, draws):
                continue
            # The drawn network is small; the kernel stands for one of a network of any size.
            kernel = replace(cell.network, context=_context(cell.network, seed, draws))
            hash_ = sign(kernel).hash
            if hash_ not in seen and len(seen) < count:
                seen.add(hash_)
                yield hash_, kernel


def _also(family: str, kernel: Network, draw: int) -> bool:
    """Whether a kernel is wanted that the engine made of no single node of the kernel drawn.

    Of rare kernels it makes several, under names of its own; it adds changes of layout, of which
    one draw in eight is enough. The convolutions around them were drawn in their own families.
    """
    op = kernel.nodes[0].op
    return family in OTHERS and op != "Conv" and (op not in _LAYOUT_CHANGES or draw % 8 == 0)


def _context(kernel: Network, seed: int, draw: int) -> str:
    """The context that the kernel is measured in: of a network that can hold its weights."""
    rng = random.Random(f"hybridlat sweep context {seed} {draw}")
    possible = [name for name, most in CONTEXTS.items() if 2 * kernel.weight_bytes < most]
    return rng.choice(possible)


def _flop(network: Network) -> float:
    """FLOP of the convolutions and products, two per multiply-add."""
    return float(
        sum(
            2
            * network.types[n.outputs[0]].elements
            * math.prod(network.type_of(n.inputs[1]).shape[1:])
            for n in network.nodes
            if n.op in ("Conv", "Gemm", "MatMul", "ConvTranspose")
        )
    )


def _bytes(network: Network) -> float:
    return float(sum(t.bytes for t in network.types.values()) + network.weight_bytes)
