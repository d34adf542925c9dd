"""The constants of a file, each read once, without their weights.

Only small tensors and integers keep their values: they may decide what is computed. Candidates of
one search space share most of them, so a tensor is found again by its bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnx import TensorProto

from hybridlat.onnx_io.remembering import remembered

MOST_REMEMBERED = 8192
LARGEST_REMEMBERED = 2048
"""Bytes of a tensor."""
_SMALL_ELEMENTS = 16
_MOST_INTEGERS = 65_536
_INTEGERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A constant as its file has it, without weights: ``data`` is the protobuf."""

    name: str
    data_type: int
    data: bytes

    def proto(self) -> TensorProto:
        """The tensor as protobuf again."""
        proto: TensorProto = TensorProto.FromString(self.data)
        return proto


@remembered(MOST_REMEMBERED, LARGEST_REMEMBERED)
def file_tensor(data: bytes) -> FileTensor:
    """The tensor of these bytes, which may hold weights."""
    return lean_file_tensor(TensorProto.FromString(data))


def lean_file_tensor(tensor: TensorProto) -> FileTensor:
    """The tensor without its weights."""
    check_text(tensor.name)
    lean = lean_tensor(tensor)
    return FileTensor(lean.name, lean.data_type, lean.SerializeToString())


def check_text(*names: str | bytes) -> None:
    """UnicodeDecodeError for a name that is no text: protobuf gives such names as bytes."""
    for name in names:
        if isinstance(name, bytes):
            name.decode()


def lean_tensor(tensor: TensorProto) -> TensorProto:
    """The same tensor where it is small or of integers; else one of its kind without values."""
    elements = math.prod(tensor.dims)
    external = tensor.data_location == TensorProto.EXTERNAL
    light = elements <= _SMALL_ELEMENTS or (
        tensor.data_type in _INTEGERS and elements <= _MOST_INTEGERS
    )
    if light and not external:
        return tensor
    return TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
