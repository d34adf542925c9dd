"""Whole NAS-Bench-201 networks under PyTorch 1.8 eager, FP32 (HELP, MIT).

``networks.parquet``: one row an architecture, ``e<from><to>`` naming the operator on each edge of
the cell, and a latency column per device and batch; every device named becomes a target. Dead
operators are executed, so they are drawn. The network: a 3x3 stem of 16 channels at 32x32, three
stages of five cells with 16, 32, 64 channels, a residual block with stride 2 between them, and a
classifier of ten. A kernel is an edge's operator (ReLU, convolution and normalisation together).
"""

from __future__ import annotations

from pathlib import Path

from hybridlat.graph.signature import Signature, sign
from hybridlat.store.importers import base
from hybridlat.store.importers._networks import Drawing, read_choices

_EDGES = ("e01", "e02", "e12", "e03", "e13", "e23")
_CELLS = 5
_OPERATORS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")


def read(path: Path, watch: base.Watch | None = None) -> base.ImportedRecords:
    """Records of ``<device>/pytorch-1.8/fp32``, one network and breakdown per row and column."""
    return read_choices(Path(path), _EDGES, _OPERATORS, "operator unknown", _draw, watch)


def _draw(edges: tuple[str, ...], batch: int) -> tuple[str, list[tuple[Signature, int]]]:
    net = Drawing()
    tensor = net.conv("Conv+BatchNormalization", net.input((batch, 3, 32, 32)), 16, 3)
    for stage, channels in enumerate((16, 32, 64)):
        if stage:
            tensor = _reduce(net, tensor, channels)
        for _ in range(_CELLS):
            tensor = _cell(net, tensor, edges)
    shape = net.shape(tensor)
    tensor = net.add("BatchNormalization+Relu", [tensor], shape, ((shape[1],),) * 4)
    tensor = net.add("GlobalAveragePool", [tensor], (batch, shape[1], 1, 1))
    net.add("Flatten+Gemm", [tensor], (batch, 10), ((shape[1], 10), (10,)))
    return sign(net.network("nasbench201")).hash, net.kernels()


def _cell(net: Drawing, tensor: str, edges: tuple[str, ...]) -> str:
    nodes = [tensor]
    edge = iter(edges)
    shape = net.shape(tensor)
    for target in (1, 2, 3):
        arriving = [_edge(net, nodes[source], next(edge)) for source in range(target)]
        total = arriving[0]
        for other in arriving[1:]:
            total = net.add("Add", [total, other], shape)
        nodes.append(total)
    return nodes[3]


def _edge(net: Drawing, tensor: str, operator: str) -> str:
    shape = net.shape(tensor)
    if operator == "none":  # executed as a product with zero
        return net.add("Mul", [tensor], shape, ((1,),))
    if operator == "avg_pool_3x3":
        window = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)), ("strides", (1, 1)))
        return net.add("AveragePool", [tensor], shape, (), window)
    if operator == "skip_connect":
        return tensor
    return net.conv("Relu+Conv+BatchNormalization", tensor, shape[1], int(operator[-1]))


def _reduce(net: Drawing, tensor: str, channels: int) -> str:
    batch, c_in, height, width = net.shape(tensor)
    body = net.conv("Relu+Conv+BatchNormalization", tensor, channels, 3, stride=2)
    body = net.conv("Relu+Conv+BatchNormalization", body, channels, 3)
    window = (("kernel_shape", (2, 2)), ("pads", (0, 0, 0, 0)), ("strides", (2, 2)))
    short = net.add("AveragePool", [tensor], (batch, c_in, height // 2, width // 2), (), window)
    short = net.conv("Conv", short, channels, 1)
    return net.add("Add", [body, short], net.shape(body))
