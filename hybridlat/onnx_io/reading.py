"""From a parsed model to a Network: sort, bind, infer, fold. Used by onnx_io alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnx import ModelProto, NodeProto

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.onnx_io.binding import bind
from hybridlat.onnx_io.checks import check_network
from hybridlat.onnx_io.inference import DATA_DEPENDENT, settle
from hybridlat.onnx_io.sorting import sort
from hybridlat.onnx_io.values import attributes_of, constant_of, keeps_float_values, since_version

if TYPE_CHECKING:
    from hybridlat.onnx_io.file import OnnxFile, Shapes


def to_network(file: OnnxFile, batch: int | None, shapes: Shapes) -> Network:
    """Bind, infer, fold; see :meth:`hybridlat.onnx_io.OnnxFile.network`."""
    model = ModelProto()
    model.CopyFrom(file.model)
    for node, name in zip(model.graph.node, file.node_names, strict=True):
        node.name = name
        if node.domain == "ai.onnx":
            node.domain = ""
    for imported in model.opset_import:
        if imported.domain == "ai.onnx":
            imported.domain = ""
    sort(model, file.name)
    bind(model, file.name, batch, shapes)
    settled = settle(model, file.name)
    network = assemble(model, file.name, settled.folded, settled.types)
    network = replace(network, left_out=settled.left_out)
    check_network(network, batch)
    return network


def _no_shape(node: NodeProto, domain: str, name: str, label: str) -> str:
    """Why a result has no static shape, and what would help."""
    if not domain and node.op_type in DATA_DEPENDENT:
        return (
            f"{label}: the shape of {name!r} depends on data ({node.op_type} {node.name!r}): "
            "export the network without what comes after it, its post-processing"
        )
    where = f"{node.op_type} {node.name!r}" + (f" of the domain {domain!r}" if domain else "")
    return (
        f"{label}: the shape of {name!r}, made by {where}, cannot be worked out, neither by onnx "
        "nor by ONNX Runtime: state it in the file's value_info, or export with fixed sizes"
    )


def assemble(
    model: ModelProto, label: str, folded: tuple[str, ...], types: dict[str, TensorType]
) -> Network:
    """The network of a model whose tensors all have a known type."""
    graph = model.graph
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    tensors = {t.name: t for t in graph.initializer}
    users: dict[str, str] = {}
    nodes: list[Node] = []
    activations: dict[str, TensorType] = {}
    for info in graph.input:
        if info.name not in types:
            raise NetworkError(f"{label}: the shape of the input {info.name!r} is unknown")
        activations[info.name] = types[info.name]
    for proto in graph.node:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        for name in proto.input:
            if name in tensors and users.get(name) != "weight":
                dims = tensors[name].dims
                users[name] = "value" if keeps_float_values(proto.op_type, dims) else "weight"
        for name in proto.output:
            if not name:
                continue
            if name not in types:
                raise NetworkError(_no_shape(proto, domain, name, label))
            activations[name] = types[name]
        nodes.append(
            Node(
                name=proto.name,
                op=proto.op_type,
                domain=domain,
                version=since_version(proto.op_type, domain, opsets),
                inputs=tuple(proto.input),
                outputs=tuple(proto.output),
                attributes=attributes_of(proto, domain, opsets),
            )
        )
    constants: dict[str, Constant] = {
        name: constant_of(tensors[name], use == "value") for name, use in users.items()
    }
    outputs = tuple(dict.fromkeys(o.name for o in graph.output if o.name in activations))
    if not outputs or not nodes:
        raise NetworkError(f"{label} computes nothing but constants")
    inputs = tuple(i.name for i in graph.input)
    return Network(label, tuple(nodes), inputs, outputs, activations, constants, folded)
