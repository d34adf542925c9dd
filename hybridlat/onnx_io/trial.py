"""The types of what an operator makes, found by running it once where no inference knows them.

A process of its own runs the operator, which may take any memory or time.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, helper

from hybridlat.graph.network import TensorType
from hybridlat.onnx_io.infer import Opsets, alone
from hybridlat.onnx_io.nodes import FileNode
from hybridlat.onnx_io.shapes import types_of
from hybridlat.onnx_io.values import Known, Value, data_type

MOST_BYTES = 4 << 30


def types_tried(
    node: FileNode, inputs: Sequence[Known], opsets: Opsets
) -> tuple[TensorType | None, ...]:
    """The types of its outputs; None for each where it does not run, or they depend on data."""
    fed = [v.type if isinstance(v, Value) and v.array is None else v for v in inputs]
    types = iter(_tried(alone(node.proto(), fed, opsets).SerializeToString()))
    return tuple([next(types, None) if out else None for out in node.outputs])


@functools.lru_cache(maxsize=1024)
def _tried(model: bytes) -> tuple[TensorType, ...]:
    command = [sys.executable, "-c", f"from {__name__} import run; run()"]
    try:
        done = subprocess.run(command, input=model, capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    first, second = json.loads(done.stdout)
    return tuple([TensorType(d, tuple(s)) for d, s in first]) if first == second else ()


def run() -> None:
    """Run the model of standard input on zeros and on numbers that differ; write their types."""
    import resource

    import onnxruntime

    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    model = sys.stdin.buffer.read()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    types = types_of(ModelProto.FromString(model).graph.input)
    made = []
    for step in (0, 1):
        feeds = {}
        for name, type_ in types.items():
            numbers = np.arange(type_.elements).reshape(type_.shape) * step % 100
            feeds[name] = numbers.astype(helper.tensor_dtype_to_np_dtype(data_type(type_.dtype)))
        arrays = session.run(None, feeds)
        made.append([(str(array.dtype), array.shape) for array in arrays])
    sys.stdout.write(json.dumps(made))
