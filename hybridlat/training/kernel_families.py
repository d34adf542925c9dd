"""The kernels of a sweep: a table of families, each drawn as a small network of a file.

A family enters a tensor, makes choices and builds its operators around them. Most kernels stand
between two convolutions, as in a network; some leave the engine's blocked layout, and then the
change of layout is a kernel of the sweep as well.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hybridlat.training import attention_kernels as attention
from hybridlat.training.kernel_builder import SIDES, Entered, KernelBuilder

ANY_TENSOR = Entered()


@dataclass(frozen=True)
class Family:
    """Kernels of one kind: ``body`` builds one from a builder, what ``start`` made, and choices.

    ``weight`` says how often the family is drawn, ``end`` how often a convolution reads the result.
    """

    weight: float
    body: Callable[..., str]
    choices: Sequence[Sequence[Any] | Mapping[Any, float]] = ()
    start: Callable[[KernelBuilder], str] = ANY_TENSOR
    end: float = 1.0

    def draw(self, k: KernelBuilder) -> str:
        result = self.body(k, self.start(k), *map(k.choose, self.choices))
        return k.edge(result) if k.rng.random() < self.end else result


def _channels_last(k: KernelBuilder) -> str:
    return k.transposed(Entered(low=16)(k), 0, 2, 3, 1)


_STRIDES: Mapping[int, float] = {1: 0.75, 2: 0.25}
_REDUCTIONS = ("ReduceMean", "ReduceMean", "ReduceMax")
_ACTIVATIONS = ("LeakyRelu", "PRelu", "Elu", "Tanh", "Gelu", "Clip", "SiLU", "Erf")
_FUNCTIONS = ("Pow", "Pow", "Exp", "Sqrt", "Abs", "Neg", "Softplus", "Log", "Reciprocal")

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
    "layer norm": Family(1, KernelBuilder.row_norm, start=_channels_last, end=0.0),
    "activation": Family(
        2, lambda k, x, kind, alone: k.activated(k.unfused(x) if alone else x, kind),
        (_ACTIVATIONS, {True: 0.6, False: 0.4}), end=0.5,
    ),
    "function": Family(
        2, lambda k, x, kind: k.activated(k.unfused(x), kind), (_FUNCTIONS,), end=0.0,
    ),
    # Several filters a channel, or taps apart: other code than a plain depthwise convolution's.
    "odd depthwise": Family(1, lambda k, x, size, stride, filters: k.conv(
        x, filters * k.width(x), size, stride, k.width(x), dilation=2 if filters == 1 else 1,
    ), ({3: 0.6, 5: 0.2, 7: 0.2}, {1: 0.5, 2: 0.5}, (1, 2, 2, 4)), Entered(low=16), 0.5),
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
    "resize": Family(2, KernelBuilder.resized, (
        (2.0, 2.0, 4.0), ("nearest", "linear"),
    ), Entered(SIDES[:19]), 0.5),
    # Of images and position embeddings, to any size.
    "fitted resize": Family(2, KernelBuilder.resized, (
        (0.5, 0.9375, 1.14, 1.5, 2.0), ("cubic", "linear", "nearest"),
    ), lambda k: k.image(k.choose((1, 3, 3, 64)), k.choose(SIDES)), 0.0),
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

_SCALED = ("query", "scores", "")  # what is divided by the root of a head's channels

ATTENTION: Mapping[str, Family] = {
    "token product": Family(3, attention.token_product, (
        (1, 2, 3, 4, 4, 0.25), {True: 0.7, False: 0.3}, {"": 0.5, "Gelu": 0.25, "Add": 0.25},
    ), attention.tokens, 0.0),
    "map product": Family(
        1, attention.map_product, ((1, 2, 3, 0.5),), Entered(SIDES[:16], 16), 0.0,
    ),
    "packed attention": Family(3, attention.packed_attention, (
        _SCALED, {True: 0.2, False: 0.8}, {True: 0.15, False: 0.85},
    ), attention.tokens, 0.0),
    "attention": Family(2, attention.attention, (
        _SCALED, {True: 0.2, False: 0.8}, {1: 0.7, 4: 0.15, 16: 0.15},
    ), attention.tokens, 0.0),
    "map attention": Family(1, attention.map_attention, (_SCALED,), Entered(
        SIDES[:11], parts=(1, 2, 4, 8), widths=(16, 32, 64),
    ), 0.5),
    "token norm": Family(1, KernelBuilder.row_norm, start=attention.tokens, end=0.0),
    "token reduction": Family(
        1, attention.reduced, ((*_REDUCTIONS, "ReduceL2"), (1, -1)), attention.tokens, 0.0,
    ),
    "token scale": Family(
        1, attention.scaled, (("Mul", "Add", "Div"), (True, False)), attention.tokens, 0.0,
    ),
    "token turn": Family(
        1, lambda k, x: k.transposed(x, 0, 2, 1), start=attention.tokens, end=0.0,
    ),
    "class token": Family(0.5, attention.with_class, start=attention.tokens, end=0.0),
    "channels first": Family(
        1, lambda k, x: k.transposed(x, 0, 3, 1, 2), start=attention.map_last, end=0.5,
    ),
    "windows": Family(0.5, attention.windows, start=attention.map_last, end=0.0),
}  # fmt: skip
"""Families of what transformers hold beside the kernels of CNNs."""

EVERY: Mapping[str, Family] = {
    name: replace(family, weight=share * family.weight / sum(f.weight for f in table.values()))
    for table, share in ((COMMON, 0.7), (RARE, 0.2), (ATTENTION, 0.1))
    for name, family in table.items()
}
"""All, seven kernels of the common families for two of the rarer and one of transformers."""
