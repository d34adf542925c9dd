"""A small network of a file around a random kernel, in the making."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any

from hybridlat import onnx_io
from hybridlat.graph.builder import NetworkBuilder, Shape
from hybridlat.graph.network import AttributeValue

SIDES = (
    7, 8, 10, 12, 14, 16, 19, 20, 24, 28, 32, 35, 38, 40, 48, 56, 64, 75, 80, 96, 112, 128, 150,
    160, 192, 224,
)  # fmt: skip
_EDGE_CHANNELS = 16
_OPSET = 17


@dataclass
class KernelBuilder(NetworkBuilder):
    """A network that is being drawn; ``around`` names operators that its family is not about.

    ``parts`` is how many equal parts the channels of the tensor that was entered fall into.
    """

    rng: random.Random = field(default_factory=random.Random)
    around: set[str] = field(default_factory=set)
    parts: int = 1
    conv = partialmethod(NetworkBuilder.conv, bias=True)

    def choose(self, choices: Sequence[Any] | Mapping[Any, float]) -> Any:
        """One of the choices: all as likely, or as often as the weights of a mapping say."""
        if isinstance(choices, Mapping):
            return self.rng.choices(list(choices), list(choices.values()))[0]
        return self.rng.choice(choices)

    def channels(self, side: int, low: int = 8) -> int:
        """Channels as CNNs have them at a side: log-uniform, up to about 30,000 / side."""
        high = max(min(30_000 / side, 2048), 2 * low)
        value = math.exp(self.rng.uniform(math.log(low), math.log(high)))
        step: int = self.choose({32: 0.35, 16: 0.3, 8: 0.2, 4: 0.1, 1: 0.05})
        return max(round(value / step) * step, low if step < low else step)

    def width(self, tensor: str) -> int:
        return self.shape(tensor)[1]

    def side(self, tensor: str) -> int:
        """Rows of a tensor, which has as many columns."""
        return self.shape(tensor)[2]

    def like(self, tensor: str, channels: int = 0, side: int = 0) -> Shape:
        side = side or self.side(tensor)
        return (1, channels or self.width(tensor), side, side)

    def image(self, channels: int, side: int) -> str:
        return self.input((1, channels, side, side), "x")

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Shape | None = None,
        **attributes: AttributeValue,
    ) -> str:
        """An operator, of the first input's shape by default."""
        shape = self.shape(inputs[0]) if shape is None else shape
        return self.op(op, inputs, shape, onnx_io.since_version(op, "", _OPSET), attributes)

    def aside(self, tensor: str) -> str:
        """A tensor just made, by an operator that only makes or reads what the family is about."""
        self.around.add(self.nodes[-1].name)
        return tensor

    def edge(self, tensor: str, channels: int = _EDGE_CHANNELS) -> str:
        """A convolution around the kernel: it makes or reads a tensor in the engine's layout."""
        return self.aside(self.conv(tensor, channels, 1))

    def windowed(self, op: str, inputs: Sequence[str], shape: Shape, window: Sequence[int]) -> str:
        size, stride, pad = window
        return self.node(
            op, inputs, shape, kernel_shape=(size, size), pads=(pad,) * 4, strides=(stride, stride)
        )

    def pooled(self, tensor: str, op: str, window: Sequence[int]) -> str:
        size, stride, pad = window
        after = (self.side(tensor) + 2 * pad - size) // stride + 1
        return self.windowed(op, (tensor,), self.like(tensor, side=after), window)

    def unfused(self, tensor: str) -> str:
        """The tensor behind a pool that changes no shape: nothing is fused across it."""
        return self.aside(self.pooled(tensor, "MaxPool", (3, 1, 1)))

    def means(self, tensor: str) -> str:
        return self.node("GlobalAveragePool", (tensor,), self.like(tensor, side=1))

    def reshaped(self, tensor: str, shape: Shape) -> str:
        return self.aside(self.node("Reshape", (tensor, self.numbers(*shape)), shape))

    def transposed(self, tensor: str, *order: int) -> str:
        shape = tuple([self.shape(tensor)[axis] for axis in order])
        return self.node("Transpose", (tensor,), shape, perm=order)

    def dense(self, tensor: str, channels: int, bias: bool = True) -> str:
        """A matrix product over the last axis."""
        *rows, width = self.shape(tensor)
        weights = self.constant((width, channels))
        made = self.node("MatMul", (tensor, weights), (*rows, channels))
        return self.node("Add", (made, *self.vectors(1, channels))) if bias else made

    def row_norm(self, tensor: str) -> str:
        """A norm over the last axis."""
        operands = (tensor, *self.vectors(2, self.shape(tensor)[-1]))
        return self.node("LayerNormalization", operands, axis=-1, epsilon=1e-6)

    def vectors(self, count: int, size: int) -> list[str]:
        """Weights of one number a channel: scales, shifts."""
        return [self.constant((size,)) for _ in range(count)]

    def activated(self, tensor: str, kind: str) -> str:
        """An activation as exporters write it; none for an empty ``kind``."""
        values = _OPERANDS.get(kind, ())
        numbers = [self.constant((), (value,)) for value in values]
        if kind == "Gelu":  # x·(1 + erf(x/√2))/2
            root, one, half = numbers
            inner = self.node("Erf", (self.node("Div", (tensor, root)),))
            product = self.node("Mul", (tensor, self.node("Add", (inner, one))))
            return self.node("Mul", (product, half))
        if kind == "SiLU":  # x·sigmoid(x)
            return self.node("Mul", (tensor, self.node("Sigmoid", (tensor,))))
        if kind == "PRelu":
            numbers = [self.constant((self.width(tensor), 1, 1))]
        alpha = {"LeakyRelu": 0.1, "Elu": 1.0}.get(kind)
        attributes: dict[str, Any] = {} if alpha is None else {"alpha": alpha}
        return self.node(kind, (tensor, *numbers), **attributes) if kind else tensor

    def followed(self, tensor: str) -> str:
        """What follows a convolution in CNNs, as often as it does."""
        add, kind = self.choose(_FOLLOWERS)
        if add:
            other = self.edge(self.edge("x"), self.width(tensor))
            if self.shape(other) == self.shape(tensor):
                tensor = self.node("Add", (tensor, other))
        return self.activated(tensor, kind)

    def summed(self, x: str, op: str, relu: bool) -> str:
        first, second = self.unfused(x), self.unfused(self.edge("x", self.width(x)))
        result = self.node(op, (first, second))
        return self.node("Relu", (result,)) if relu else result

    def concat(self, x: str, count: int) -> str:
        side = self.side(x)
        parts = [x, *(self.edge("x", self.channels(side)) for _ in range(count - 1))]
        return self.node("Concat", parts, (1, sum(map(self.width, parts)), side, side), axis=1)

    def gemm(self, x: str, c_out: int, relu: bool) -> str:
        weights = self.constant((c_out, self.width(x)))
        result = self.node("Gemm", (x, weights, *self.vectors(1, c_out)), (1, c_out), transB=1)
        return self.node("Relu", (result,)) if relu else result

    def squeeze(self, x: str, ratio: int, op: str) -> str:
        width, means = self.width(x), self.aside(self.means(x))
        hidden = self.node("Relu", (self.conv(means, max(8, width // ratio), 1),))
        return self.node("Mul", (x, self.node(op, (self.conv(hidden, width, 1),))))

    def product(self, x: str, ratio: float, gelu: bool) -> str:
        """A matrix product over the channels of every position, often with a Gelu behind."""
        result = self.dense(x, max(int(ratio * self.shape(x)[-1]), 8))
        return self.activated(result, "Gelu") if gelu else result

    def resized(self, x: str, factor: float, mode: str) -> str:
        side = int(factor * self.side(x))
        centred = "asymmetric" if mode == "nearest" else "half_pixel"
        operands = (x, "", self.constant((4,), (1.0, 1.0, factor, factor)))
        return self.node(
            "Resize", operands, self.like(x, side=side), mode=mode, nearest_mode="floor",
            coordinate_transformation_mode=centred,
        )  # fmt: skip

    def transposed_conv(self, x: str, channels: int | str, window: Sequence[int]) -> str:
        (kernel, stride, pad), width = window, self.width(x)
        relative = {"all": width, "half": max(width // 2, 8)}
        c_out = channels if isinstance(channels, int) else relative[channels]
        after = (self.side(x) - 1) * stride - 2 * pad + kernel
        operands = (x, self.constant((width, c_out, kernel, kernel)), *self.vectors(1, c_out))
        return self.windowed("ConvTranspose", operands, self.like(x, c_out, after), window)

    def split_sum(self, x: str) -> str:
        shapes = [self.like(x, self.width(x) // self.parts)] * self.parts
        pieces = self.op_of_many("Split", (x,), shapes, 13, {"axis": 1})
        return self.aside(self.node("Add", [self.edge(piece) for piece in pieces[:2]]))

    def shuffle(self, x: str) -> str:
        """Reshape, transpose, reshape: channels are dealt out over groups."""
        groups, width, side = self.parts, self.width(x) // self.parts, self.side(x)
        dealt = self.reshaped(x, (1, groups, width, side, side))
        return self.reshaped(self.transposed(dealt, 0, 2, 1, 3, 4), self.shape(x))


_OPERANDS: Mapping[str, tuple[float, ...]] = {
    "Clip": (0.0, 6.0), "Gelu": (1.4142135, 1.0, 0.5), "Pow": (2.0,),
}  # fmt: skip
_FOLLOWERS: Mapping[tuple[bool, str], float] = {
    (False, "Relu"): 0.45, (False, ""): 0.16, (False, "Clip"): 0.1, (True, ""): 0.06,
    (True, "Relu"): 0.1, (False, "SiLU"): 0.06, (False, "HardSwish"): 0.05,
    (False, "Sigmoid"): 0.02,
}  # fmt: skip


@dataclass(frozen=True)
class Entered:
    """A tensor in the engine's layout: ``parts`` times the channels of its side, or ``widths``."""

    sides: Sequence[int] = SIDES
    low: int = 8
    parts: Sequence[int] = (1,)
    widths: Sequence[int] = ()

    def __call__(self, k: KernelBuilder) -> str:
        side = k.choose(self.sides)
        width = k.choose(self.widths) if self.widths else k.channels(max(side, 7), self.low)
        k.parts = k.choose(self.parts)
        return k.edge(k.image(_EDGE_CHANNELS, side), k.parts * width)
