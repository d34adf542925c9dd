"""The rarer kernels of a sweep: what CNNs hold beside convolutions, pools and sums.

Each stands between two convolutions, as in a network; some leave the engine's blocked layout, and
then the change of layout is a kernel of the sweep as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from hybridlat.training.kernel_families import (
    SIDES,
    KernelBuilder,
    channels_at,
    entered,
    left,
    unfused,
)


def _start(builder: KernelBuilder, rng: random.Random, low: int = 8) -> tuple[str, int, int]:
    """A tensor in the engine's layout, its channels and its side."""
    side = rng.choice(SIDES)
    channels = channels_at(rng, side, low)
    return entered(builder, channels, side), channels, side


def _end(builder: KernelBuilder, rng: random.Random, tensor: str) -> str:
    """Half of them hand on to a convolution, half are the end of the network."""
    return left(builder, tensor) if rng.random() < 0.5 else tensor


def _response_norm(builder: KernelBuilder, rng: random.Random) -> str:
    source, _, _ = _start(builder, rng)
    result = builder.node(
        "LRN", 13, (source,), builder.shape(source), alpha=1e-4, beta=0.75, bias=1.0,
        size=rng.choice((3, 5, 5, 9)),
    )  # fmt: skip
    return _end(builder, rng, result)


def _instance_norm(builder: KernelBuilder, rng: random.Random) -> str:
    source, channels, _ = _start(builder, rng)
    terms = builder.constant((channels,)), builder.constant((channels,))
    shape = builder.shape(source)
    result = builder.node("InstanceNormalization", 6, (source, *terms), shape, epsilon=1e-5)
    return _end(builder, rng, result)


def _activation(builder: KernelBuilder, rng: random.Random) -> str:
    """Activations that engines do not always fuse."""
    source, channels, _ = _start(builder, rng)
    shape = builder.shape(source)
    op = rng.choice(("LeakyRelu", "PRelu", "Elu", "Tanh", "Gelu", "Clip", "QuickGelu", "Erf"))
    source = unfused(builder, source) if rng.random() < 0.6 else source
    if op == "PRelu":
        slope = builder.constant((channels, 1, 1))
        return _end(builder, rng, builder.node(op, 16, (source, slope), shape))
    if op == "Clip":
        bounds = builder.constant((), (0.0,)), builder.constant((), (6.0,))
        return _end(builder, rng, builder.node(op, 13, (source, *bounds), shape))
    if op == "Gelu":
        return _end(builder, rng, _gelu(builder, source, shape))
    if op == "QuickGelu":
        gate = builder.node("Sigmoid", 13, (source,), shape)
        return _end(builder, rng, builder.node("Mul", 14, (source, gate), shape))
    if op in ("Tanh", "Erf"):
        return _end(builder, rng, builder.node(op, 13, (source,), shape))
    version, alpha = (16, 0.1) if op == "LeakyRelu" else (6, 1.0)
    return _end(builder, rng, builder.node(op, version, (source,), shape, alpha=alpha))


def _gelu(builder: KernelBuilder, source: str, shape: tuple[int, ...]) -> str:
    """x·(1 + erf(x/√2))/2, as exporters write it."""
    root = builder.constant((), (1.4142135,))
    one = builder.constant((), (1.0,))
    half = builder.constant((), (0.5,))
    inner = builder.node("Div", 14, (source, root), shape)
    inner = builder.node("Erf", 13, (inner,), shape)
    inner = builder.node("Add", 14, (inner, one), shape)
    inner = builder.node("Mul", 14, (source, inner), shape)
    return builder.node("Mul", 14, (inner, half), shape)


def _channels_last(builder: KernelBuilder, rng: random.Random) -> tuple[str, int, int]:
    source, channels, side = _start(builder, rng, 16)
    turned = builder.node(
        "Transpose", 13, (source,), (1, side, side, channels), perm=(0, 2, 3, 1)
    )  # fmt: skip
    return turned, channels, side


def _layer_norm(builder: KernelBuilder, rng: random.Random) -> str:
    source, channels, _ = _channels_last(builder, rng)
    terms = builder.constant((channels,)), builder.constant((channels,))
    return builder.node(
        "LayerNormalization", 17, (source, *terms), builder.shape(source), axis=-1, epsilon=1e-6
    )


