"""Fused convolutions under TensorRT on a V100, FP32 and FP16 (Alibaba TinyNAS, Apache-2.0).

``conv_<precision>.parquet``: one row a convolution with square input and "same" padding of
(kernel − 1) / 2. Bias and ReLU are taken as fused in, as the profiled networks have them;
``sum_fused`` 1 says that the residual sum is fused too. A depthwise row has a group per channel.
"""

from __future__ import annotations

from pathlib import Path

from hybridlat.errors import StoreError
from hybridlat.schema.device_names import device_name
from hybridlat.schema.target import PRECISIONS, Target
from hybridlat.store.importers import base
from hybridlat.store.importers._cells import Convolution, conv_cell

_COLUMNS = (
    "conv", "batch", "c_in", "h_in", "w_in", "c_out", "kernel", "stride", "sum_fused", "latency_us",
)  # fmt: skip


def read(path: Path, watch: base.Watch | None = None) -> base.ImportedRecords:
    """Records of ``v100/tensorrt/<precision>`` (or of the device a ``device`` column names)."""
    result = base.ImportedRecords()
    for file, frame in base.tables(Path(path), "conv_*.parquet"):
        base.need_columns(file, frame, *_COLUMNS)
        precision = file.stem.removeprefix("conv_")
        if precision not in PRECISIONS:
            raise StoreError(
                f"{file.name} names no precision: expected conv_<one of {', '.join(PRECISIONS)}>"
            )
        devices = frame["device"].tolist() if "device" in frame.columns else ["v100"] * len(frame)
        for device, row in zip(devices, base.rows(frame, *_COLUMNS, watch=watch), strict=True):
            conv, batch, c_in, height, width, c_out, kernel, stride, add, latency = row
            target = Target(device_name(device), "tensorrt", precision)
            signature = None
            if base.whole(*row[1:9]) and conv in ("regular", "depthwise"):
                pad = (int(kernel) - 1) // 2
                shape = Convolution(
                    int(batch), int(c_in), (int(height), int(width)), int(c_out),
                    (int(kernel), int(kernel)), int(stride), (pad,) * 4,
                    int(c_in) if conv == "depthwise" else 1, bias=True,
                )  # fmt: skip
                signature = conv_cell(shape, "Relu", add=bool(add))
            result.add(target, signature, latency, protocol="tinynas op_profiler")
    return result
