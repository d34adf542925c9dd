"""What Paddle Inference with TensorRT runs: TensorRT's kernels.

Published tables name the version of TensorRT where they know it (``paddle-tensorrt-8.0``), else the
year of the measurement or the container it came in.
"""

from __future__ import annotations

from collections.abc import Callable

from hybridlat.core.network import Lowered, Network
from hybridlat.core.target import Target
from hybridlat.lowering import tensorrt

TENSORRT_OF = {"2020": "6.0", "2021": "8.0", "ngc": "8.0"}
"""The TensorRT that a version which is no TensorRT's stands for, by the releases of that time."""


def lower(network: Network, version: str = "") -> Lowered:
    """The kernels that TensorRT makes of ``network`` in the precision it is written in."""
    return tensorrt.lower(network, TENSORRT_OF.get(version, version))


def for_target(target: Target) -> Callable[[Network], Lowered]:
    """The lowering for a target's version and precision."""
    return tensorrt.in_precision(TENSORRT_OF.get(target.version, target.version), target.precision)
