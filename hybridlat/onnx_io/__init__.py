"""ONNX files in and out: the only package that imports onnx.

A path, bytes or a model comes in, and goes out as an :class:`OnnxFile`; its ``network`` takes four
steps: parse without weights, bind symbolic sizes, infer shapes, fold what only computes constants.
A network or a cell becomes a file again with seeded random weights, or with none. Each of the names
in ``__init__.pyi`` is loaded when it is first used.
"""

from hybridlat.schema.plugins import lazy

__getattr__, _HOMES = lazy(__name__)
__all__ = [*_HOMES]
