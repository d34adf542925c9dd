"""Whole FBNet networks under PyTorch 1.8 eager, FP32 (HELP, MIT).

``networks.parquet``: one row a network, ``op00..op21`` the choice of each block (kernel size,
expansion, groups of its 1x1 convolutions, or 8 for skip), and a latency column per device and
batch; every device named becomes a target. The frame is the one of the FBNet paper (Wu et al.
2019, table 1) at 224x224.
"""

from __future__ import annotations

from pathlib import Path

from hybridlat.graph.signature import Signature, sign
from hybridlat.store.importers import base
from hybridlat.store.importers._networks import Drawing, read_choices

_BLOCKS = {  # number: kernel, expansion, groups of the 1x1 convolutions
    0: (3, 1, 1), 1: (3, 1, 2), 2: (3, 3, 1), 3: (3, 6, 1), 4: (5, 1, 1), 5: (5, 1, 2),
    6: (5, 3, 1), 7: (5, 6, 1),
}  # fmt: skip
_SKIP = 8
_STAGES = ((16, 1, 1), (24, 4, 2), (32, 4, 2), (64, 4, 2), (112, 4, 1), (184, 4, 2), (352, 1, 1))
"""Channels, blocks, stride of the first block."""
_HEAD = 1504
_CLASSES = 1000


def read(path: Path, watch: base.Watch | None = None) -> base.ImportedRecords:
    """Records of ``<device>/pytorch-1.8/fp32``, one network and breakdown per row and column."""
    choices = [f"op{i:02d}" for i in range(22)]
    return read_choices(Path(path), choices, {*_BLOCKS, _SKIP}, "block unknown", _draw, watch)


def _draw(blocks: tuple[int, ...], batch: int) -> tuple[str, list[tuple[Signature, int]]]:
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
    return sign(net.network("fbnet")).hash, net.kernels()


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
