"""Random realistic kernels for a new target: what its model learns from beside whole networks.

Each is drawn as a small network of a file, mostly between two convolutions that hand it its input
and take its output in the engine's layout. The engine lowers that, and the cell that holds the
kernel is cut out and measured like any other. The same seed draws the same.
"""

import math
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from hybridlat import onnx_io
from hybridlat.engines.base import Backend
from hybridlat.errors import HybridlatError
from hybridlat.estimate.partition import Partition, partition_network
from hybridlat.graph.cells import kernels
from hybridlat.graph.network import Network, Node
from hybridlat.graph.signature import sign
from hybridlat.measuring.measurer import Measurer, MeasureRequest
from hybridlat.training.kernel_builder import KernelBuilder
from hybridlat.training.kernel_families import ATTENTION, COMMON, EVERY, RARE, Family
from hybridlat.training.quantise import as_target_takes

MOST_FLOP, MOST_BYTES = 3e9, 96e6
_REARRANGED = frozenset({"ReorderInput", "ReorderOutput", "Reshape"})


@dataclass(frozen=True)
class Drawn:
    """A small network of a file, and the names of its nodes that make the kernel."""

    network: Network
    kernel: frozenset[str]
    family: str


def draw(seed: int, families: Mapping[str, Family] = COMMON) -> Drawn:
    """One network around a random kernel; within the limits on FLOP and bytes."""
    rng, weights = random.Random(f"hybridlat sweep {seed}"), [f.weight for f in families.values()]
    while True:
        [name] = rng.choices(list(families), weights)
        builder = KernelBuilder(f"{name} {seed}", rng=rng)
        network = builder.network(families[name].draw(builder))
        moved_bytes = sum(t.bytes for t in network.types.values()) + network.weight_bytes
        if _flop(network) <= MOST_FLOP and moved_bytes <= MOST_BYTES:
            kernel = {node.name for node in network.nodes} - builder.around
            return Drawn(network, frozenset(kernel), name)


def _draws(
    backend: Backend, seed: int, families: Mapping[str, Family], count: int
) -> Iterator[tuple[int, Drawn]]:
    """Networks by number, attributes as a file would give them; the seed decides them all."""
    for place in range(count):
        drawn = draw(seed * 1_000_003 + place, families)
        network = onnx_io.read_network(onnx_io.to_onnx(drawn.network, None), name="sweep")
        # Most files have the activations without a sign, which CPUs multiply quickest.
        dtype = "uint8" if place % 3 else "int8"
        yield place, replace(drawn, network=as_target_takes(network, backend.target, dtype))


def sweep(
    backend: Backend, count: int, seed: int = 0, families: Mapping[str, Family] = COMMON
) -> Iterator[tuple[str, Network]]:
    """(signature hash, cell) of ``count`` distinct kernels as the engine runs them.

    What an engine refuses is passed over; it ends early where twenty draws a kernel do not do.
    """
    seen: set[str] = set()
    for place, drawn in _draws(backend, seed, families, 20 * count):
        if len(seen) >= count:
            return
        try:
            lowered = backend.lower(drawn.network)
        except HybridlatError:
            continue
        places = {i for i, node in enumerate(drawn.network.nodes) if node.name in drawn.kernel}
        for cell in kernels(lowered, drawn.network):
            if not places & set(cell.origins) and not _also(drawn.family, cell.network, place):
                continue
            # The drawn network is small; the kernel stands for one of a network of any size.
            rng = random.Random(f"hybridlat sweep context {seed} {place}")
            least = 2 * cell.network.weight_bytes  # a network that can hold them
            possible = [name for name, most in backend.contexts.items() if least < most]
            kernel = replace(cell.network, context=rng.choice(possible))
            hash_ = sign(kernel).hash
            if hash_ not in seen and len(seen) < count:
                seen.add(hash_)
                yield hash_, kernel


def random_kernels(
    measurer: Measurer, count: int, seed: int
) -> Iterator[tuple[MeasureRequest, Mapping[str, str]]]:
    """``count`` kernels to measure, each inside a small network where it must be, in the order
    drawn; and the signature texts of their cells."""
    backend = measurer.backend
    if not measurer.needs_network:
        for hash_, kernel in sweep(backend, count, seed, EVERY):
            labels = {"sweep": str(seed)}
            request = MeasureRequest("kernel", kernel, {hash_: kernel}, labels=labels)
            yield request, {hash_: sign(kernel).text}
        return
    for place, drawn in _draws(backend, seed, EVERY, count):
        with suppress(HybridlatError):  # what an engine refuses is passed over, as in every sweep
            partition = partition_of(drawn.network, backend)
            if partition.uses:
                cells = partition.cells()
                yield MeasureRequest(f"kernel {place}", drawn.network, cells), partition.texts


def partition_of(network: Network, backend: Backend) -> Partition:
    """The cells of a network as an engine runs it."""
    left_out = (name for name, _ in network.left_out)
    names = (*(node.name for node in network.nodes), *network.folded, *left_out)
    return partition_network(network, backend.lower(network), names)


def _also(family: str, kernel: Network, draw: int) -> bool:
    """Whether a kernel is wanted that the engine made of no single node of the kernel drawn.

    Of rare kernels it makes several, under names of its own; it adds changes of layout and shape,
    of which one draw in eight is enough. The convolutions around them were drawn in their own
    families.
    """
    op = kernel.nodes[0].op
    is_rare = family in RARE or family in ATTENTION
    return is_rare and op != "Conv" and (op not in _REARRANGED or draw % 8 == 0)


def _flop(network: Network) -> float:
    def terms(node: Node) -> int:
        left, right = (network.type_of(name).shape for name in node.inputs[:2])
        return left[-1] if node.op == "MatMul" else math.prod(right[1:])

    products = [n for n in network.nodes if n.op in ("Conv", "Gemm", "MatMul", "ConvTranspose")]
    return 2.0 * sum(network.types[n.outputs[0]].elements * terms(n) for n in products)
