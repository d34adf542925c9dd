"""Whole networks of two search spaces that others measured, drawn kernel by kernel.

Latencies under PyTorch 1.8 eager, FP32 (HELP, MIT). ``networks.parquet`` has one row a network and
a latency column per device and batch; every device named becomes a target.
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments.public_data.frames import Collected, latency_columns, need_columns, rows, tables
from hybridlat.graph.builder import NetworkBuilder, Shape, conv_attributes
from hybridlat.graph.network import AttributeValue, Network
from hybridlat.graph.signature import Signature, sign
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.target import Target
from hybridlat.store.importers import ImportedRecords

Attributes = tuple[tuple[str, AttributeValue], ...]
Drawn = tuple[Signature, list[tuple[Signature, int]]]
"""A network, and each of its kernels with its count."""


def read_choices(
    path: Path,
    choices: Sequence[str],
    known: Container[object],
    unknown: str,
    draw: Callable[[tuple[Any, ...], int], Drawn],
) -> ImportedRecords:
    """Networks of ``networks.parquet``: one row a network, a latency column per device and batch.

    The columns ``choices`` say what each network consists of; a row with one that is not ``known``
    is left out and counted as ``unknown``. ``draw`` gives of the choices and a batch size the
    network's signature and its kernels.
    """
    result = Collected()
    for file, frame in tables(path, "networks.parquet"):
        need_columns(file, frame, "arch_str", *choices)
        columns = latency_columns(file, frame)
        batches = sorted({batch for _, _, batch in columns})
        names = [column for column, _, _ in columns]
        for row in rows(frame, "arch_str", *choices, *names):
            chosen, latencies = row[1 : 1 + len(choices)], row[1 + len(choices) :]
            if any(choice not in known for choice in chosen):
                result.skipped[unknown] += len(names)
                continue
            drawn = {batch: draw(chosen, batch) for batch in batches}
            for (_, device, batch), latency in zip(columns, latencies, strict=True):
                network, kernels = drawn[batch]
                target = Target(device, "pytorch-1.8", "fp32")
                name = f"{row[0]} batch {batch}"
                labels = {"network": name}
                if result.add(
                    target, network, latency, protocol="help", kind="network", labels=labels
                ):
                    # The breakdown says all that is needed of a network; ten thousands of their
                    # texts would fill a store.
                    del result.signatures[network.hash]
                    cells = tuple((s.hash, count) for s, count in kernels)
                    parts = {s.hash: s.text for s, _ in kernels}
                    result.signatures.update(parts)
                    result.breakdowns.append(Breakdown(target, name, network.hash, cells))
    return result


@lru_cache(maxsize=100_000)
def _kernel(
    op: str, sources: tuple[Shape, ...], weights: tuple[Shape, ...], result: Shape, more: Attributes
) -> Signature:
    drawing = Drawing()
    drawing.add(op, [drawing.input(shape) for shape in sources], result, weights, more)
    return sign(drawing.network("kernel"))


class Drawing:
    """A network in the making; ``add`` appends a kernel and gives the tensor it makes."""

    def __init__(self) -> None:
        self._net = NetworkBuilder()
        self.input, self.shape = self._net.input, self._net.shape
        self._kernels: Counter[tuple[object, ...]] = Counter()

    def add(
        self,
        op: str,
        inputs: list[str],
        result: Shape,
        weights: tuple[Shape, ...] = (),
        attributes: Attributes = (),
    ) -> str:
        """A kernel that reads ``inputs`` and weights of these shapes; ``A+B`` is a fused one."""
        attributes = tuple(sorted(attributes))
        self._kernels[op, tuple(map(self.shape, inputs)), weights, result, attributes] += 1
        operands = [*inputs, *map(self._net.constant, weights)]
        domain = "fused" if "+" in op else ""
        return self._net.op(op, operands, result, 1, dict(attributes), domain)

    def conv(
        self, op: str, tensor: str, c_out: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        """A convolution with "same" padding and a bias, square in all."""
        batch, c_in, height, width = self.shape(tensor)
        result = (batch, c_out, -(-height // stride), -(-width // stride))
        attributes = conv_attributes((kernel, kernel), ((kernel - 1) // 2,) * 4, stride, groups)
        weights = ((c_out, c_in // groups, kernel, kernel), (c_out,))
        return self.add(op, [tensor], result, weights, tuple(attributes.items()))

    def network(self, name: str) -> Network:
        """What was drawn; tensors that nobody reads are its outputs."""
        return replace(self._net.network(), name=name)

    def kernels(self) -> list[tuple[Signature, int]]:
        """Every distinct kernel with its count."""
        return [(_kernel(*key), count) for key, count in self._kernels.items()]


_BLOCKS = {  # number: kernel, expansion, groups of the 1x1 convolutions
    0: (3, 1, 1), 1: (3, 1, 2), 2: (3, 3, 1), 3: (3, 6, 1), 4: (5, 1, 1), 5: (5, 1, 2),
    6: (5, 3, 1), 7: (5, 6, 1),
}  # fmt: skip
_SKIP = 8
_STAGES = ((16, 1, 1), (24, 4, 2), (32, 4, 2), (64, 4, 2), (112, 4, 1), (184, 4, 2), (352, 1, 1))
"""Channels, blocks, stride of the first block."""
_HEAD = 1504
_CLASSES = 1000


def fbnet(path: Path) -> ImportedRecords:
    """FBNet: ``op00..op21`` choose each block (kernel size, expansion, groups, or 8 for skip).

    The frame is the one of the FBNet paper (Wu et al. 2019, table 1) at 224x224.
    """
    choices = [f"op{i:02d}" for i in range(22)]
    return read_choices(Path(path), choices, {*_BLOCKS, _SKIP}, "block unknown", _draw_fbnet)


def _draw_fbnet(blocks: tuple[int, ...], batch: int) -> Drawn:
    net = Drawing()
    act = "Conv+BatchNormalization+Relu"
    tensor = net.conv(act, net.input((batch, 3, 224, 224)), 16, 3, stride=2)
    choice = iter(blocks)
    for channels, count, stride in _STAGES:
        for index in range(count):
            tensor = _block(net, tensor, next(choice), channels, stride if index == 0 else 1)
    tensor = net.conv(act, tensor, _HEAD, 1)
    tensor = net.add("GlobalAveragePool", [tensor], (batch, _HEAD, 1, 1))
    net.add("Flatten+Gemm", [tensor], (batch, _CLASSES), ((_HEAD, _CLASSES), (_CLASSES,)))
    return sign(net.network("fbnet")), net.kernels()


def _block(net: Drawing, tensor: str, choice: int, channels: int, stride: int) -> str:
    c_in = net.shape(tensor)[1]
    act = "Conv+BatchNormalization+Relu"
    if choice == _SKIP:
        same = c_in == channels and stride == 1
        return tensor if same else net.conv(act, tensor, channels, 1, stride)
    kernel, expansion, groups = _BLOCKS[choice]
    inner = net.conv(act, tensor, c_in * expansion, 1, groups=groups)
    inner = net.conv(act, inner, c_in * expansion, kernel, stride, groups=c_in * expansion)
    inner = net.conv("Conv+BatchNormalization", inner, channels, 1, groups=groups)
    if c_in == channels and stride == 1:
        return net.add("Add", [inner, tensor], net.shape(inner))
    return inner


_EDGES = ("e01", "e02", "e12", "e03", "e13", "e23")
_CELLS = 5
_OPERATORS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")


def nasbench201(path: Path) -> ImportedRecords:
    """NAS-Bench-201: ``e<from><to>`` name the operator on each edge of the cell.

    Dead operators are executed, so they are drawn. The network: a 3x3 stem of 16 channels at 32x32,
    three stages of five cells with 16, 32, 64 channels, a residual block with stride 2 between
    them, and a classifier of ten. A kernel is an edge's operator (ReLU, convolution and
    normalisation together).
    """
    return read_choices(Path(path), _EDGES, _OPERATORS, "operator unknown", _draw_nas)


def _draw_nas(edges: tuple[str, ...], batch: int) -> Drawn:
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
    return sign(net.network("nasbench201")), net.kernels()


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
