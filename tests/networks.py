"""Small networks for tests, built as core values with no file and no engine."""

import math
from dataclasses import replace
from pathlib import Path

from hybridlat.graph.builder import NetworkBuilder
from hybridlat.graph.forms import written
from hybridlat.graph.network import Network
from hybridlat.onnx_io import local_form

ROOT = Path(__file__).resolve().parents[1]
NETS = ROOT / "data" / "nets"


def normal_form(network: Network) -> Network:
    """The network in its normal form, as files are read."""
    return written(replace(network, nodes=tuple(map(local_form, network.nodes))))


class Builder(NetworkBuilder):
    """The operators that tests are made of."""

    weight = NetworkBuilder.constant

    def relu(self, source: str) -> str:
        return self.op("Relu", [source], self.shape(source), 14)

    def add(self, left: str, right: str) -> str:
        return self.op("Add", [left, right], self.shape(left), 14)

    def concat(self, sources: list[str]) -> str:
        n, _, h, w = self.shape(sources[0])
        channels = sum(self.shape(s)[1] for s in sources)
        return self.op("Concat", sources, (n, channels, h, w), 13, {"axis": 1})

    def pool(self, source: str, kernel: int = 2, op: str = "MaxPool") -> str:
        n, c, h, w = self.shape(source)
        window = (kernel, kernel)
        shape, version = (n, c, h // kernel, w // kernel), 12 if op == "MaxPool" else 11
        return self.op(op, [source], shape, version, {"kernel_shape": window, "strides": window})

    def global_pool(self, source: str) -> str:
        n, c, *_ = self.shape(source)
        return self.op("GlobalAveragePool", [source], (n, c, 1, 1))

    def flatten(self, source: str) -> str:
        n, *rest = self.shape(source)
        return self.op("Flatten", [source], (n, math.prod(rest)), 13, {"axis": 1})

    def gemm(self, source: str, features: int) -> str:
        n, width = self.shape(source)
        operands = [source, self.weight((features, width)), self.weight((features,))]
        return self.op("Gemm", operands, (n, features), 13, {"transB": 1})


def conv_relu(channels: int = 8, size: int = 16, kernel: int = 3) -> Network:
    """A chain of two operators: two cells where each is a kernel."""
    b = Builder("conv_relu")
    return b.network(b.relu(b.conv(b.input((1, 4, size, size)), channels, kernel)))


def stem(channels: int = 8, size: int = 16) -> Network:
    """A few different cells: what takes long with each is done with these."""
    b = Builder("stem")
    return b.network(b.conv(b.pool(b.relu(b.conv(b.input((1, 3, size, size)), channels))), 4))


def residual_block(channels: int = 8, size: int = 16, blocks: int = 1) -> Network:
    """``blocks`` times relu(x + conv(relu(conv(x)))): each a cell, all alike."""
    b = Builder("residual_block")
    x = b.input((1, channels, size, size))
    for _ in range(blocks):
        x = b.relu(b.add(b.conv(b.relu(b.conv(x, channels)), channels), x))
    return b.network(x)


def branches(channels: int = 4, size: int = 16) -> Network:
    """A convolution, then three branches of different kinds that are concatenated."""
    b = Builder("branches")
    x = b.relu(b.conv(b.input((1, 3, size, size)), channels))
    left = b.relu(b.conv(x, channels, 1))
    middle = b.relu(b.conv(b.conv(x, channels, 1), 2 * channels, 3))
    return b.network(b.relu(b.concat([left, middle, x])))


def classifier(channels: int = 8, size: int = 16, classes: int = 10) -> Network:
    """A small whole network: stem, residual block, pooling, fully connected head."""
    b = Builder("classifier")
    x = b.pool(b.relu(b.conv(b.input((1, 3, size, size)), channels, stride=2)))
    x = b.relu(b.add(b.conv(b.relu(b.conv(x, channels)), channels), x))
    return b.network(b.gemm(b.flatten(b.global_pool(x)), classes))


def two_outputs(size: int = 8) -> Network:
    """A network with a head at the end and one on the way."""
    b = Builder("two_outputs")
    x = b.conv(b.input((1, 3, size, size)), 4)
    y = b.relu(x)
    return b.network(y, b.relu(b.conv(y, 4)))


def encoder_decoder(channels: int = 8, size: int = 16, stages: int = 2) -> Network:
    """A U-Net, and the mean of what it makes: hardly anywhere is a single tensor live."""
    b = Builder("encoder_decoder")
    x, parked = b.input((1, 3, size, size)), []
    for _ in range(stages):
        x = b.relu(b.conv(b.relu(b.conv(x, channels)), channels))
        parked.append(x)
        x = b.pool(x)
    x = b.relu(b.conv(x, channels))
    for skip in reversed(parked):
        weight = b.weight((channels, channels, 2, 2))
        windows = {"kernel_shape": (2, 2), "strides": (2, 2)}
        up = b.op("ConvTranspose", [x, weight], b.shape(skip), 11, windows)
        x = b.relu(b.conv(b.relu(b.conv(b.concat([up, skip]), channels)), channels))
    return b.network(b.global_pool(x))


SMALL = (conv_relu, residual_block, branches, classifier, two_outputs)


def renamed(network: Network, prefix: str = "other_") -> Network:
    """The same network under other names of tensors and nodes."""
    names = {name: prefix + name for name in (*network.types, *network.constants)}
    return replace(network.renamed(names), name=prefix + network.name)


def in_order(network: Network, order: list[int]) -> Network:
    """The same network with its nodes listed in another (topological) order."""
    return replace(network, nodes=tuple(network.nodes[i] for i in order))
