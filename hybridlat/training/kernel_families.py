"""The kernels of a sweep: each family drawn as a small network of a file."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hybridlat.graph.builder import NetworkBuilder
from hybridlat.graph.network import AttributeValue, Network

SIDES = (
    7, 8, 10, 12, 14, 16, 19, 20, 24, 28, 32, 35, 38, 40, 48, 56, 64, 75, 80, 96, 112, 128, 150,
    160, 192, 224,
)  # fmt: skip
_EDGE_CHANNELS = 16


@dataclass
class KernelBuilder(NetworkBuilder):
    """A network of a file whose ``kernel`` are the operators that a family is about."""

    kernel: set[str] = field(default_factory=set)

    def image(self, channels: int, side: int) -> str:
        return self.input((1, channels, side, side), "x")

    def vector(self, size: int) -> str:
        return self.input((1, size), "x")

    def split(self, source: str, parts: int) -> list[str]:
        """The channels dealt out in equal parts."""
        batch, channels, *sides = self.shape(source)
        shape = (batch, channels // parts, *sides)
        outputs = self.op_of_many("Split", (source,), [shape] * parts, 11, {"axis": 1})
        self.kernel.add(self.nodes[-1].name)
        return outputs

    def node(
        self,
        op: str,
        version: int,
        inputs: tuple[str, ...],
        shape: tuple[int, ...],
        *,
        wanted: bool = True,
        **attributes: AttributeValue,
    ) -> str:
        out = self.op(op, inputs, shape, version, attributes)
        if wanted:
            self.kernel.add(self.nodes[-1].name)
        return out

    def conv(
        self,
        source: str,
        channels: int,
        kernel: int = 3,
        stride: int = 1,
        group: int = 1,
        *,
        dilation: int = 1,
        bias: bool = True,
        wanted: bool = True,
    ) -> str:
        """A convolution; one that is not ``wanted`` only makes what the family reads."""
        out = super().conv(source, channels, kernel, stride, group, dilation=dilation, bias=bias)
        if wanted:
            self.kernel.add(self.nodes[-1].name)
        return out

    def finish(self, label: str, result: str) -> Network:
        self.name = label
        return self.network(result)


def channels_at(rng: random.Random, side: int, low: int = 8) -> int:
    """Channels as CNNs have them at a side: log-uniform, up to about 30,000 / side."""
    high = max(min(30_000 / side, 2048), 2 * low)
    value = math.exp(rng.uniform(math.log(low), math.log(high)))
    step = rng.choices((32, 16, 8, 4, 1), (0.35, 0.3, 0.2, 0.1, 0.05))[0]
    return max(round(value / step) * step, low if step < low else step)


def entered(builder: KernelBuilder, channels: int, side: int) -> str:
    """An image of so many channels, made by a convolution: it has the engine's layout."""
    return builder.conv(builder.image(_EDGE_CHANNELS, side), channels, 1, wanted=False)


def left(builder: KernelBuilder, tensor: str) -> str:
    """The end: a convolution that reads the result in the engine's layout."""
    return builder.conv(tensor, _EDGE_CHANNELS, 1, wanted=False)


def _activated(builder: KernelBuilder, rng: random.Random, tensor: str) -> str:
    """What follows a convolution in CNNs, as often as it does."""
    shape = builder.shape(tensor)
    kind = rng.choices(
        ("relu", "none", "clip", "add", "add relu", "silu", "hardswish", "sigmoid"),
        (0.45, 0.16, 0.1, 0.06, 0.1, 0.06, 0.05, 0.02),
    )[0]
    if kind.startswith("add"):
        other = builder.conv(
            builder.conv("x", _EDGE_CHANNELS, 1, wanted=False), shape[1], 1, wanted=False
        )
        if builder.shape(other) == shape:
            tensor = builder.node("Add", 14, (tensor, other), shape)
    if "relu" in kind:
        return builder.node("Relu", 14, (tensor,), shape)
    if kind == "clip":
        bounds = builder.constant((), (0.0,)), builder.constant((), (6.0,))
        return builder.node("Clip", 13, (tensor, *bounds), shape)
    if kind == "hardswish":
        return builder.node("HardSwish", 14, (tensor,), shape)
    if kind in ("silu", "sigmoid"):
        gate = builder.node("Sigmoid", 13, (tensor,), shape)
        return builder.node("Mul", 14, (tensor, gate), shape) if kind == "silu" else gate
    return tensor


