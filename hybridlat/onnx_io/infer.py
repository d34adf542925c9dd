"""A static type for every tensor: onnx's inference with folding in between, else the engine's.

What a size hangs on is evaluated with its values, once, and the operators behind it are inferred
one by one as it becomes known. onnx's own propagation of sizes (its option data_prop) covers a few
operators of such arithmetic only, so it would need a pass over the whole graph for every size.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, shape_inference

from hybridlat.errors import NetworkError
from hybridlat.graph.network import TensorType
from hybridlat.onnx_io.fold import fold_node
from hybridlat.onnx_io.nodes import FileNode, reads
from hybridlat.onnx_io.values import INTEGERS, SMALL_ELEMENTS, Value, data_type, dtype_name

INFERENCE_ERRORS = (
    shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError,
)  # fmt: skip
_ORT_DTYPES = {"float": "float32", "double": "float64"}

_log = logging.getLogger(__name__)
Types = dict[str, TensorType]


DATA_DEPENDENT = ("NonZero", "NonMaxSuppression", "Unique", "Compress")
"""The sizes of their results depend on the data."""


@dataclass(frozen=True)
class Settled:
    """Types of the tensors, names of the nodes folded away, (name, operator) of those left out."""

    types: Types
    folded: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def settle(model: ModelProto) -> Settled:
    """A static type for every tensor that has one; ``model`` loses the nodes folded or left out.

    Passes of inference and folding end when onnx's strict inference agrees with everything. Where
    it does not, or where it cannot work out a shape, ONNX Runtime's types of the graph count.
    Raises NetworkError with onnx's words when the engine refuses it too.
    """
    opsets = {o.domain: o.version for o in model.opset_import}
    folded: list[str] = []
    before = len(model.graph.node) + 1
    while True:
        types, doubt = _infer(model)
        settled = doubt is None and not _open(model, types)
        objections: list[str] = []
        gone = _fold(model, types, opsets, objections)
        folded.extend(gone)
        left = _open(model, types)
        if settled or (not gone and left >= before):
            break
        before = left
    left_out = () if settled else _leave_out(model, types)
    if left_out:
        rest = settle(model)
        return Settled(rest.types, (*folded, *rest.folded), (*left_out, *rest.left_out))
    if not settled:
        _ask_engine(model, types, doubt, objections)
        folded.extend(_fold(model, types, opsets, objections))
    return Settled(types, tuple(folded))


def behind_data(nodes: Iterable[FileNode]) -> set[str]:
    """The tensors that depend on an operator whose result may have a size that depends on data."""
    after: set[str] = set()
    for node in nodes:
        starts = node.domain in ("", "ai.onnx") and node.op in DATA_DEPENDENT
        if starts or (after and after.intersection(node.reads)):
            after.update(out for out in node.outputs if out)
    return after


def _leave_out(model: ModelProto, types: Types) -> tuple[tuple[str, str], ...]:
    """Take out the operators whose sizes depend on data, and all that are behind them.

    What they read becomes an output of the graph. Nothing happens where nothing else would stay.
    """
    graph = model.graph
    unknown: set[str] = set()
    gone: list[NodeProto] = []
    for node in graph.node:
        open_ = any(out and out not in types for out in node.output)
        starts = open_ and node.domain == "" and node.op_type in DATA_DEPENDENT
        if starts or unknown.intersection(reads(node)):
            gone.append(node)
            unknown.update(out for out in node.output if out)
    taken = {id(node) for node in gone}
    read = Counter(name for node in graph.node if id(node) not in taken for name in reads(node))
    read.update(info.name for info in graph.output)
    for node in reversed(graph.node):  # what is empty, and read by those alone, is no work either
        empty = all(out in types and not types[out].elements for out in node.output if out)
        if empty and id(node) not in taken and not any(read[out] for out in node.output):
            gone.append(node)
            taken.add(id(node))
            unknown.update(node.output)
            read.subtract(node.input)
    kept = [node for node in graph.node if id(node) not in taken]
    made = {out for node in kept for out in node.output if out}
    outputs = [info for info in graph.output if info.name not in unknown]
    known = {info.name for info in outputs}
    ends_at = dict.fromkeys(name for node in gone for name in reads(node))
    outputs += [ValueInfoProto(name=n) for n in ends_at if n in made and n not in known]
    if not gone or not any(info.name in made for info in outputs):
        return ()
    left_out = tuple((node.name, node.op_type) for node in gone)
    copies = [NodeProto.FromString(n.SerializeToString()) for n in kept]
    ends = [ValueInfoProto.FromString(o.SerializeToString()) for o in outputs]
    infos = [v for v in graph.value_info if v.name not in unknown]
    for field, values in ((graph.node, copies), (graph.output, ends), (graph.value_info, infos)):
        del field[:]
        field.extend(values)
    return left_out


def _infer(model: ModelProto) -> tuple[Types, Exception | None]:
    """onnx's types of the whole graph, and its objection if it has one."""
    doubt: Exception | None = None
    try:
        inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except INFERENCE_ERRORS as error:
        doubt = error
        _log.debug("strict inference objects: %s", error)
        try:
            inferred = shape_inference.infer_shapes(model)
        except INFERENCE_ERRORS as worse:
            raise NetworkError(
                f"onnx cannot check the graph: {last_line(worse)}; export the network again"
            ) from worse
    return static_types(inferred), doubt


