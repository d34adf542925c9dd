"""Cells as the public data sets mean them, built as networks so that they sign like any other."""

from __future__ import annotations

from functools import lru_cache

from hybridlat.core.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.core.signature import Signature, sign

DTYPE = "float32"
"""Cells carry the file's element type; the precision they ran in is the target's."""


def same_pads(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after one axis, so that the output has ceil(size / stride) positions."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


@lru_cache(maxsize=200_000)
def conv_cell(
    batch: int,
    c_in: int,
    size: tuple[int, int],
    c_out: int,
    kernel: tuple[int, int],
    stride: int,
    pads: tuple[int, int, int, int],
    *,
    groups: int = 1,
    bias: bool = False,
    activation: str = "",
    add: bool = False,
) -> Signature | None:
    """A convolution with all that the engine fuses into it, as one kernel.

    ``com.microsoft::FusedConv`` is the operator that can say bias, activation and an added tensor
    at once. ``pads`` are top, left, bottom, right. None for a row that describes no convolution
    (a kernel larger than its padded input, channels that the groups do not divide).
    """
    rows = (size[0] + pads[0] + pads[2] - kernel[0]) // stride + 1
    columns = (size[1] + pads[1] + pads[3] - kernel[1]) // stride + 1
    numbers = (batch, c_in, *size, c_out, *kernel, stride, groups, rows, columns)
    if min(numbers) < 1 or min(pads) < 0 or c_in % groups or c_out % groups:
        return None
    image = TensorType(DTYPE, (batch, c_in, *size))
    result = TensorType(DTYPE, (batch, c_out, rows, columns))
    constants = {"w": Constant(TensorType(DTYPE, (c_out, c_in // groups, *kernel)))}
    if bias:
        constants["b"] = Constant(TensorType(DTYPE, (c_out,)))
    sources = ["x", "w", "b" if bias else "", "z" if add else ""]
    while not sources[-1]:
        sources.pop()
    attributes: list[tuple[str, AttributeValue]] = [
        ("dilations", (1, 1)), ("group", groups), ("kernel_shape", kernel), ("pads", pads),
        ("strides", (stride, stride)),
    ]  # fmt: skip
    if activation:
        attributes.insert(0, ("activation", activation))
    node = Node("conv", "FusedConv", tuple(sources), ("y",), tuple(attributes), "com.microsoft", 1)
    types = {"x": image, "y": result} | ({"z": result} if add else {})
    inputs = ("x", "z") if add else ("x",)
    return sign(Network("conv", (node,), inputs, ("y",), types, constants))