def _product(builder: KernelBuilder, rng: random.Random) -> str:
    """A matrix product over the channels of every position, often with a Gelu behind."""
    source, channels, side = _channels_last(builder, rng)
    outer = rng.choice((channels, 2 * channels, 4 * channels, max(channels // 4, 8)))
    weight, bias = builder.constant((channels, outer)), builder.constant((outer,))
    shape = (1, side, side, outer)
    result = builder.node("MatMul", 13, (source, weight), shape)
    result = builder.node("Add", 14, (result, bias), shape)
    return _gelu(builder, result, shape) if rng.random() < 0.4 else result


def _transposed_conv(builder: KernelBuilder, rng: random.Random) -> str:
    source, channels, side = _start(builder, rng)
    c_out = rng.choice((channels, max(channels // 2, 8), rng.choice((1, 3, 16, 21, 32, 64))))
    kernel, stride, pad = rng.choice(((2, 2, 0), (4, 2, 1), (3, 1, 1), (16, 8, 4), (8, 4, 2)))
    after = (side - 1) * stride - 2 * pad + kernel
    weight, bias = builder.constant((channels, c_out, kernel, kernel)), builder.constant((c_out,))
    result = builder.node(
        "ConvTranspose", 11, (source, weight, bias), (1, c_out, after, after),
        kernel_shape=(kernel, kernel), pads=(pad,) * 4, strides=(stride, stride),
    )  # fmt: skip
    return _end(builder, rng, result)


def _softmax(builder: KernelBuilder, rng: random.Random) -> str:
    if rng.random() < 0.5:  # over the classes, at the end
        classes = rng.choice((2, 10, 100, 365, 1000, 21_841))
        return builder.node("Softmax", 13, (builder.vector(classes),), (1, classes), axis=-1)
    source, channels, side = _start(builder, rng)
    if rng.random() < 0.5:
        return builder.node("Softmax", 13, (source,), builder.shape(source), axis=1)
    shape = (1, channels, side * side)
    flat = builder.node("Reshape", 14, (source, builder.numbers(*shape)), shape)
    return builder.node("Softmax", 13, (flat,), shape, axis=-1)


def _split(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice(SIDES)
    parts = rng.choice((2, 2, 3, 4))
    width = channels_at(rng, side)
    source = entered(builder, parts * width, side)
    first, second = (left(builder, name) for name in builder.split(source, parts)[:2])
    return builder.node("Add", 14, (first, second), builder.shape(first), wanted=False)


def _slice(builder: KernelBuilder, rng: random.Random) -> str:
    source, channels, side = _start(builder, rng, 16)
    kept = max(channels // rng.choice((2, 4)), 1)

    bounds = (builder.numbers(0), builder.numbers(kept), builder.numbers(1))
    result = builder.node("Slice", 13, (source, *bounds), (1, kept, side, side))
    return _end(builder, rng, result)


def _resize(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice([s for s in SIDES if s <= 96])
    channels = channels_at(rng, side)
    source = entered(builder, channels, side)
    factor = rng.choice((2, 2, 4))
    scales = builder.constant((4,), (1.0, 1.0, float(factor), float(factor)))
    mode = rng.choice(("nearest", "linear"))
    shape = (1, channels, side * factor, side * factor)
    how = "asymmetric" if mode == "nearest" else "half_pixel"
    result = builder.node(
        "Resize", 13, (source, "", scales), shape, mode=mode, nearest_mode="floor",
        coordinate_transformation_mode=how,
    )  # fmt: skip
    return _end(builder, rng, result)


def _pad(builder: KernelBuilder, rng: random.Random) -> str:
    source, channels, side = _start(builder, rng)
    wide = rng.choice((1, 1, 2, 3, 4))
    if wide >= side:
        wide = 1
    pads = builder.numbers(0, 0, wide, wide, 0, 0, wide, wide)
    after = side + 2 * wide
    mode = rng.choice(("constant", "reflect", "edge"))
    result = builder.node("Pad", 13, (source, pads), (1, channels, after, after), mode=mode)
    return _end(builder, rng, result)


def _depth_to_space(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice([s for s in SIDES if s >= 14])
    block = rng.choice((2, 2, 3, 4))
    c_out = rng.choice((1, 3, 16, 32, 64))
    source = entered(builder, c_out * block * block, side)
    return builder.node(
        "DepthToSpace", 13, (source,), (1, c_out, side * block, side * block), blocksize=block,
        mode=rng.choice(("CRD", "DCR")),
    )  # fmt: skip


def _reduce(builder: KernelBuilder, rng: random.Random) -> str:
    source, channels, side = _start(builder, rng)
    op, version = rng.choice((("ReduceMean", 13), ("ReduceMean", 13), ("ReduceMax", 13)))
    if rng.random() < 0.75:
        return builder.node(op, version, (source,), (1, channels, 1, 1), axes=(2, 3), keepdims=1)
    return builder.node(op, version, (source,), (1, 1, side, side), axes=(1,), keepdims=1)


def _shuffle(builder: KernelBuilder, rng: random.Random) -> str:
    """Reshape, transpose, reshape: channels are dealt out over groups."""
    side = rng.choice(SIDES)
    groups = rng.choice((2, 2, 3, 4, 8))
    width = channels_at(rng, side)
    channels = groups * width
    source = entered(builder, channels, side)
    dealt = (1, groups, width, side, side)
    result = builder.node("Reshape", 14, (source, builder.numbers(*dealt)), dealt)
    result = builder.node(
        "Transpose", 13, (result,), (1, width, groups, side, side), perm=(0, 2, 1, 3, 4)
    )
    whole = (1, channels, side, side)
    result = builder.node("Reshape", 14, (result, builder.numbers(*whole)), whole)
    return _end(builder, rng, result)


def _flatten(builder: KernelBuilder, rng: random.Random) -> str:
    side = rng.choice((1, 1, 2, 4, 6, 7, 8))
    channels = channels_at(rng, 14, 16)
    source = entered(builder, channels, side)
    return builder.node("Flatten", 13, (source,), (1, channels * side * side), axis=1)


def _layout(builder: KernelBuilder, rng: random.Random) -> str:
    """Into the engine's layout and out of it: an image of any size goes through a convolution."""
    side = rng.choice(SIDES)
    channels = channels_at(rng, side)
    source = builder.image(channels, side)
    return builder.conv(source, channels_at(rng, side), 1)


def _channel_product(builder: KernelBuilder, rng: random.Random) -> str:
    """One number a channel, or one for all, times a tensor or added to it; on sides from 1."""
    side = rng.choice((1, 1, *SIDES))
    channels = channels_at(rng, max(side, 7))
    source = unfused(builder, entered(builder, channels, side)) if side > 2 else entered(
        builder, channels, side
    )  # fmt: skip
    shape = rng.choice(((channels, 1, 1), (1,), (1, channels, 1, 1)))
    op = rng.choice(("Mul", "Add", "Sub", "Div"))
    factor = builder.constant(shape)
    return _end(builder, rng, builder.node(op, 14, (source, factor), builder.shape(source)))


def _small_side(builder: KernelBuilder, rng: random.Random) -> str:
    """Convolutions, pools and sums on very small sides: the last layers, squeezed features."""
    side = rng.choice((1, 1, 2, 3, 4, 5, 6))
    channels = channels_at(rng, 14, 16)
    source = entered(builder, channels, side)
    kernel = 1 if side < 3 else rng.choice((1, 3))
    result = builder.conv(source, channels_at(rng, 14, 16), kernel)
    shape = builder.shape(result)
    end = rng.choice(("Relu", "Sigmoid", "HardSigmoid", "HardSwish", ""))
    if end:
        version = {"Relu": 14, "Sigmoid": 13, "HardSigmoid": 6, "HardSwish": 14}[end]
        result = builder.node(end, version, (result,), shape)
    return _end(builder, rng, result)


OTHERS: Mapping[str, Callable[[KernelBuilder, random.Random], str]] = {
    "response norm": _response_norm, "instance norm": _instance_norm, "activation": _activation,
    "layer norm": _layer_norm, "product": _product, "transposed conv": _transposed_conv,
    "softmax": _softmax, "split": _split, "slice": _slice, "resize": _resize, "pad": _pad,
    "depth to space": _depth_to_space, "reduce": _reduce, "shuffle": _shuffle,
    "flatten": _flatten, "layout": _layout, "channel product": _channel_product,
    "small side": _small_side,
}  # fmt: skip
