"""The batch and the shapes that were asked for, bound to a model's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import ModelProto

from hybridlat.errors import NetworkError

if TYPE_CHECKING:
    from hybridlat.onnx_io.file import Shapes


def bind(model: ModelProto, label: str, batch: int | None, shapes: Shapes) -> None:
    """Give every graph input a static shape."""
    initialized = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in initialized]
    kept = list(inputs)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    inputs = list(model.graph.input)
    unknown = set(shapes) - {i.name for i in inputs}
    if unknown:
        raise NetworkError(
            f"{label} has no input {sorted(unknown)[0]!r}: its inputs are "
            + ", ".join(repr(i.name) for i in inputs)
        )
    for info in inputs:
        if not info.type.HasField("tensor_type"):
            raise NetworkError(f"{label}: the input {info.name!r} is not a tensor")
        dims = info.type.tensor_type.shape.dim
        if info.name in shapes:
            wanted = shapes[info.name]
            if info.type.tensor_type.HasField("shape") and len(wanted) != len(dims):
                raise NetworkError(
                    f"{label}: the input {info.name!r} has {len(dims)} sizes, "
                    f"but --shape gives {len(wanted)}"
                )
            del dims[:]
            for size in wanted:
                dims.add().dim_value = size
        elif not info.type.tensor_type.HasField("shape"):
            raise NetworkError(
                f"{label}: the input {info.name!r} has no shape: "
                f"give it with --shape {info.name}:1x3x224x224"
            )
        if batch is not None and dims and info.name not in shapes:
            dims[0].dim_value = batch
        for axis, dim in enumerate(dims):
            if not dim.HasField("dim_value") or (axis == 0 and dim.dim_value in (0, -1)):
                if axis == 0:
                    dim.dim_value = batch if batch is not None else 1
                else:
                    example = "x".join(
                        str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?"
                        for d in dims
                    )
                    raise NetworkError(
                        f"{label}: the size {dim.dim_param or '?'!r} of the input {info.name!r} "
                        f"({example}) is open: give it with --shape {info.name}:1x3x224x224"
                    )
            if dim.dim_value <= 0:
                raise NetworkError(
                    f"{label}: the input {info.name!r} has the size {dim.dim_value} at axis {axis}"
                )
    for info in model.graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
