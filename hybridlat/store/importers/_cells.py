"""Cells as the public data sets mean them, built as networks so that they sign like any other.

They carry the file's element type; the precision they ran in is the target's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hybridlat.graph.builder import CONV_VERSION, NetworkBuilder, conv_attributes
from hybridlat.graph.signature import Signature, sign


def same_pads(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after one axis, so that the output has ceil(size / stride) positions."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution; ``pads`` are top, left, bottom, right."""

    batch: int
    c_in: int
    size: tuple[int, int]
    c_out: int
    kernel: tuple[int, int]
    stride: int
    pads: tuple[int, int, int, int]
    groups: int = 1
    bias: bool = False


@lru_cache(maxsize=200_000)
def conv_cell(conv: Convolution, activation: str = "", add: bool = False) -> Signature | None:
    """A convolution with all that the engine fuses into it, as one kernel.

    It is written as lowering writes the kernels of engines whose fusion is known by groups
    (``fused::Conv+Add+Relu``), so that a record is found when a network is lowered. None for a row
    that describes no convolution (a kernel larger than its padded input, channels that the groups
    do not divide).
    """
    size, kernel, pads, stride = conv.size, conv.kernel, conv.pads, conv.stride
    counts = (conv.batch, conv.c_in, *size, conv.c_out, *kernel, stride, conv.groups)
    if min(counts) < 1 or min(pads) < 0:
        return None
    rows = (size[0] + pads[0] + pads[2] - kernel[0]) // stride + 1
    columns = (size[1] + pads[1] + pads[3] - kernel[1]) // stride + 1
    if min(rows, columns) < 1 or conv.c_in % conv.groups or conv.c_out % conv.groups:
        return None
    members = ("Conv", *(["Add"] if add else []), *([activation] if activation else []))
    fused = len(members) > 1
    net = NetworkBuilder("conv")
    operands = [
        net.input((conv.batch, conv.c_in, *size)),
        net.constant((conv.c_out, conv.c_in // conv.groups, *kernel)),
        *([net.constant((conv.c_out,))] if conv.bias else []),
        *([net.input((conv.batch, conv.c_out, rows, columns))] if add else []),
    ]  # fmt: skip
    attributes = conv_attributes(kernel, pads, stride, conv.groups)
    net.op(
        "+".join(members), operands, (conv.batch, conv.c_out, rows, columns),
        1 if fused else CONV_VERSION,
        attributes | ({"fused": members} if fused else {}), "fused" if fused else "",
    )  # fmt: skip
    return sign(net.network())
