"""3x3 convolutions under PyTorch 2.1 and cuDNN 8.9, FP32, on P100, P4 and T4 (NeuSight, MIT).

``latency_us`` is the mean of the five fastest of 25. The kernel names and launch grids that the
files also hold are not read: a model must not see what only a measurement can tell.
"""

from __future__ import annotations

from pathlib import Path

from hybridlat.schema.device_names import device_name
from hybridlat.schema.target import Target
from hybridlat.store.importers import base
from hybridlat.store.importers._cells import Convolution, conv_cell

_COLUMNS = (
    "device", "batch", "in_hw", "in_ch", "out_ch", "kernel", "stride", "padding", "latency_us",
)  # fmt: skip


def read(path: Path, watch: base.Watch | None = None) -> base.ImportedRecords:
    """Records of ``<device>/pytorch-2.1/fp32``."""
    result = base.ImportedRecords()
    for file, frame in base.tables(Path(path), "conv_*.parquet"):
        base.need_columns(file, frame, *_COLUMNS)
        for row in base.rows(frame, *_COLUMNS, watch=watch):
            device, batch, size, c_in, c_out, kernel, stride, pad, latency = row
            target = Target(device_name(device), "pytorch-2.1", "fp32")
            signature = None
            if base.whole(*row[1:8]) and stride > 0:
                shape = Convolution(
                    int(batch), int(c_in), (int(size), int(size)), int(c_out),
                    (int(kernel), int(kernel)), int(stride), (int(pad),) * 4,
                )  # fmt: skip
                signature = conv_cell(shape)
            result.add(target, signature, latency, protocol="neusight 5 fastest of 25")
    return result
