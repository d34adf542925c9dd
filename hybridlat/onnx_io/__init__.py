"""ONNX files in and out: the only package that imports onnx.

A path, bytes or a model comes in, and goes out as an :class:`OnnxFile`; its ``network`` takes four
steps: parse without weights, bind symbolic sizes, infer shapes, fold what only computes constants.
A network or a cell becomes a file again with seeded random weights, or with none. What needs onnx
is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridlat.graph.network import Shapes
from hybridlat.onnx_io.file import (
    ModelSource,
    OnnxFile,
    Recall,
    as_bytes,
    is_model,
    load,
    read_network,
)
from hybridlat.schema.plugins import loader

if TYPE_CHECKING:
    from hybridlat.onnx_io.read import engine_network
    from hybridlat.onnx_io.tensorrt import readable
    from hybridlat.onnx_io.values import since_version
    from hybridlat.onnx_io.write import random_array, to_onnx, zeros

__all__ = [
    "ModelSource", "OnnxFile", "Recall", "Shapes", "as_bytes", "engine_network", "is_model", "load",
    "random_array", "read_network", "readable", "since_version", "to_onnx", "zeros",
]  # fmt: skip

_HOMES = {
    "engine_network": "hybridlat.onnx_io.read",
    "readable": "hybridlat.onnx_io.tensorrt",
    "since_version": "hybridlat.onnx_io.values",
    **dict.fromkeys(("random_array", "to_onnx", "zeros"), "hybridlat.onnx_io.write"),
}
__getattr__ = loader(__name__, _HOMES)
