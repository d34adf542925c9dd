"""From a parsed model to a Network: sort, bind, infer, fold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from onnx import ModelProto, NodeProto

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Constant, Network, Node, Shapes, TensorType
from hybridlat.graph.order import topological_order
from hybridlat.onnx_io.bind import bind, check_network
from hybridlat.onnx_io.infer import DATA_DEPENDENT, settle
from hybridlat.onnx_io.nodes import file_node, node_of
from hybridlat.onnx_io.parse import Parsed, parse, parse_model
from hybridlat.onnx_io.quick import quick_network
from hybridlat.onnx_io.values import constant_of, keeps_float_values


@contextlib.contextmanager
def naming(label: str) -> Iterator[None]:
    """Put the file's name before what is wrong with it."""
    try:
        yield
    except NetworkError as error:
        raise NetworkError(f"{label}: {error}") from error.__cause__
    except UnicodeDecodeError as error:
        raise NetworkError(
            f"{label}: a name in the file is not text, so the file is damaged: export it again"
        ) from error


def parsed_file(source: bytes | ModelProto, label: str) -> Parsed:
    """The parts of a file or model. Raises NetworkError, with the label before it."""
    with naming(label):
        return parse(source) if isinstance(source, bytes) else parse_model(source)


def network_of(parsed: Parsed, name: str, batch: int | None, shapes: Shapes) -> Network:
    """The network with every size bound; NetworkError says what is wrong or missing."""
    with naming(name):
        quick = quick_network(parsed, name, batch, shapes)
        return quick if quick is not None else to_network(parsed, name, batch, shapes)


def engine_network(model: ModelProto, name: str, types: Mapping[str, TensorType]) -> Network:
    """The network of an engine's own graph, with the tensor types that the engine gives."""
    with naming(name):
        return _assembled(model, name, (), types)


def to_network(parsed: Parsed, name: str, batch: int | None, shapes: Shapes) -> Network:
    """The careful way, which looks at the whole graph: bind, infer, fold."""
    model = ModelProto()
    model.CopyFrom(parsed.model)
    for node, node_name in zip(model.graph.node, parsed.node_names, strict=True):
        node.name = node_name
        if node.domain == "ai.onnx":
            node.domain = ""
    for imported in model.opset_import:
        if imported.domain == "ai.onnx":
            imported.domain = ""
    sort(model)
    bind(model, batch, shapes)
    settled = settle(model)
    network = _assembled(model, name, settled.folded, settled.types)
    network = replace(network, left_out=settled.left_out)
    check_network(network, batch)
    return network


def sort(model: ModelProto) -> None:
    """Put the nodes in topological order; NetworkError for cycles, unknown and repeated tensors."""
    nodes = list(model.graph.node)
    made: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for out in node.output:
            if out and out in made:
                raise NetworkError(f"the tensor {out!r} is made by two operators")
            if out:
                made[out] = position
    given = {i.name for i in model.graph.input} | {i.name for i in model.graph.initializer}
    for node in nodes:
        for name in node.input:
            if name and name not in made and name not in given:
                raise NetworkError(
                    f"{node.op_type} {node.name!r} reads the tensor {name!r}, which nothing makes"
                )
    needs = [{made[name] for name in node.input if name in made} for node in nodes]
    order = topological_order(needs)
    if len(order) < len(nodes):
        tensor = _on_a_cycle(nodes, made, set(order))
        raise NetworkError(f"the graph has a cycle through {tensor!r}")
    for info in model.graph.output:
        if info.name not in made and info.name not in given:
            raise NetworkError(f"the output {info.name!r} is made by no operator")
    if order != sorted(order):
        copies = [NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
        del model.graph.node[:]
        model.graph.node.extend(copies)


def _on_a_cycle(nodes: Sequence[NodeProto], made: Mapping[str, int], free: set[int]) -> str:
    """A tensor on a cycle: the way back through nodes that are not ``free`` ends on one."""
    position = next(i for i in range(len(nodes)) if i not in free)
    name = ""
    for _ in nodes:
        name = next(n for n in nodes[position].input if n in made and made[n] not in free)
        position = made[name]
    return name


def _no_shape(node: NodeProto, name: str) -> str:
    """Why a result has no static shape, and what would help."""
    if not node.domain and node.op_type in DATA_DEPENDENT:
        return (
            f"the shape of {name!r} depends on data ({node.op_type} {node.name!r}): "
            "export the network without what comes after it, its post-processing"
        )
    domain = f" of the domain {node.domain!r}" if node.domain else ""
    return (
        f"the shape of {name!r}, made by {node.op_type} {node.name!r}{domain}, cannot be worked "
        "out, neither by onnx nor by ONNX Runtime: state it in the file's value_info, or export "
        "with fixed sizes"
    )


def _assembled(
    model: ModelProto, name: str, folded: tuple[str, ...], types: Mapping[str, TensorType]
) -> Network:
    """The network of a model whose tensors all have a known type."""
    graph = model.graph
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    tensors = {t.name: t for t in graph.initializer}
    keeps: dict[str, bool] = {}
    nodes: list[Node] = []
    activations: dict[str, TensorType] = {}
    for info in graph.input:
        if info.name not in types:
            raise NetworkError(
                f"the shape of the input {info.name!r} is unknown: give it with --shape"
            )
        activations[info.name] = types[info.name]
    for proto in graph.node:
        for source in proto.input:
            if source in tensors and keeps.get(source) is not False:
                keeps[source] = keeps_float_values(proto.op_type, tensors[source].dims)
        for out in proto.output:
            if out and out not in types:
                raise NetworkError(_no_shape(proto, out))
            if out:
                activations[out] = types[out]
        nodes.append(node_of(file_node(proto.SerializeToString()), proto.name, opsets))
    constants: dict[str, Constant] = {
        source: constant_of(tensors[source], keep) for source, keep in keeps.items()
    }
    outputs = tuple(dict.fromkeys(o.name for o in graph.output if o.name in activations))
    if not outputs or not nodes:
        raise NetworkError("it computes nothing but constants")
    inputs = tuple(i.name for i in graph.input)
    return Network(name, tuple(nodes), inputs, outputs, activations, constants, folded)
