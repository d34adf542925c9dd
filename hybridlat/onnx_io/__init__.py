"""ONNX files in and out: the only package that imports onnx.

A file becomes a :class:`~hybridlat.graph.network.Network` in four steps: parse without weights,
bind symbolic sizes, infer shapes, fold what only computes constants. A network or a cell becomes a
file again with seeded random weights, or with none.
"""

from hybridlat.onnx_io.file import OnnxFile, Shapes
from hybridlat.onnx_io.for_engines import assemble, random_array, to_onnx, with_outputs, zeros
from hybridlat.onnx_io.loading import (
    UNNAMED,
    ModelSource,
    Recall,
    as_bytes,
    is_model,
    load,
    read_network,
)

__all__ = [
    "UNNAMED",
    "ModelSource",
    "OnnxFile",
    "Recall",
    "Shapes",
    "as_bytes",
    "assemble",
    "is_model",
    "load",
    "random_array",
    "read_network",
    "to_onnx",
    "with_outputs",
    "zeros",
]