def _conv(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice(SIDES)
    kernel = rng.choices((3, 5, 7), (0.8, 0.13, 0.07))[0]
    stride = rng.choices((1, 2), (0.75, 0.25))[0]
    dilation = rng.choices((1, 2), (0.95, 0.05))[0] if stride == 1 else 1
    if rng.random() < 0.06:  # the first layer of a network
        source = builder.image(3, rng.choice((96, 112, 128, 160, 192, 224)))
        result = builder.conv(source, channels_at(rng, 112), kernel, 2)
        shape = builder.shape(result)
        return left(builder, builder.node("Relu", 14, (result,), shape))
    c_in = channels_at(rng, side)
    c_out = c_in if rng.random() < 0.45 else channels_at(rng, side)
    source = entered(builder, c_in, side)
    result = builder.conv(source, c_out, kernel, stride, dilation=dilation)
    return left(builder, _activated(builder, rng, result))


def _pointwise(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice(SIDES)
    source = entered(builder, channels_at(rng, side), side)
    stride = rng.choices((1, 2), (0.9, 0.1))[0]
    result = builder.conv(source, channels_at(rng, side), 1, stride)
    return left(builder, _activated(builder, rng, result))


def _depthwise(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice(SIDES)
    channels = channels_at(rng, side, 16)
    kernel = rng.choices((3, 5, 7), (0.6, 0.3, 0.1))[0]
    stride = rng.choices((1, 2), (0.75, 0.25))[0]
    source = entered(builder, channels, side)
    result = builder.conv(source, channels, kernel, stride, channels)
    return left(builder, _activated(builder, rng, result))


def _grouped(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice(SIDES[:18])
    groups = rng.choice((2, 3, 4, 8, 16, 32))
    width = rng.choice((4, 8, 16, 24, 32, 64))
    channels = groups * width
    source = entered(builder, channels, side)
    kernel = rng.choices((1, 3, 5), (0.2, 0.7, 0.1))[0]
    result = builder.conv(source, channels, kernel, rng.choices((1, 2), (0.8, 0.2))[0], groups)
    return left(builder, _activated(builder, rng, result))


def _pool(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice(SIDES)
    channels = channels_at(rng, side)
    source = entered(builder, channels, side)
    if rng.random() < 0.35:
        pooled = builder.node("GlobalAveragePool", 1, (source,), (1, channels, 1, 1))
        return left(builder, pooled)
    kernel, stride, pad = rng.choice(((3, 2, 1), (2, 2, 0), (3, 1, 1), (3, 2, 0), (5, 1, 2)))
    after = (side + 2 * pad - kernel) // stride + 1
    op, version = rng.choice((("MaxPool", 12), ("AveragePool", 11)))
    result = builder.node(
        op, version, (source,), (1, channels, after, after),
        kernel_shape=(kernel, kernel), pads=(pad,) * 4, strides=(stride, stride),
    )  # fmt: skip
    return left(builder, result)


def _elementwise(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice(SIDES)
    channels = channels_at(rng, side)
    source = entered(builder, channels, side)
    shape = builder.shape(source)
    kind = rng.choice(
        ("add", "mul", "scale", "sigmoid", "hardsigmoid", "hardswish", "norm", "relu")
    )
    if kind in ("add", "mul"):
        # A pool between, so that the operator cannot be fused into the convolution before it.
        first = unfused(builder, source)
        second = unfused(builder, builder.conv("x", channels, 1, wanted=False))
        result = builder.node(kind.capitalize(), 14, (first, second), shape)
        if kind == "add" and rng.random() < 0.5:
            result = builder.node("Relu", 14, (result,), shape)
        return left(builder, result)
    first = unfused(builder, source)
    if kind == "scale":  # squeeze and excitation: one number a channel
        pooled = builder.node("GlobalAveragePool", 1, (first,), (1, channels, 1, 1), wanted=False)
        gate = builder.node("Sigmoid", 13, (pooled,), (1, channels, 1, 1), wanted=False)
        return left(builder, builder.node("Mul", 14, (first, gate), shape))
    if kind == "norm":
        terms = tuple(builder.constant((channels,)) for _ in range(4))
        result = builder.node("BatchNormalization", 15, (first, *terms), shape)
        return left(builder, builder.node("Relu", 14, (result,), shape))
    op, version = {
        "sigmoid": ("Sigmoid", 13), "hardsigmoid": ("HardSigmoid", 6),
        "hardswish": ("HardSwish", 14), "relu": ("Relu", 14),
    }[kind]  # fmt: skip
    return left(builder, builder.node(op, version, (first,), shape))


def unfused(builder: KernelBuilder, tensor: str) -> str:
    """The tensor behind a pool that changes no shape: nothing is fused across it."""
    return builder.node(
        "MaxPool", 12, (tensor,), builder.shape(tensor), wanted=False,
        kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(1, 1),
    )  # fmt: skip


def _concat(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice(SIDES)
    parts: list[str] = []
    for _ in range(rng.choice((2, 2, 3, 4))):
        channels = channels_at(rng, side)
        first = builder.conv(
            "x" if parts else builder.image(_EDGE_CHANNELS, side), channels, 1, wanted=False
        )
        parts.append(first)
    total = sum(builder.shape(p)[1] for p in parts)
    joined = builder.node("Concat", 13, tuple(parts), (1, total, side, side), axis=1)
    return left(builder, joined)


def _gemm(builder: KernelBuilder, rng: random.Random) -> str:
    c_in = rng.choice((256, 384, 512, 576, 640, 768, 960, 1024, 1280, 1536, 2048, 4096))
    c_out = rng.choice((10, 100, 128, 256, 512, 1000, 1024, 1280, 2048, 4096))
    weight, bias = builder.constant((c_out, c_in)), builder.constant((c_out,))
    result = builder.node("Gemm", 13, (builder.vector(c_in), weight, bias), (1, c_out), transB=1)
    if rng.random() < 0.4:
        result = builder.node("Relu", 14, (result,), (1, c_out))
    return result


def _squeeze(builder: KernelBuilder, rng: random.Random) -> str:
    """The two convolutions of squeeze and excitation, on one position."""
    channels = channels_at(rng, 14, 16)
    source = entered(builder, channels, 7)
    pooled = builder.node("GlobalAveragePool", 1, (source,), (1, channels, 1, 1), wanted=False)
    inner = max(8, channels // rng.choice((4, 8, 16, 24)))
    first = builder.conv(pooled, inner, 1)
    hidden = builder.node("Relu", 14, (first,), builder.shape(first))
    second = builder.conv(hidden, channels, 1)
    op, version = rng.choice((("Sigmoid", 13), ("HardSigmoid", 6)))
    gate = builder.node(op, version, (second,), builder.shape(second))
    return left(builder, builder.node("Mul", 14, (source, gate), builder.shape(source)))


DRAWERS: Mapping[str, Callable[[KernelBuilder, random.Random], str]] = {
    "conv": _conv, "pointwise conv": _pointwise, "depthwise": _depthwise, "grouped": _grouped,
    "pool": _pool, "elementwise": _elementwise, "concat": _concat, "gemm": _gemm,
    "squeeze": _squeeze,
}  # fmt: skip
