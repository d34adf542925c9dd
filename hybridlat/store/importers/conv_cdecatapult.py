"""Convolutions under TensorFlow 1 and cuDNN, FP32, on five GPUs (CDECatapult, Apache-2.0).

One row a convolution with optional bias and activation; ``latency_us`` is the wall time of a
session run and holds 140–240 µs of launch overhead. ``padding`` follows TensorFlow: ``same``
puts the odd zero behind, ``valid`` pads nothing.
"""

from __future__ import annotations

from pathlib import Path

from hybridlat.schema.device_names import device_name
from hybridlat.schema.target import Target
from hybridlat.store.importers import base
from hybridlat.store.importers._cells import Convolution, conv_cell, same_pads

_COLUMNS = (
    "device", "batch", "in_hw", "in_ch", "out_ch", "kernel", "stride", "padding", "bias",
    "activation", "latency_us", "latency_us_std",
)  # fmt: skip
_ACTIVATIONS = {"none": "", "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}


def read(path: Path, watch: base.Watch | None = None) -> base.ImportedRecords:
    """Records of ``<device>/tensorflow-1/fp32``."""
    result = base.ImportedRecords()
    for file, frame in base.tables(Path(path), "conv_*.parquet"):
        base.need_columns(file, frame, *_COLUMNS)
        for row in base.rows(frame, *_COLUMNS, watch=watch):
            device, batch, size, c_in, c_out, kernel, stride, padding, bias, act, latency, std = row
            target = Target(device_name(device), "tensorflow-1", "fp32")
            if padding not in ("same", "valid") or act not in _ACTIVATIONS:
                result.skipped["padding or activation unknown"] += 1
                continue
            signature = None
            if base.whole(batch, size, c_in, c_out, kernel, stride) and stride > 0:
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
