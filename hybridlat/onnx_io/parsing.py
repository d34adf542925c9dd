"""The parts of a whole model, its weights left behind: validate, inline, strip."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import ModelProto, NodeProto, TensorProto

from hybridlat.errors import NetworkError
from hybridlat.graph.order import topological_order
from hybridlat.onnx_io.inference import INFERENCE_ERRORS, behind_data
from hybridlat.onnx_io.nodes import FileNode, file_node, file_nodes
from hybridlat.onnx_io.splitting import framed_graph, split_graph
from hybridlat.onnx_io.tensors import (
    FileTensor,
    check_text,
    file_tensor,
    lean_file_tensor,
    lean_tensor,
)

CONTROL_FLOW = ("If", "Loop", "Scan")
OLDEST_OPSET = 7
MAX_INLINED_OPERATORS = 200_000
_LIGHT_ELEMENTS = 65_536
_STANDARD = frozenset({"", "ai.onnx", "ai.onnx.ml"})


def validate(model: ModelProto, nodes: Sequence[FileNode], label: str) -> None:
    """NetworkError unless this is a whole model of a kind that can be read."""
    graph = model.graph
    if not nodes:
        raise NetworkError(f"{label} holds no operators: it is not an ONNX model, or an empty one")
    if not graph.output:
        raise NetworkError(f"{label} has no outputs")
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    newest = onnx.defs.onnx_opset_version()
    if opset is None and any(n.domain in ("", "ai.onnx") for n in nodes):
        raise NetworkError(f"{label} does not say which ONNX opset it uses")
    if opset is not None and not OLDEST_OPSET <= opset <= newest:
        raise NetworkError(
            f"{label} uses opset {opset}: opsets {OLDEST_OPSET} to {newest} can be read; "
            "convert it with onnx.version_converter"
        )
    flow = [n for n in nodes if n.op in CONTROL_FLOW and n.domain in ("", "ai.onnx")]
    after = behind_data(nodes) if flow else set()
    for node in flow:
        if not after.intersection(node.reads):
            raise NetworkError(
                f"{label} has control flow ({node.op} {node.name!r}): its latency depends on "
                "data; export the network with the branch fixed"
            )


@dataclass(frozen=True, slots=True)
class Parsed:
    """A model without weights: its operators, its constants, and the rest of it as protobuf."""

    frame: bytes
    tensors: tuple[FileTensor, ...]
    nodes: tuple[FileNode, ...]

    def head(self) -> ModelProto:
        """The model with its constants, but without operators."""
        model: ModelProto = ModelProto.FromString(self.frame)
        model.graph.initializer.extend([tensor.proto() for tensor in self.tensors])
        return model


def parsed(model: ModelProto, label: str) -> Parsed:
    """The model without weights, its functions inlined; NetworkError if it is no whole one."""
    check_text(model.graph.name, *[opset.domain for opset in model.opset_import])
    for info in (*model.graph.input, *model.graph.output):
        check_text(info.name, *[size.dim_param for size in info.type.tensor_type.shape.dim])
    read = _at_a_glance(model)
    if read is None:
        nodes = tuple([file_node(_lean(node)) for node in model.graph.node])
        validate(model, nodes, label)
        return _strip(model, nodes, label)
    validate(model, read.nodes, label)
    return read


def _at_a_glance(model: ModelProto) -> Parsed | None:
    """The parts of a light and usual model, as they stand in its protobuf; None for any other."""
    graph, elements = model.graph, 0
    if model.functions or not graph.name:
        return None
    for tensor in graph.initializer:
        elements += math.prod(tensor.dims)
        if elements > _LIGHT_ELEMENTS:  # weights would be written, only to be thrown away
            return None
    parts = split_graph(graph.SerializeToString())
    if parts is None:
        return None
    nodes = tuple([
        file_node(_lean_constant(data)) if node.op == "Constant" else node
        for data, node in zip(parts.nodes, map(file_node, parts.nodes), strict=True)
    ])  # fmt: skip
    if any(node.domain not in _STANDARD for node in nodes):
        return None
    before, behind = ModelProto(ir_version=model.ir_version), ModelProto()
    behind.opset_import.extend(model.opset_import)
    around = before.SerializeToString(), behind.SerializeToString()
    frame = framed_graph(parts.rest).join(around)  # in the order in which protobuf writes them
    return Parsed(frame, tuple(map(file_tensor, parts.tensors)), nodes)


def _lean(node: NodeProto) -> bytes:
    written: bytes = node.SerializeToString()
    return _lean_constant(written) if node.op_type == "Constant" else written


def _inlined(model: ModelProto, label: str) -> ModelProto:
    """The model without functions of its own; NetworkError where that makes it endless."""
    from onnx import inliner

    places = {(f.domain, f.name): place for place, f in enumerate(model.functions)}
    calls = [_calls(function.node, places) for function in model.functions]
    order = topological_order([set(called) for called in calls])
    if len(order) < len(calls):
        raise NetworkError(f"{label} has functions that call each other in a circle")
    sizes = [len(function.node) for function in model.functions]
    for place in order:
        sizes[place] += sum(sizes[called] for called in calls[place])
    operators = sum(sizes[called] for called in _calls(model.graph.node, places))
    if operators > MAX_INLINED_OPERATORS:
        raise NetworkError(
            f"{label} has functions that stand for {operators:.3g} operators: "
            f"at most {MAX_INLINED_OPERATORS} can be read"
        )
    try:
        return inliner.inline_local_functions(model)
    except INFERENCE_ERRORS as error:
        raise NetworkError(f"{label} has functions that cannot be inlined: {error}") from error


def _calls(nodes: Iterable[NodeProto], places: Mapping[tuple[str, str], int]) -> list[int]:
    """The functions that these operators call, those in their branches too."""
    called = []
    for node in nodes:
        if (node.domain, node.op_type) in places:
            called.append(places[node.domain, node.op_type])
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                called += _calls(graph.node, places)
    return called


def _strip(model: ModelProto, nodes: tuple[FileNode, ...], label: str) -> Parsed:
    lean = ModelProto()
    lean.ir_version = model.ir_version
    lean.opset_import.extend(model.opset_import)
    graph = lean.graph
    graph.name = model.graph.name or "network"
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    for tensor in model.graph.initializer:
        graph.initializer.append(lean_tensor(tensor))
    for sparse in model.graph.sparse_initializer:
        graph.initializer.append(
            TensorProto(
                name=sparse.values.name, dims=sparse.dims, data_type=sparse.values.data_type
            )
        )
    if model.functions:
        graph.node.extend(node.proto() for node in nodes)
        lean.functions.extend(model.functions)
        lean = _inlined(lean, label)
        nodes = file_nodes(lean.graph.node)
        del lean.graph.node[:]
    known = {d.domain for d in lean.opset_import} & _STANDARD
    foreign = {o for n in nodes if n.domain not in known for o in n.outputs}
    if foreign:
        lean.graph.value_info.extend(v for v in model.graph.value_info if v.name in foreign)
    tensors = tuple(map(lean_file_tensor, lean.graph.initializer))
    del lean.graph.initializer[:]
    return Parsed(lean.SerializeToString(), tensors, nodes)


def _lean_constant(data: bytes) -> bytes:
    lean = NodeProto.FromString(data)
    for attribute in lean.attribute:
        if attribute.HasField("t"):
            attribute.t.CopyFrom(lean_tensor(attribute.t))
    written: bytes = lean.SerializeToString()
    return written
