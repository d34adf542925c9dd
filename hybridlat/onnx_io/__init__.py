"""ONNX files in and out: the only package that imports onnx."""

from hybridlat.schema.plugins import lazy

__getattr__, _HOMES = lazy(__name__)
__all__ = [*_HOMES]
