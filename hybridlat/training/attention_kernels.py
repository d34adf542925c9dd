"""The kernels that transformers consist of, as networks: products of tokens, and attention.

Tokens are rows of channels (batch, tokens, channels); a window's are a batch of their own.
Attention comes as exporters write it: queries, keys and values packed in one product or each by
its own, with the tokens last behind convolutions, or of channels with channels.
"""

import math
from collections.abc import Mapping

from hybridlat.training.kernel_builder import SIDES, KernelBuilder

_COUNTS = (16, 49, 50, 64, 77, 100, 128, 144, 196, 197, 256, 400, 577, 784)
_HEADS = (1, 2, 3, 4, 6, 8, 12)
_WIDTHS = (16, 24, 32, 32, 48, 64, 64)  # channels of a head
_WINDOWS: Mapping[int, float] = {1: 0.7, 4: 0.1, 16: 0.1, 64: 0.1}
_TURNED = (0, 1, 3, 2)  # rows and columns of every head


def tokens(k: KernelBuilder) -> str:
    """Tokens of one map, or of many windows of it; ``parts`` heads of as many channels each."""
    windows, k.parts = k.choose(_WINDOWS), k.choose(_HEADS)
    count = k.choose(_COUNTS if windows == 1 else (49, 64))
    return k.input((windows, count, k.parts * k.choose(_WIDTHS)), "x")


def token_product(k: KernelBuilder, x: str, ratio: float, bias: bool, end: str) -> str:
    """One layer on every token, with an activation or a sum behind it."""
    width = k.shape(x)[-1]
    made = k.dense(x, width if end == "Add" else max(int(ratio * width), 8), bias)
    return k.node("Add", (made, x)) if end == "Add" else k.activated(made, end)


def map_product(k: KernelBuilder, x: str, ratio: float) -> str:
    """The layer on a map's positions: channels come last for it."""
    width, count = k.width(x), k.side(x) ** 2
    rows = k.transposed(k.reshaped(x, (1, width, count)), 0, 2, 1)
    return k.dense(rows, max(int(ratio * width), 8), False)


def scaled(k: KernelBuilder, x: str, op: str, of_each: bool) -> str:
    """A product, sum or quotient of tokens and a vector, or a number ``of_each`` token."""
    factor = k.aside(reduced(k, x, "ReduceMax", -1)) if of_each else k.vectors(1, k.shape(x)[-1])[0]
    return k.node(op, (x, factor))


def reduced(k: KernelBuilder, x: str, op: str, axis: int) -> str:
    """One number of each token (axis -1), or of each channel (1)."""
    sizes = list(k.shape(x))
    sizes[axis] = 1
    return k.node(op, (x,), tuple(sizes), axes=(axis,), keepdims=1)


def with_class(k: KernelBuilder, x: str) -> str:
    """A token more, as classifiers have it."""
    batch, count, width = k.shape(x)
    token = k.constant((batch, 1, width))
    return k.node("Concat", (token, x), (batch, count + 1, width), axis=1)


def map_last(k: KernelBuilder) -> str:
    """A map with its channels last."""
    side = k.choose(SIDES[:16])
    return k.input((1, side, side, k.channels(side, 16)), "x")


def windows(k: KernelBuilder, x: str) -> str:
    """The map cut into windows, each with its rows together."""
    _, side, _, width = k.shape(x)
    size = next((size for size in (7, 8, 5, 2) if side % size == 0), side)
    cut = k.reshaped(x, (1, side // size, size, side // size, size, width))
    return k.transposed(cut, 0, 1, 3, 2, 4, 5)


def _matmul(k: KernelBuilder, left: str, right: str) -> str:
    return k.node("MatMul", (left, right), (*k.shape(left)[:-1], k.shape(right)[-1]))


def _weighted(k: KernelBuilder, query: str, key: str, value: str, scaled: str, bias: bool) -> str:
    """softmax(query · key / √d) · value, of keys that are turned already."""
    factor = k.constant((), (math.sqrt(k.shape(query)[-1]),))
    if scaled == "query":
        query = k.node("Mul", (query, factor))
    scores = _matmul(k, query, key)
    if scaled == "scores":
        scores = k.node("Div", (scores, factor))
    if bias:
        scores = k.node("Add", (scores, k.constant((1, *k.shape(scores)[1:]))))
    return _matmul(k, k.node("Softmax", (scores,), axis=-1), value)


def _joined(k: KernelBuilder, heads: str) -> str:
    """Heads side by side again."""
    batch, parts, count, width = k.shape(heads)
    return k.reshaped(k.transposed(heads, 0, 2, 1, 3), (batch, count, parts * width))


def packed_attention(k: KernelBuilder, x: str, scaled: str, bias: bool, across: bool) -> str:
    """Queries, keys and values of one product; ``across`` channels instead of tokens."""
    batch, count, width = k.shape(x)
    each = width // k.parts
    together = k.reshaped(k.dense(x, 3 * width), (batch, count, 3, k.parts, each))
    sizes, order = ((each, count), (2, 0, 3, 4, 1)) if across else ((count, each), (2, 0, 3, 1, 4))
    moved = k.transposed(together, *order)
    shapes = [(1, batch, k.parts, *sizes)] * 3
    pieces = k.op_of_many("Split", (moved,), shapes, 13, {"axis": 0})
    query, key, value = (
        k.node("Squeeze", (piece, k.numbers(0)), (batch, k.parts, *sizes)) for piece in pieces
    )
    made = _weighted(k, query, k.transposed(key, *_TURNED), value, scaled, bias and not across)
    return _joined(k, k.transposed(made, *_TURNED) if across else made)


def attention(k: KernelBuilder, x: str, scaled: str, bias: bool, fewer: int) -> str:
    """Each by its own product; keys and values of ``fewer`` times fewer tokens."""
    batch, count, width = k.shape(x)
    each, keys = width // k.parts, max(count // fewer, 1)
    other = x if fewer == 1 else k.input((batch, keys, width))

    def heads(source: str, *order: int) -> str:
        sizes = (batch, k.shape(source)[1], k.parts, each)
        return k.transposed(k.reshaped(k.dense(source, width), sizes), *order)

    query, key = heads(x, 0, 2, 1, 3), heads(other, 0, 2, 3, 1)
    value = heads(other, 0, 2, 1, 3)
    return _joined(k, _weighted(k, query, key, value, scaled, bias))


def map_attention(k: KernelBuilder, x: str, scaled: str) -> str:
    """Of a map's positions, which come last behind a convolution."""
    count = k.side(x) ** 2
    width = k.width(x) // k.parts

    def heads() -> str:
        return k.reshaped(k.edge(x, k.width(x)), (1, k.parts, width, count))

    query, key, value = k.transposed(heads(), *_TURNED), heads(), k.transposed(heads(), *_TURNED)
    made = k.transposed(_weighted(k, query, key, value, scaled, False), *_TURNED)
    return k.reshaped(made, k.shape(x))
