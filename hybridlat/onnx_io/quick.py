"""Reading the usual network operator by operator, each inferred once for all networks.

What ``read.to_network`` infers for a whole graph is inferred here for each operator from the types
and values of its inputs, and only once for equal operators. That is the same answer as long as
nothing is computed with sizes. A file in which an operator reads only constants, or which is
unusual in any way, is left to the careful way.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Constant, Network, Node, Shapes, TensorType
from hybridlat.onnx_io.bind import MAX_WEIGHT_BYTES, bind, check_network
from hybridlat.onnx_io.fold import constant_node
from hybridlat.onnx_io.infer import INFERENCE_ERRORS, static_types, types_of
from hybridlat.onnx_io.nodes import MOST_BYTES, MOST_TENSORS, FileNode, cached_when_small, node_of
from hybridlat.onnx_io.parse import Parsed
from hybridlat.onnx_io.values import (
    SMALL_ELEMENTS,
    Value,
    constant_of,
    data_type,
    dtype_name,
    keeps_float_values,
)

MOST_INFERRED = 100_000
_MAKERS = frozenset({"ConstantOfShape", "Constant", "Identity"})
_OF_SIZES = ("Shape", "Size")
_inferred: dict[tuple[object, ...], tuple[TensorType, ...] | None] = {}


class NotUsual(Exception):
    """The file is left to the careful way."""


@dataclass(frozen=True, slots=True, eq=False)
class _Constant:
    """A constant: its tensor without a name, as bytes, and as networks have it.

    ``value`` is how an operator sees it for which its numbers decide what is computed.
    """

    type: TensorType
    data: bytes
    weight: Constant
    value: Constant


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a file says besides operators and constants: input types, outputs with their types.

    The type of an output is empty where the file does not state it.
    """

    opset: int
    types: Mapping[str, TensorType]
    outputs: tuple[tuple[str, str], ...]


def quick_network(parsed: Parsed, name: str, batch: int | None, shapes: Shapes) -> Network | None:
    """The network with every size bound; None for a file that has to be read the careful way."""
    try:
        return _network(parsed, name, batch, shapes)
    except (NotUsual, NetworkError, TypeError, ValueError):  # the careful way says what is wrong
        return None


@functools.lru_cache(maxsize=64)
def _bound_frame(
    data: bytes, batch: int | None, sizes: tuple[tuple[str, tuple[int, ...]], ...]
) -> _Frame:
    """Read once for the files of a search space, which share it."""
    frame = ModelProto.FromString(data)
    opset = next((o.version for o in frame.opset_import if o.domain in ("", "ai.onnx")), None)
    if opset is None:
        raise NotUsual
    bind(frame, batch, dict(sizes))
    types = types_of(frame.graph.input)
    if len(types) < len(frame.graph.input):
        raise NotUsual
    outputs = []
    for info in frame.graph.output:
        if info.type.WhichOneof("value") not in (None, "tensor_type"):
            raise NotUsual
        stated = info.type.tensor_type.elem_type
        outputs.append((info.name, dtype_name(stated) if stated else ""))
    return _Frame(opset, types, tuple(outputs))


def _network(parsed: Parsed, label: str, batch: int | None, shapes: Shapes) -> Network:
    sizes = tuple((name, tuple(shape)) for name, shape in shapes.items())
    frame = _bound_frame(parsed.frame, batch, sizes)
    constants = {tensor.name: _constant(tensor.nameless) for tensor in parsed.tensors}
    types = {name: type_ for name, type_ in frame.types.items() if name not in constants}
    inputs, opsets = tuple(types), {"": frame.opset}
    nodes: list[Node] = []
    folded: list[str] = []
    uses: dict[str, bool] = {}
    for node, name in zip(parsed.nodes, parsed.node_names, strict=True):
        if node.has_graph or node.domain not in ("", "ai.onnx") or node.op in _OF_SIZES:
            raise NotUsual
        made = _made_constant(node, constants)
        if made is not None:
            (out,) = node.outputs
            if out in constants or out in types or not out:
                raise NotUsual
            constants[out] = made
            folded.append(name)
            continue
        _infer(node, opsets, constants, types)
        for source in node.inputs:
            constant = constants.get(source)
            if constant is not None and uses.get(source) is not False:
                uses[source] = keeps_float_values(node.op, constant.type.shape)
        nodes.append(node_of(node, name, opsets))
    outputs = tuple(dict.fromkeys([name for name, _ in frame.outputs]))
    for name, stated in frame.outputs:
        type_ = types.get(name)
        if type_ is None or name in inputs or (stated and stated != type_.dtype):
            raise NotUsual
    if not nodes or not outputs:
        raise NotUsual
    used = {n: constants[n].value if keep else constants[n].weight for n, keep in uses.items()}
    network = Network(label, tuple(nodes), inputs, outputs, types, used, tuple(folded))
    if network.weight_bytes > MAX_WEIGHT_BYTES:
        raise NotUsual
    return network


