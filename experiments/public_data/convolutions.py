"""Convolutions that others measured, each signed as one kernel of any other network.

A reader takes the folder of a data set, laid out as its function says. Cells carry the file's
element type; the precision that they ran in is the target's.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from experiments.public_data.frames import Collected, need_columns, rows, tables, whole
from hybridlat.errors import StoreError
from hybridlat.graph.builder import CONV_VERSION, NetworkBuilder, conv_attributes
from hybridlat.graph.signature import Signature, sign
from hybridlat.schema.names import device_name
from hybridlat.schema.target import PRECISIONS, Target
from hybridlat.store.importers import ImportedRecords


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


_V100_COLUMNS = (
    "conv", "batch", "c_in", "h_in", "w_in", "c_out", "kernel", "stride", "sum_fused", "latency_us",
)  # fmt: skip


def v100_tensorrt_conv(path: Path) -> ImportedRecords:
    """Fused convolutions under TensorRT on a V100, FP32 and FP16 (Alibaba TinyNAS, Apache-2.0).

    ``conv_<precision>.parquet``: one row a convolution with square input and "same" padding of
    (kernel − 1) / 2. Bias and ReLU are taken as fused in, as the profiled networks have them;
    ``sum_fused`` 1 says that the residual sum is fused too. A depthwise row has a group per
    channel.

    The records are of ``v100/tensorrt/<precision>`` (or of the device a ``device`` column names).
    """
    result = Collected()
    for file, frame in tables(Path(path), "conv_*.parquet"):
        need_columns(file, frame, *_V100_COLUMNS)
        precision = file.stem.removeprefix("conv_")
        if precision not in PRECISIONS:
            raise StoreError(
                f"{file.name} names no precision: expected conv_<one of {', '.join(PRECISIONS)}>"
            )
        devices = frame["device"].tolist() if "device" in frame.columns else ["v100"] * len(frame)
        for device, row in zip(devices, rows(frame, *_V100_COLUMNS), strict=True):
            conv, batch, c_in, height, width, c_out, kernel, stride, add, latency = row
            target = Target(device_name(device), "tensorrt", precision)
            signature = None
            if whole(*row[1:9]) and conv in ("regular", "depthwise"):
                pad = (int(kernel) - 1) // 2
                shape = Convolution(
                    int(batch), int(c_in), (int(height), int(width)), int(c_out),
                    (int(kernel), int(kernel)), int(stride), (pad,) * 4,
                    int(c_in) if conv == "depthwise" else 1, bias=True,
                )  # fmt: skip
                signature = conv_cell(shape, "Relu", add=bool(add))
            result.add(target, signature, latency, protocol="tinynas op_profiler")
    return result


_CDECATAPULT_COLUMNS = (
    "device", "batch", "in_hw", "in_ch", "out_ch", "kernel", "stride", "padding", "bias",
    "activation", "latency_us", "latency_us_std",
)  # fmt: skip
_ACTIVATIONS = {"none": "", "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}


def conv_cdecatapult(path: Path) -> ImportedRecords:
    """Convolutions under TensorFlow 1 and cuDNN, FP32, on five GPUs (CDECatapult, Apache-2.0).

    One row a convolution with optional bias and activation; ``latency_us`` is the wall time of a
    session run and holds 140–240 µs of launch overhead. ``padding`` follows TensorFlow: ``same``
    puts the odd zero behind, ``valid`` pads nothing.

    The records are of ``<device>/tensorflow-1/fp32``.
    """
    result = Collected()
    for file, frame in tables(Path(path), "conv_*.parquet"):
        need_columns(file, frame, *_CDECATAPULT_COLUMNS)
        for row in rows(frame, *_CDECATAPULT_COLUMNS):
            device, batch, size, c_in, c_out, kernel, stride, padding, bias, act, latency, std = row
            target = Target(device_name(device), "tensorflow-1", "fp32")
            if padding not in ("same", "valid") or act not in _ACTIVATIONS:
                result.skipped["padding or activation unknown"] += 1
                continue
            signature = None
            if whole(batch, size, c_in, c_out, kernel, stride) and stride > 0:
                same = padding == "same"
                first, last = same_pads(int(size), int(kernel), int(stride)) if same else (0, 0)
                shape = Convolution(
                    int(batch), int(c_in), (int(size), int(size)), int(c_out),
                    (int(kernel), int(kernel)), int(stride), (first, first, last, last),
                    bias=bool(bias),
                )  # fmt: skip
                signature = conv_cell(shape, _ACTIVATIONS[act])
            result.add(
                target, signature, latency, protocol="cdecatapult session median",
                spread_share=std / latency if latency > 0 else 0.0,
            )  # fmt: skip
    return result


_NEUSIGHT_COLUMNS = (
    "device", "batch", "in_hw", "in_ch", "out_ch", "kernel", "stride", "padding", "latency_us",
)  # fmt: skip


def conv_neusight(path: Path) -> ImportedRecords:
    """3x3 convolutions under PyTorch 2.1 and cuDNN 8.9, FP32, on P100, P4 and T4 (NeuSight, MIT).

    ``latency_us`` is the mean of the five fastest of 25. The kernel names and launch grids that the
    files also hold are not read: a model must not see what only a measurement can tell.

    The records are of ``<device>/pytorch-2.1/fp32``.
    """
    result = Collected()
    for file, frame in tables(Path(path), "conv_*.parquet"):
        need_columns(file, frame, *_NEUSIGHT_COLUMNS)
        for row in rows(frame, *_NEUSIGHT_COLUMNS):
            device, batch, size, c_in, c_out, kernel, stride, pad, latency = row
            target = Target(device_name(device), "pytorch-2.1", "fp32")
            signature = None
            if whole(*row[1:8]) and stride > 0:
                shape = Convolution(
                    int(batch), int(c_in), (int(size), int(size)), int(c_out),
                    (int(kernel), int(kernel)), int(stride), (int(pad),) * 4,
                )  # fmt: skip
                signature = conv_cell(shape)
            result.add(target, signature, latency, protocol="neusight 5 fastest of 25")
    return result
