"""Layer profiles of TensorRT engines (NVIDIA's trt-engine-explorer examples, Apache-2.0).

``layers.csv`` names the layers and their times but gives no shapes, and ``networks.csv`` names the
networks without their graphs. No signature can be made of a name alone, so every row is counted
and left out: the files serve to compare sums of profiled layers with whole engines.
"""

from __future__ import annotations

from pathlib import Path

from hybridlat.store.importers import base


def read(path: Path, watch: base.Watch | None = None) -> base.Imported:
    """No records; ``skipped`` says how many layers and networks there were."""
    result = base.Imported()
    for file, frame in base.tables(Path(path), "layers.csv"):
        base.need_columns(file, frame, "device", "model", "layer", "median_us")
        result.skipped["layer without shapes"] += len(frame)
    for file, frame in base.tables(Path(path), "networks.csv"):
        base.need_columns(file, frame, "device", "model", "net_median_us")
        result.skipped["network without its graph"] += len(frame)
    return result