def static_types(model: ModelProto) -> Types:
    """The types that the model states, of tensors whose sizes are all numbers."""
    graph = model.graph
    return types_of((*graph.input, *graph.value_info, *graph.output))


def types_of(infos: Iterable[ValueInfoProto]) -> Types:
    """The types of those tensors whose sizes are all numbers."""
    types = ((info.name, _static(info.type)) for info in infos)
    return {name: type_ for name, type_ in types if type_ is not None}


def _static(proto: TypeProto) -> TensorType | None:
    tensor = proto.tensor_type
    if not proto.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    if not all(d.HasField("dim_value") for d in dims):
        return None
    return TensorType(dtype_name(tensor.elem_type), tuple(d.dim_value for d in dims))


def _open(model: ModelProto, types: Types) -> int:
    """How many results have no static type."""
    return sum(bool(out) and out not in types for n in model.graph.node for out in n.output)


def _fold(
    model: ModelProto, types: Types, opsets: dict[str, int], objections: list[str]
) -> list[str]:
    """Replace nodes that only compute constants by initializers; names of the nodes that went.

    Types that become known on the way are added to ``types``, what onnx objects to in an operator
    to ``objections``.
    """
    graph = model.graph
    values: dict[str, Value] = {i.name: Value.of_tensor(i) for i in graph.initializer}
    kept: list[NodeProto] = []
    gone: list[str] = []
    made: list[TensorProto] = []
    for node in graph.node:
        result = fold_node(node, values, types, opsets)
        if result is None and any(o and o not in types for o in node.output):
            types.update(_infer_node(node, values, types, model, objections))
            result = fold_node(node, values, types, opsets)
        if result is None:
            kept.append(node)
            continue
        gone.append(node.name)
        for name, value in result.items():
            values[name] = value
            types[name] = value.type
            made.append(value.to_tensor(name))
    if gone:
        copies = [NodeProto.FromString(n.SerializeToString()) for n in kept]
        del graph.node[:]
        graph.node.extend(copies)
        graph.initializer.extend(made)
        made_names = {t.name for t in made}
        infos = [v for v in graph.value_info if v.name not in made_names]
        del graph.value_info[:]
        graph.value_info.extend(infos)
    return gone


