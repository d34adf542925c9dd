"""What an operator makes of what it reads: types by onnx's inference, constants, or unknown.

Each operator is looked at by itself, with the types and values of its inputs. What a size hangs on
has been evaluated by then, so that one way through the graph is enough. (onnx's own propagation of
sizes, its option data_prop, covers a few operators of such arithmetic only.)
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import (
    GraphProto,
    ModelProto,
    OperatorSetIdProto,
    TypeProto,
    ValueInfoProto,
    shape_inference,
)

from hybridlat.errors import NetworkError
from hybridlat.graph.network import TensorType
from hybridlat.onnx_io.fold import Known, fold_node
from hybridlat.onnx_io.nodes import FileNode, domain_of
from hybridlat.onnx_io.values import Value, data_type, dtype_name, has_schema

INFERENCE_ERRORS = (
    shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError,
)  # fmt: skip
_ORT_DTYPES = {"float": "float32", "double": "float64"}
_WORDS = re.compile(r"^.*node name: .*?\): |\[\w+Error\] ")

_log = logging.getLogger(__name__)
Opsets = tuple[tuple[str, int], ...]


def results_of(
    node: FileNode,
    name: str,
    inputs: Sequence[Known],
    opsets: Opsets,
    stated: Sequence[TensorType | None],
) -> tuple[tuple[Known, ...], str]:
    """What is known of each output of an operator, and what onnx objects to in it.

    ``inputs`` are parallel to its inputs, None for those left out; ``stated`` are the types of
    outputs that count where onnx knows none.
    """
    versions = dict(opsets)
    domain = domain_of(node.domain)
    if node.has_graph or (domain and not has_schema(node.op, domain, versions)):
        return tuple(stated), ""
    proto = node.proto(name)
    folded = fold_node(proto, inputs, (None,) * len(node.outputs), versions)
    if folded is not None:
        return folded, ""
    graph = GraphProto(name="one", node=[proto])
    for source, known in dict(zip(node.inputs, inputs, strict=True)).items():
        if isinstance(known, Value):
            graph.initializer.append(known.tensor(source))
        elif known is not None:
            graph.input.append(info_of(source, known))
    graph.output.extend([ValueInfoProto(name=out) for out in node.outputs if out])
    imports = [OperatorSetIdProto(domain=name, version=version) for name, version in opsets]
    model = ModelProto(ir_version=8, graph=graph, opset_import=imports)
    objection = ""
    try:
        model = shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except INFERENCE_ERRORS as error:
        objection = f"{node.op} {name!r}: {_WORDS.sub('', last_line(error))}"
        _log.debug("strict inference objects: %s", objection)
        with contextlib.suppress(*INFERENCE_ERRORS):
            model = shape_inference.infer_shapes(model)
    inferred = types_of((*model.graph.output, *model.graph.value_info))
    types = [inferred.get(out, type_) for out, type_ in zip(node.outputs, stated, strict=True)]
    return fold_node(proto, inputs, types, versions) or tuple(types), objection


def info_of(name: str, type_: TensorType) -> ValueInfoProto:
    """A tensor of this type, as a graph states it."""
    info = ValueInfoProto(name=name)
    info.type.tensor_type.elem_type = data_type(type_.dtype)
    info.type.tensor_type.shape.SetInParent()
    for size in type_.shape:
        info.type.tensor_type.shape.dim.add().dim_value = size
    return info


def types_of(infos: Iterable[ValueInfoProto]) -> dict[str, TensorType]:
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
    return TensorType(dtype_name(tensor.elem_type), tuple([d.dim_value for d in dims]))


def engine_types(
    frame: ModelProto, nodes: Sequence[tuple[FileNode, str]], known: Mapping[str, Known]
) -> dict[str, TensorType]:
    """ONNX Runtime's types of all results that it can say; none where it refuses the operators.

    It neither runs nor optimises anything. Weights become inputs, which leaves every shape as it
    is.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    bare = ModelProto(ir_version=frame.ir_version, opset_import=frame.opset_import)
    bare.graph.name = "types"
    for node, name in nodes:
        bare.graph.node.append(node.proto(name))
        bare.graph.output.extend([ValueInfoProto(name=out) for out in node.outputs if out])
    read = {source for node, _ in nodes for source in node.reads}
    made = {out for node, _ in nodes for out in node.outputs}
    for name in read - made:
        source = known.get(name)
        if isinstance(source, Value) and source.array is not None:
            bare.graph.initializer.append(source.tensor(name))
        elif source is not None:
            type_ = source.type if isinstance(source, Value) else source
            bare.graph.input.append(info_of(name, type_))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    named = ("EPFail", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
             "NotImplemented", "NoSuchFile", "RuntimeException")  # fmt: skip
    errors = [getattr(state, name) for name in named if hasattr(state, name)]
    try:
        session = onnxruntime.InferenceSession(
            bare.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except (RuntimeError, ValueError, *errors) as error:
        _log.debug("ONNX Runtime refuses the graph: %s", " ".join(str(error).split()))
        return {}
    types: dict[str, TensorType] = {}
    for info in session.get_outputs():
        match = re.fullmatch(r"tensor\((\w+)\)", info.type)
        if match is not None and all(isinstance(size, int) for size in info.shape):
            dtype = _ORT_DTYPES.get(match[1], match[1])
            types[info.name] = TensorType(dtype, tuple(info.shape))
    return types


def refusal(words: str) -> NetworkError:
    """What to say of a network that onnx objects to with these words, and the engine as well."""
    if "bfloat16" in words:
        return NetworkError(
            f"ONNX does not define all operators of this BF16 file for BF16 ({words}): export "
            "the model in FP32 (model.float()) and ask for a target in bf16"
        )
    if "inconsistent type" in words:
        return NetworkError(
            f"the types of the tensors do not fit together ({words}): the exporter mixed "
            "precisions; export the whole model in one, best in FP32 (model.float())"
        )
    return NetworkError(
        f"the shapes do not fit together ({words}): a file exported for other sizes may "
        "need those; give them with --shape"
    )


def last_line(error: Exception) -> str:
    """The line of onnx's words that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
