"""From a parsed model to a Network: validate, strip, bind, infer, fold. Used by onnx_io alone."""

from __future__ import annotations

import hashlib
import itertools
import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx
from onnx import ModelProto, NodeProto, TensorProto

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.onnx_io.checks import check_network
from hybridlat.onnx_io.inference import DATA_DEPENDENT, behind_data, settle
from hybridlat.onnx_io.nodes import FileNode, file_node, file_nodes
from hybridlat.onnx_io.splitting import framed_graph, split_graph
from hybridlat.onnx_io.tensors import FileTensor, file_tensor, lean_file_tensor, lean_tensor
from hybridlat.onnx_io.values import (
    attributes_of,
    constant_of,
    dtype_name,
    keeps_float_values,
    since_version,
)

if TYPE_CHECKING:
    from hybridlat.onnx_io import OnnxFile, Shapes

CONTROL_FLOW = ("If", "Loop", "Scan")
OLDEST_OPSET = 7
_LIGHT_ELEMENTS = 65_536
_STANDARD = frozenset({"", "ai.onnx", "ai.onnx.ml"})
_FLOATS = ("float", "bfloat", "double")


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
    read = _at_a_glance(model)
    if read is None:
        nodes = tuple([file_node(_lean(node)) for node in model.graph.node])
        validate(model, nodes, label)
        return _strip(model, nodes)
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


def _strip(model: ModelProto, nodes: tuple[FileNode, ...]) -> Parsed:
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
        from onnx import inliner

        lean = inliner.inline_local_functions(lean)
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


def unique_names(nodes: Sequence[FileNode]) -> tuple[str, ...]:
    """Names of the nodes in file order; missing and repeated ones get a number."""
    given = [node.name for node in nodes]
    distinct = set(given)
    if len(distinct) == len(given) and "" not in distinct:
        return tuple(given)
    counts = Counter(given)
    taken = {name for name, count in counts.items() if count == 1 and name}
    names = []
    for position, node in enumerate(nodes):
        name = node.name
        if not name or counts[name] > 1:
            name = f"{node.name or node.op}_{position}"
            while name in taken:
                name += "_"
        taken.add(name)
        names.append(name)
    return tuple(names)


def structure_digest(model: ModelProto, nodes: Sequence[FileNode]) -> bytes:
    """Digest of everything but names: operators, links, attributes, types, structural values."""
    number: dict[str, int] = {"": -1}
    digest = hashlib.sha256()
    parts: list[object] = [(o.domain, o.version) for o in model.opset_import]
    blobs: list[bytes] = []
    for info in model.graph.input:
        number.setdefault(info.name, len(number))
        blobs.append(info.type.SerializeToString(deterministic=True))
    tensors = model.graph.initializer
    floats = {t.name for t in tensors if dtype_name(t.data_type).startswith(_FLOATS)}
    float_users = {
        name: node for node in nodes for name in node.inputs
        if name in floats and node.op != "Identity"
    } if floats else {}  # fmt: skip
    for tensor in tensors:
        number.setdefault(tensor.name, len(number))
        parts.append((number[tensor.name], tensor.data_type, tuple(tensor.dims)))
        user = float_users.get(tensor.name)
        if user is None or keeps_float_values(user.op, tensor.dims):
            lean = TensorProto()
            lean.CopyFrom(tensor)
            lean.ClearField("name")
            lean.ClearField("doc_string")
            blobs.append(lean.SerializeToString(deterministic=True))
    listed = list(itertools.chain.from_iterable([node.links for node in nodes]))
    different = dict.fromkeys(listed)  # names, and how many follow
    for item in different:
        if not isinstance(item, int):  # bytes where a damaged file's name is no text
            number.setdefault(item, len(number))
    places = {item: item for item in different if isinstance(item, int)} | number
    links = array("q", map(places.__getitem__, listed))
    links.extend([number.get(info.name, -2) for info in model.graph.output])
    digest.update(repr(parts).encode())
    digest.update(links.tobytes())
    for blob in blobs:
        digest.update(len(blob).to_bytes(4, "little"))
        digest.update(blob)
    digest.update(b"".join([node.structure for node in nodes]))
    return digest.digest()


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
    _sort(model, file.name)
    bind(model, file.name, batch, shapes)
    settled = settle(model, file.name)
    network = assemble(model, file.name, settled.folded, settled.types)
    network = replace(network, left_out=settled.left_out)
    check_network(network, batch)
    return network


def _sort(model: ModelProto, label: str) -> None:
    """Put the nodes in topological order; NetworkError for cycles, unknown and repeated tensors."""
    made: dict[str, int] = {}
    for position, node in enumerate(model.graph.node):
        for out in node.output:
            if out and out in made:
                raise NetworkError(f"{label}: the tensor {out!r} is made by two operators")
            if out:
                made[out] = position
    given = {i.name for i in model.graph.input} | {i.name for i in model.graph.initializer}
    state = [0] * len(model.graph.node)
    order: list[int] = []
    for start in range(len(model.graph.node)):
        stack = [start]
        while stack:
            position = stack[-1]
            if state[position] == 2:
                stack.pop()
                continue
            state[position] = 1
            pending = []
            for name in model.graph.node[position].input:
                if not name or (name in given and name not in made):
                    continue
                if name not in made:
                    node = model.graph.node[position]
                    raise NetworkError(
                        f"{label}: {node.op_type} {node.name!r} reads the tensor {name!r}, which "
                        "nothing makes"
                    )
                source = made[name]
                if state[source] == 1:
                    raise NetworkError(f"{label}: the graph has a cycle through {name!r}")
                if state[source] == 0:
                    pending.append(source)
            if pending:
                stack.append(pending[0])
            else:
                state[position] = 2
                order.append(position)
                stack.pop()
    for info in model.graph.output:
        if info.name not in made and info.name not in given:
            raise NetworkError(f"{label}: the output {info.name!r} is made by no operator")
    if order != sorted(order):
        nodes = [model.graph.node[i] for i in order]
        copies = [NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del model.graph.node[:]
        model.graph.node.extend(copies)


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
