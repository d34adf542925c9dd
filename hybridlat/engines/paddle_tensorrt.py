"""What Paddle Inference with TensorRT runs: TensorRT's kernels.

Published tables name the version of TensorRT where they know it (``paddle-tensorrt-8.0``), else the
year of the measurement or the container it came in.
"""

from __future__ import annotations

from dataclasses import replace

from hybridlat.engines.tensorrt import lowering as tensorrt
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target

TENSORRT_OF = {"2020": "6.0", "2021": "8.0", "ngc": "8.0"}
"""The TensorRT that a version which is no TensorRT's stands for, by the releases of that time."""


def lower(network: Network, target: Target) -> Lowered:
    """The kernels TensorRT makes of ``network`` at the target's version and precision."""
    return tensorrt.lower(network, as_tensorrt(target))


def identity(target: Target) -> str:
    """That of TensorRT's lowering."""
    return tensorrt.identity(as_tensorrt(target))


def as_tensorrt(target: Target) -> Target:
    """The target with TensorRT itself as its runtime."""
    version = TENSORRT_OF.get(target.version, target.version)
    return replace(target, runtime=f"tensorrt-{version}" if version else "tensorrt")