def _infer_node(
    node: NodeProto,
    values: dict[str, Value],
    types: Types,
    model: ModelProto,
    objections: list[str],
) -> Types:
    """onnx's types of one node's results, as far as it can say them from its inputs."""
    version = next((o.version for o in model.opset_import if o.domain == node.domain), None)
    if version is None or not onnx.defs.has(node.op_type, node.domain):
        return {}
    inputs: dict[str, TypeProto] = {}
    data: dict[str, TensorProto] = {}
    for name in node.input:
        if not name or name in inputs:
            continue
        value = values.get(name)
        type_ = value.type if value is not None else types.get(name)
        if type_ is None:
            return {}
        inputs[name] = onnx.helper.make_tensor_type_proto(data_type(type_.dtype), type_.shape)
        small = type_.dtype in INTEGERS or type_.elements <= SMALL_ELEMENTS
        if value is not None and value.array is not None and small:
            data[name] = value.to_tensor(name)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        inferred = shape_inference.infer_node_outputs(
            schema, node, inputs, data, opset_imports=list(model.opset_import)
        )
    except (*INFERENCE_ERRORS, onnx.defs.SchemaError) as error:
        objections.append(f"{node.op_type} {node.name!r}: {last_line(error)}")
        return {}
    static = {name: _static(proto) for name, proto in inferred.items()}
    return {name: type_ for name, type_ in static.items() if name and type_ is not None}


def _ask_engine(
    model: ModelProto, types: Types, doubt: Exception | None, objections: list[str]
) -> None:
    """Put ONNX Runtime's types over ours; NetworkError when onnx objects and it cannot say more."""
    engine_types: Types = {}
    try:
        engine_types = _engine_types(model)
    except _engine_errors() as error:
        _log.debug("ONNX Runtime refuses the graph: %s", " ".join(str(error).split()))
    types.update(engine_types)
    if doubt is None:
        return
    if not engine_types or _open(model, types):
        words = objections[0] if objections else last_line(doubt)
        if "bfloat16" in words:
            reason = (
                f"ONNX does not define all operators of this BF16 file for BF16 ({words}): export "
                "the model in FP32 (model.float()) and ask for a target in bf16"
            )
        elif "inconsistent type" in words:
            reason = (
                f"the types of the tensors do not fit together ({words}): the exporter mixed "
                "precisions; export the whole model in one, best in FP32 (model.float())"
            )
        else:
            reason = (
                f"the shapes do not fit together ({words}): a file exported for other sizes may "
                "need those; give them with --shape"
            )
        raise NetworkError(reason) from doubt
    _log.info("onnx objects, ONNX Runtime does not: %s", last_line(doubt))


def _engine_errors() -> tuple[type[Exception], ...]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    named = ("EPFail", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
             "NotImplemented", "NoSuchFile", "RuntimeException")  # fmt: skip
    errors = [getattr(state, name) for name in named if hasattr(state, name)]
    return (RuntimeError, ValueError, *errors)


def _engine_types(model: ModelProto) -> Types:
    """Types of all results that ONNX Runtime can say, without running or optimising anything.

    Weights without values become inputs, which leaves every shape as it is.
    """
    import onnxruntime

    bare = ModelProto()
    bare.CopyFrom(model)
    graph = bare.graph
    del graph.value_info[:]
    del graph.output[:]
    full: list[TensorProto] = []
    for tensor in graph.initializer:
        value = Value.of_tensor(tensor)
        if value.array is not None:
            full.append(TensorProto.FromString(tensor.SerializeToString()))
            continue
        graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        )
    del graph.initializer[:]
    graph.initializer.extend(full)
    graph.output.extend(ValueInfoProto(name=o) for n in graph.node for o in n.output if o)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        bare.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    types: Types = {}
    for info in session.get_outputs():
        match = re.fullmatch(r"tensor\((\w+)\)", info.type)
        if match is not None and all(isinstance(size, int) for size in info.shape):
            dtype = _ORT_DTYPES.get(match[1], match[1])
            types[info.name] = TensorType(dtype, tuple(info.shape))
    return types


def last_line(error: Exception) -> str:
    """The line of onnx's words that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
