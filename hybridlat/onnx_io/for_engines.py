"""What engines ask for: networks as files, their own graphs as networks, arrays in and out.

onnx and numpy are loaded when one of these is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, TensorType
from hybridlat.onnx_io.loading import MAX_INLINE_BYTES

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray


def to_onnx(network: Network, seed: int | None, ir_version: int = 8) -> bytes:
    """The network, cell or kernel as a model file.

    ``seed`` None leaves weights out (ConstantOfShape nodes make them); a number fills them with
    random values of a scale that keeps activations finite and clear of denormals. Raises
    NetworkError when the weights do not fit into one file.
    """
    from hybridlat.onnx_io.writing import build

    if seed is not None and network.weight_bytes > MAX_INLINE_BYTES:
        raise NetworkError(
            f"{network.name} has {network.weight_bytes / 1e9:.1f} GB of weights, more than the "
            "2 GB of one ONNX file"
        )
    data: bytes = build(network, seed, ir_version).SerializeToString()
    return data


def assemble(model: onnx.ModelProto, name: str, types: Mapping[str, TensorType]) -> Network:
    """The network of an engine's own graph, whose tensor types the engine has told."""
    from hybridlat.onnx_io.reading import assemble as assemble_

    return assemble_(model, name, (), dict(types))


def with_outputs(path: Path, names: Sequence[str]) -> Path:
    """A copy of the model beside ``path`` that gives out the tensors ``names`` too."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    copy = path.with_name("exposed.onnx")
    copy.write_bytes(model.SerializeToString())
    return copy


def random_array(type_: TensorType, seed: int) -> NDArray[Any]:
    """Seeded random values for an input, of a scale that keeps activations ordinary."""
    from hybridlat.onnx_io.writing import random_input

    return random_input(type_, seed)


def zeros(type_: TensorType) -> NDArray[Any]:
    """A buffer for a result of this type."""
    import numpy
    import onnx

    from hybridlat.onnx_io.values import data_type

    dtype = onnx.helper.tensor_dtype_to_np_dtype(data_type(type_.dtype))
    return numpy.zeros(type_.shape, dtype)