@cached_when_small(MOST_TENSORS)
def _constant(data: bytes) -> _Constant:
    tensor = TensorProto.FromString(data)
    weight, value = constant_of(tensor, False), constant_of(tensor, True)
    return _Constant(weight.type, data, weight, value)


def _nameless(tensor: TensorProto) -> _Constant:
    tensor.ClearField("name")
    return _constant(tensor.SerializeToString())


def _made_constant(node: FileNode, constants: Mapping[str, _Constant]) -> _Constant | None:
    """The constant that an operator stands for, which some exporters pass on by Identity."""
    if node.op not in _MAKERS:
        return None
    if node.op == "Constant":
        return _nameless(constant_node(node.proto()).to_tensor(""))
    source = constants.get(node.inputs[0]) if len(node.inputs) == 1 else None
    if node.op == "Identity":
        return source
    if source is None or len(source.data) > MOST_BYTES:
        raise NotUsual
    return _filled(node.data, source.data)


@functools.lru_cache(maxsize=MOST_TENSORS)
def _filled(data: bytes, shape: bytes) -> _Constant:
    """What a ConstantOfShape makes."""
    array = Value.of_tensor(TensorProto.FromString(shape)).array
    fill = Value.of_array(np.zeros(1, np.float32))
    for attribute in NodeProto.FromString(data).attribute:
        if attribute.name == "value":
            fill = Value.of_tensor(attribute.t)
    if array is None or fill.array is None or fill.type.dtype != "float32":
        raise NotUsual
    sizes = tuple(array.reshape(-1).tolist())
    if any(not isinstance(d, int) or d <= 0 for d in sizes):
        raise NotUsual
    type_ = TensorType("float32", sizes)
    small = type_.elements <= SMALL_ELEMENTS
    made = Value(type_, np.full(sizes, fill.array.reshape(-1)[0]) if small else None)
    return _constant(made.to_tensor("").SerializeToString())


def _infer(
    node: FileNode,
    opsets: Mapping[str, int],
    constants: Mapping[str, _Constant],
    types: dict[str, TensorType],
) -> None:
    """Add the types of an operator's results; NotUsual where they depend on more than it alone."""
    parts: list[object] = [node.structure, opsets[""]]
    live = False
    for name in node.inputs:
        type_ = types.get(name)
        if type_ is not None:
            live = True
            parts.append(type_)
            continue
        constant = constants.get(name)
        if constant is not None:
            if len(constant.data) > MOST_BYTES:
                raise NotUsual  # too much to remember
            parts.append(constant.type)
            parts.append(constant.data)
        elif name:
            raise NotUsual  # made further down, or nowhere
        else:
            parts.append("")
    if not live:
        raise NotUsual
    key = tuple(parts)
    if key in _inferred:
        results = _inferred[key]
    else:
        if len(_inferred) >= MOST_INFERRED:
            _inferred.clear()
        results = _inferred[key] = _results(node, opsets, constants, types)
    if results is None:
        raise NotUsual
    for out, type_ in zip(node.outputs, results, strict=True):
        if out in types or out in constants:
            raise NotUsual
        types[out] = type_


def _results(
    read: FileNode,
    opsets: Mapping[str, int],
    constants: Mapping[str, _Constant],
    types: Mapping[str, TensorType],
) -> tuple[TensorType, ...] | None:
    """onnx's strict answer for one operator; None where it objects, or is not sure."""
    if not all(read.outputs):
        return None
    proto = read.proto()
    proto.domain = ""
    names: Sequence[str] = list(dict.fromkeys(name for name in read.inputs if name))
    live = {name: types[name] for name in names if name in types}
    weights = {name: constants[name] for name in names if name not in types}
    graph = helper.make_graph(
        [proto],
        "one",
        [helper.make_tensor_value_info(n, data_type(t.dtype), t.shape) for n, t in live.items()],
        [ValueInfoProto(name=out) for out in read.outputs],
        [_named(constant.data, name) for name, constant in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opsets[""])])
    try:
        inferred = static_types(
            shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        )
        results = tuple(inferred[out] for out in read.outputs)
        all_types = {**live, **dict(zip(read.outputs, results, strict=True))}
        held = {name: constant.weight for name, constant in weights.items()}
        node = node_of(read, "one", opsets)
        check_network(Network("one", (node,), tuple(live), read.outputs, all_types, held))
    except (*INFERENCE_ERRORS, KeyError, NetworkError):
        return None
    return results


def _named(data: bytes, name: str) -> TensorProto:
    tensor: TensorProto = TensorProto.FromString(data)
    tensor.name = name
    return tensor
