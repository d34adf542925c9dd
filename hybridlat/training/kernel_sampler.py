"""Random realistic kernels for a new target: what its model learns from beside whole networks.

Each is drawn as a small network of a file, mostly between two convolutions that hand it its input
and take its output in the engine's layout. The engine lowers that, and the cell that holds the
kernel is cut out and measured like any other. The same seed draws the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from hybridlat import onnx_io
from hybridlat.engines.base import Backend
from hybridlat.errors import HybridlatError
from hybridlat.estimate.partition import Partition, partition_network
from hybridlat.graph.cells import kernels
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.measurer import Measurer, MeasureRequest
from hybridlat.training.kernel_builder import SIDES, Entered, KernelBuilder

MOST_FLOP, MOST_BYTES = 3e9, 96e6
_LAYOUT_CHANGES = frozenset({"ReorderInput", "ReorderOutput"})
_ENTERED = Entered()


@dataclass(frozen=True)
class Family:
    """Kernels of one kind: ``body`` builds one from a builder, what ``start`` made, and choices.

    ``weight`` says how often the family is drawn, ``end`` how often a convolution reads the result.
    """

    weight: float
    body: Callable[..., str]
    choices: Sequence[Sequence[Any] | Mapping[Any, float]] = ()
    start: Callable[[KernelBuilder], str] = _ENTERED
    end: float = 1.0

    def draw(self, k: KernelBuilder) -> str:
        result = self.body(k, self.start(k), *map(k.choose, self.choices))
        return k.edge(result) if k.rng.random() < self.end else result


def _channels_last(k: KernelBuilder) -> str:
    x = Entered(low=16)(k)
    side = k.side(x)
    return k.node("Transpose", (x,), (1, side, side, k.width(x)), perm=(0, 2, 3, 1))


_STRIDES: Mapping[int, float] = {1: 0.75, 2: 0.25}
_REDUCTIONS = ("ReduceMean", "ReduceMean", "ReduceMax")
_ACTIVATIONS = ("LeakyRelu", "PRelu", "Elu", "Tanh", "Gelu", "Clip", "SiLU", "Erf")

COMMON: Mapping[str, Family] = {
    "conv": Family(
        0.28, lambda k, x, size, stride, dilation, same: k.followed(k.conv(
            x, k.width(x) if same else k.channels(k.side(x)), size, stride,
            dilation=dilation if stride == 1 else 1,
        )), ({3: 0.8, 5: 0.13, 7: 0.07}, _STRIDES, {1: 0.95, 2: 0.05}, {True: 0.45, False: 0.55}),
    ),
    "first conv": Family(
        0.02, lambda k, x, size: k.node("Relu", (k.conv(x, k.channels(112), size, 2),)),
        ({3: 0.8, 5: 0.13, 7: 0.07},),
        start=lambda k: k.image(3, k.choose((96, 112, 128, 160, 192, 224))),
    ),
    "pointwise conv": Family(
        0.26, lambda k, x, stride: k.followed(k.conv(x, k.channels(k.side(x)), 1, stride)),
        ({1: 0.9, 2: 0.1},),
    ),
    "depthwise": Family(
        0.14,
        lambda k, x, size, stride: k.followed(k.conv(x, c := k.width(x), size, stride, c)),
        ({3: 0.6, 5: 0.3, 7: 0.1}, _STRIDES), start=Entered(low=16),
    ),
    "grouped": Family(
        0.06, lambda k, x, size, stride: k.followed(k.conv(x, k.width(x), size, stride, k.parts)),
        ({1: 0.2, 3: 0.7, 5: 0.1}, {1: 0.8, 2: 0.2}),
        start=Entered(SIDES[:18], parts=(2, 3, 4, 8, 16, 32), widths=(4, 8, 16, 24, 32, 64)),
    ),
    "global pool": Family(0.02, KernelBuilder.means),
    "pool": Family(
        0.04, KernelBuilder.pooled,
        (("MaxPool", "AveragePool"), ((3, 2, 1), (2, 2, 0), (3, 1, 1), (3, 2, 0), (5, 1, 2))),
    ),
    "elementwise": Family(
        0.04, lambda k, x, op: k.node(op, (k.unfused(x),)),
        (("Sigmoid", "HardSigmoid", "HardSwish", "Relu"),),
    ),
    "sum": Family(0.02, KernelBuilder.summed, (("Add", "Mul"), (False, False, False, True))),
    # The end of squeeze and excitation: one number a channel.
    "gate": Family(0.01, lambda k, x: k.node("Mul", (
        y := k.unfused(x), k.aside(k.node("Sigmoid", (k.aside(k.means(y)),)))),
    )),
    "batch norm": Family(0.01, lambda k, x: k.node("Relu", (
        k.node("BatchNormalization", (k.unfused(x), *k.vectors(4, k.width(x)))),
    ))),
    "concat": Family(0.03, KernelBuilder.concat, ((2, 2, 3, 4),)),
    "gemm": Family(
        0.05, KernelBuilder.gemm,
        ((10, 100, 128, 256, 512, 1000, 1024, 1280, 2048, 4096), (True, False, False)),
        start=lambda k: k.input((1, k.choose((
            256, 384, 512, 576, 640, 768, 960, 1024, 1280, 1536, 2048, 4096,
        ))), "x"), end=0.0,
    ),
    "squeeze": Family(
        0.02, KernelBuilder.squeeze, ((4, 8, 16, 24), ("Sigmoid", "HardSigmoid")),
        start=Entered((7,), 16),
    ),
}  # fmt: skip
"""Families of the kernels that CNNs mostly consist of; the weights are shares."""

RARE: Mapping[str, Family] = {
    "response norm": Family(1, lambda k, x, size: k.node(
        "LRN", (x,), alpha=1e-4, beta=0.75, bias=1.0, size=size,
    ), ((3, 5, 5, 9),), end=0.5),
    "instance norm": Family(1, lambda k, x: k.node(
        "InstanceNormalization", (x, *k.vectors(2, k.width(x))), epsilon=1e-5,
    ), end=0.5),
    "layer norm": Family(1, lambda k, x: k.node(
        "LayerNormalization", (x, *k.vectors(2, k.shape(x)[-1])), axis=-1, epsilon=1e-6,
    ), start=_channels_last, end=0.0),
    "activation": Family(
        2, lambda k, x, kind, alone: k.activated(k.unfused(x) if alone else x, kind),
        (_ACTIVATIONS, {True: 0.6, False: 0.4}), end=0.5,
    ),
    "product": Family(
        2, KernelBuilder.product, ((1, 2, 4, 0.25), {True: 0.4, False: 0.6}),
        start=_channels_last, end=0.0,
    ),
    "transposed conv": Family(1, KernelBuilder.transposed_conv, (
        {"all": 2, "half": 2, 1: 1 / 3, 3: 1 / 3, 16: 1 / 3, 21: 1 / 3, 32: 1 / 3, 64: 1 / 3},
        ((2, 2, 0), (4, 2, 1), (3, 1, 1), (16, 8, 4), (8, 4, 2)),
    ), end=0.5),
    "softmax": Family(0.5, lambda k, x, flat: k.node("Softmax", (
        k.reshaped(x, (1, k.width(x), k.side(x) ** 2)) if flat else x,
    ), axis=-1 if flat else 1), ((True, False),), end=0.0),
    "class softmax": Family(
        0.5, lambda k, x: k.node("Softmax", (x,), axis=-1), end=0.0,
        start=lambda k: k.input((1, k.choose((2, 10, 100, 365, 1000, 21_841))), "x"),
    ),
    "split": Family(1, KernelBuilder.split_sum, start=Entered(parts=(2, 2, 3, 4)), end=0.0),
    "slice": Family(1, lambda k, x, ratio: k.node("Slice", (
        x, k.numbers(0), k.numbers(c := max(k.width(x) // ratio, 1)), k.numbers(1),
    ), k.like(x, c)), ((2, 4),), Entered(low=16), 0.5),
    "resize": Family(2, lambda k, x, factor, mode: k.node(
        "Resize", (x, "", k.constant((4,), (1.0, 1.0, factor, factor))),
        k.like(x, side=int(factor) * k.side(x)), mode=mode, nearest_mode="floor",
        coordinate_transformation_mode="asymmetric" if mode == "nearest" else "half_pixel",
    ), ((2.0, 2.0, 4.0), ("nearest", "linear")), Entered(SIDES[:19]), 0.5),
    "pad": Family(1, lambda k, x, wide, mode: k.node(
        "Pad", (x, k.numbers(0, 0, wide, wide, 0, 0, wide, wide)),
        k.like(x, side=k.side(x) + 2 * wide), mode=mode,
    ), ((1, 1, 2, 3, 4), ("constant", "reflect", "edge")), end=0.5),
    "depth to space": Family(1, lambda k, x, mode: k.node(
        "DepthToSpace", (x,), k.like(x, k.width(x) // k.parts, math.isqrt(k.parts) * k.side(x)),
        blocksize=math.isqrt(k.parts), mode=mode,
    ), (("CRD", "DCR"),), Entered(SIDES[4:], parts=(4, 4, 9, 16), widths=(1, 3, 16, 32, 64)), 0.0),
    "channel mean": Family(0.25, lambda k, x, op: k.node(
        op, (x,), k.like(x, 1), axes=(1,), keepdims=1,
    ), (_REDUCTIONS,), end=0.0),
    "spatial mean": Family(0.75, lambda k, x, op: k.node(
        op, (x,), k.like(x, side=1), axes=(2, 3), keepdims=1,
    ), (_REDUCTIONS,), end=0.0),
    "shuffle": Family(1, KernelBuilder.shuffle, start=Entered(parts=(2, 2, 3, 4, 8)), end=0.5),
    "flatten": Family(1, lambda k, x: k.node(
        "Flatten", (x,), (1, math.prod(k.shape(x))), axis=1,
    ), start=Entered((1, 1, 2, 4, 6, 7, 8), 16), end=0.0),
    "layout": Family(
        1, lambda k, x: k.conv(x, k.channels(k.side(x)), 1), end=0.0,
        start=lambda k: k.image(k.channels(side := k.choose(SIDES)), side),
    ),
    # One number a channel, or one for all, times a tensor or added to it.
    "channel product": Family(2, lambda k, x, op, each: k.node(op, (
        k.unfused(x) if k.side(x) > 2 else x, k.constant((k.width(x), 1, 1) if each else (1,)),
    )), (("Mul", "Add", "Sub", "Div"), (True, True, False)), Entered((1, 1, *SIDES)), 0.5),
    # The last layers, squeezed features.
    "small side": Family(2, lambda k, x, size, kind: k.activated(
        k.conv(x, k.channels(14, 16), 1 if k.side(x) < 3 else size), kind,
    ), ((1, 3), ("Relu", "Sigmoid", "HardSigmoid", "HardSwish", "")),
        Entered((1, 1, 2, 3, 4, 5, 6), 16), 0.5),
}  # fmt: skip
"""Families of what else CNNs hold."""

EVERY: Mapping[str, Family] = {
    name: replace(family, weight=share * family.weight / sum(f.weight for f in table.values()))
    for table, share in ((COMMON, 0.75), (RARE, 0.25))
    for name, family in table.items()
}
"""Both: three kernels of the common families for one of the rarer."""


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


def _draws(seed: int, families: Mapping[str, Family], count: int) -> Iterator[tuple[int, Drawn]]:
    """Networks by number, attributes as a file would give them; the seed decides them all."""
    for place in range(count):
        drawn = draw(seed * 1_000_003 + place, families)
        file = onnx_io.to_onnx(drawn.network, None)
        yield place, replace(drawn, network=onnx_io.read_network(file, name="sweep"))


def sweep(
    backend: Backend, count: int, seed: int = 0, families: Mapping[str, Family] = COMMON
) -> Iterator[tuple[str, Network]]:
    """(signature hash, cell) of ``count`` distinct kernels as the engine runs them.

    What an engine refuses is passed over; it ends early where twenty draws a kernel do not do.
    """
    seen: set[str] = set()
    for place, drawn in _draws(seed, families, 20 * count):
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
    for place, drawn in _draws(seed, EVERY, count):
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

    Of rare kernels it makes several, under names of its own; it adds changes of layout, of which
    one draw in eight is enough. The convolutions around them were drawn in their own families.
    """
    op = kernel.nodes[0].op
    return family in RARE and op != "Conv" and (op not in _LAYOUT_CHANGES or draw % 8 == 0)


def _flop(network: Network) -> float:
    products = [n for n in network.nodes if n.op in ("Conv", "Gemm", "MatMul", "ConvTranspose")]
    return 2.0 * sum(
        network.types[n.outputs[0]].elements * math.prod(network.type_of(n.inputs[1]).shape[1:])
        for n in products
    )
