"""Turn ONNX files into architecture-only ones, check them, and say what is in them.

An architecture-only file keeps the graph and drops the weights: a tensor of more than 16 floats
becomes a `ConstantOfShape` node whose output has the tensor's name and whose input is the int64
tensor `<name>__SHAPE`. The light models that ship with onnx follow the same convention. What is
needed: onnx and numpy; onnxruntime for `run`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.inliner
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

LARGEST_KEPT = 16
"""Tensors of more floats lose their values: 16 leaves scales, clip bounds and the like alone."""

WEIGHT_VALUE = 0.01
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
CONVOLUTIONS = ("Conv", "ConvTranspose")


@dataclass(frozen=True)
class Facts:
    """What the table of networks says about one file."""

    opset: int
    inputs: str
    nodes: int
    parameters: int
    flop: int


def strip(model: ModelProto) -> ModelProto:
    """Return `model` without weights, and without all that no engine reads."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[NodeProto] = []
    for node in graph.node:
        value = node.attribute[0].t if node.op_type == "Constant" else None
        if value is not None and value.data_type in FLOATS and math.prod(value.dims) > LARGEST_KEPT:
            value.name = node.output[0]
            tensors[value.name] = value
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.input} | {v.name for v in graph.output}
    for node in nodes:
        # A mask or an index map that nobody reads: training's, and without a shape in old files.
        if node.op_type in ("Dropout", "MaxPool") and used.isdisjoint(node.output[1:]):
            del node.output[1:]

    weights, kept = [], []
    for name, tensor in tensors.items():
        if name not in used:
            continue
        if tensor.data_type in FLOATS and math.prod(tensor.dims) > LARGEST_KEPT:
            shape = helper.make_tensor(
                f"{name}__SHAPE", TensorProto.INT64, [len(tensor.dims)], tensor.dims
            )
            fill = helper.make_tensor("", tensor.data_type, [1], [WEIGHT_VALUE])
            weights.append(helper.make_node("ConstantOfShape", [shape.name], [name], value=fill))
            kept.append(shape)
        else:
            # Kept inside the file, whatever the exporter had done with it.
            kept.append(numpy_helper.from_array(numpy_helper.to_array(tensor), name))

    # Before version 4 of the format every initializer was an input too, which the caller might
    # override: engines then treat no weight as a constant.
    inputs = [value for value in graph.input if value.name not in tensors]
    stripped = helper.make_model(
        helper.make_graph([*weights, *nodes], graph.name, inputs, list(graph.output), kept),
        opset_imports=[o for o in model.opset_import if o.domain in ("", "ai.onnx")],
        ir_version=max(model.ir_version, 4),
        producer_name=model.producer_name,
        producer_version=model.producer_version,
    )
    for item in (*stripped.graph.node, *stripped.graph.input, *stripped.graph.output):
        item.ClearField("doc_string")
        del item.metadata_props[:]
    return stripped


def bind(model: ModelProto, batch: int = 1) -> ModelProto:
    """Return a copy in which every symbolic dimension of an input or output is `batch`."""
    bound = ModelProto()
    bound.CopyFrom(model)
    for value in (*bound.graph.input, *bound.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if not dimension.HasField("dim_value"):
                dimension.dim_value = batch
    return bound


def shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shape of every value; raise ValueError where one is not fully known."""
    bound = bind(model)
    onnx.checker.check_model(bound, full_check=True)
    graph = onnx.shape_inference.infer_shapes(bound, strict_mode=True, data_prop=True).graph
    known = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        dimensions = value.type.tensor_type.shape.dim
        if all(dimension.HasField("dim_value") for dimension in dimensions):
            known[value.name] = tuple(dimension.dim_value for dimension in dimensions)
    unknown = [name for node in graph.node for name in node.output if name and name not in known]
    if unknown:
        raise ValueError(f"no static shape for {len(unknown)} values, first {unknown[:3]}")
    return known


def facts(model: ModelProto) -> Facts:
    """Count nodes (weights aside), parameters, and operations of convolutions and products."""
    known = shapes(model)
    graph = model.graph
    weights = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    parameters = sum(math.prod(known[node.output[0]]) for node in weights)
    parameters += sum(math.prod(t.dims) for t in graph.initializer if t.data_type in FLOATS)
    flop = 0
    for node in graph.node:
        if node.op_type in (*CONVOLUTIONS, "Gemm", "MatMul"):
            # The weight of a transposed convolution is used once per input position.
            source = node.input[0] if node.op_type == "ConvTranspose" else node.output[0]
            positions = math.prod(known[source])
            if node.op_type in CONVOLUTIONS:
                per_position = math.prod(known[node.input[1]][1:])
            else:
                transposed = any(a.name == "transA" and a.i for a in node.attribute)
                per_position = known[node.input[0]][0 if transposed else -1]
            flop += 2 * positions * per_position
    inputs = ", ".join(
        "x".join(d.dim_param or str(d.dim_value) for d in value.type.tensor_type.shape.dim)
        for value in graph.input
    )
    opset = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    return Facts(opset, inputs, len(graph.node) - len(weights), parameters, flop)


def run(model: ModelProto) -> float:
    """Run once warm under ONNX Runtime with one thread; return the milliseconds it took."""
    import onnxruntime

    bound = bind(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        bound.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    random = np.random.default_rng(0)
    feed = {
        value.name: random.normal(size=value.shape).astype(np.float32)
        for value in session.get_inputs()
    }
    session.run(None, feed)
    start = time.perf_counter()
    results = session.run(None, feed)
    elapsed = time.perf_counter() - start
    for value, result in zip(bound.graph.output, results, strict=True):
        declared = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        if declared != result.shape:
            raise ValueError(f"{value.name} is declared {declared} and is {result.shape}")
    return elapsed * 1e3
