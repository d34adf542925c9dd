"""Reading the usual network without a look at the whole graph: operator by operator, remembered.

What ``reading.to_network`` asks onnx for a whole graph is asked here for each operator with the
types and values of its inputs, and not again for another operator that is the same. That is the
same answer as long as nothing is computed with sizes, so a file in which an operator reads only
constants, or which is odd in any way, is left to the careful way.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, shape_inference

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.onnx_io.binding import bind
from hybridlat.onnx_io.checks import MAX_WEIGHT_BYTES, check_network
from hybridlat.onnx_io.folding import constant_node
from hybridlat.onnx_io.inference import INFERENCE_ERRORS, static_types, types_of
from hybridlat.onnx_io.nodes import LARGEST_REMEMBERED, FileNode, node_of
from hybridlat.onnx_io.remembering import remembered
from hybridlat.onnx_io.values import (
    SMALL_ELEMENTS,
    Value,
    constant_of,
    data_type,
    dtype_name,
    is_small,
    keeps_float_values,
)

if TYPE_CHECKING:
    from hybridlat.onnx_io.file import OnnxFile, Shapes

MOST_REMEMBERED = 100_000
MOST_CONSTANTS = 8192
LARGEST_REMEMBERED_FRAME = 16_384  # bytes: those of a search space take some hundred
_MAKERS = frozenset({"ConstantOfShape", "Constant", "Identity"})
OF_SIZES = ("Shape", "Size")
Key: TypeAlias = tuple[object, ...]
_inferred: dict[Key, tuple[TensorType, ...] | None] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A constant: its tensor without a name, as bytes, and as networks have it.

    ``value`` is how an operator sees it for which its numbers decide what is computed; the bytes
    are what either adds to a network's weights. No operator looks at the numbers of one that is not
    ``is_small``. Equal ones are mostly one object, so they are told apart as objects, which is
    quicker.
    """

    type: TensorType
    data: bytes
    weight: Constant
    value: Constant
    weight_bytes: int
    value_bytes: int
    is_small: bool


class Odd(Exception):
    """The file is none for this way."""


def quick_network(file: OnnxFile, batch: int | None, shapes: Shapes) -> Network | None:
    """The network with every size bound; None for a file that has to be read the careful way."""
    try:
        return _read(file, batch, shapes)
    except (Odd, NetworkError, TypeError, ValueError):  # the careful way says what is wrong
        return None


@dataclass(frozen=True, slots=True)
class Head:
    """What a file says besides its operators: types of inputs, constants, outputs with types.

    The type of an output is empty where the file does not state it.
    """

    opset: int
    types: Mapping[str, TensorType]
    known: Mapping[str, Known]
    outputs: tuple[tuple[str, str], ...]


def head_of(file: OnnxFile, batch: int | None, shapes: Shapes) -> Head:
    """The head with every size bound; all but the constants is read once for a search space."""
    data = file.frame
    read = _read_frame if len(data) <= LARGEST_REMEMBERED_FRAME else _read_frame.__wrapped__
    sizes = tuple((name, tuple(shape)) for name, shape in shapes.items())
    head = read(data, batch, sizes)
    known = {tensor.name: _held(tensor.data) for tensor in file.tensors}
    types = {name: type_ for name, type_ in head.types.items() if name not in known}
    return replace(head, types=types, known=known)


@functools.lru_cache(maxsize=256)
def _read_frame(
    data: bytes, batch: int | None, sizes: tuple[tuple[str, tuple[int, ...]], ...]
) -> Head:
    frame = ModelProto.FromString(data)
    opset = next((o.version for o in frame.opset_import if o.domain in ("", "ai.onnx")), None)
    if opset is None:
        raise Odd
    bind(frame, "", batch, dict(sizes))
    types = types_of(frame.graph.input)
    if len(types) < len(frame.graph.input):
        raise Odd
    outputs = []
    for info in frame.graph.output:
        if info.type.WhichOneof("value") not in (None, "tensor_type"):
            raise Odd
        stated = info.type.tensor_type.elem_type
        outputs.append((info.name, dtype_name(stated) if stated else ""))
    return Head(opset, types, {}, tuple(outputs))


def _read(file: OnnxFile, batch: int | None, shapes: Shapes) -> Network:
    head = head_of(file, batch, shapes)
    opset, types, known = head.opset, dict(head.types), dict(head.known)
    inputs = tuple(types)
    nodes: list[Node] = []
    folded: list[str] = []
    uses: dict[str, bool] = {}
    for read, name in zip(file.nodes, file.node_names, strict=True):
        if read.has_graph or read.domain not in ("", "ai.onnx") or read.op in OF_SIZES:
            raise Odd
        if makes_constant(read, known):
            make_constant(read, known, types)
            folded.append(name)
            continue
        infer_types(read, opset, known, types)
        for source in read.inputs:
            constant = known.get(source)
            if constant is not None and uses.get(source) is not False:
                uses[source] = keeps_float_values(read.op, constant.type.shape)
        nodes.append(node_of(read, name, opset))
    outputs = tuple(dict.fromkeys([name for name, _ in head.outputs]))
    for name, stated in head.outputs:
        made = types.get(name)
        if made is None or name in inputs or (stated and stated != made.dtype):
            raise Odd
    if not nodes or not outputs:
        raise Odd
    constants = {n: known[n].value if keep else known[n].weight for n, keep in uses.items()}
    network = Network(
        file.name, tuple(nodes), inputs, outputs, types, constants, tuple(folded)
    )  # fmt: skip
    if network.weight_bytes > MAX_WEIGHT_BYTES:
        raise Odd
    return network


@remembered(MOST_CONSTANTS, LARGEST_REMEMBERED)
def _held(data: bytes) -> Known:
    return _nameless(TensorProto.FromString(data))


def _nameless(tensor: TensorProto) -> Known:
    tensor.ClearField("name")
    return _known(tensor.SerializeToString())


@remembered(MOST_CONSTANTS, LARGEST_REMEMBERED)
def _known(data: bytes) -> Known:
    tensor = TensorProto.FromString(data)
    weight, value = constant_of(tensor, False), constant_of(tensor, True)
    weight_bytes, value_bytes = [
        c.type.bytes if c.values is None else 0 for c in (weight, value)
    ]  # fmt: skip
    small = is_small(weight.type.shape)
    return Known(weight.type, data, weight, value, weight_bytes, value_bytes, small)


def makes_constant(read: FileNode, known: Mapping[str, Known]) -> bool:
    """Whether an operator stands for a constant, which some exporters pass on by Identity."""
    op, inputs = read.op, read.inputs
    return op in _MAKERS and (op != "Identity" or (len(inputs) == 1 and inputs[0] in known))


def make_constant(read: FileNode, known: dict[str, Known], made: Container[str]) -> None:
    """Add the weight or value that an operator without activations stands for.

    ``made`` are the activations so far. Raises Odd where it stands for none.
    """
    (out,) = read.outputs
    if out in known or out in made or not out:
        raise Odd
    if read.op == "Constant":
        known[out] = _nameless(constant_node(read.proto(), "").to_tensor(""))
        return
    if read.op == "Identity":
        known[out] = known[read.inputs[0]]
        return
    shape = known.get(read.inputs[0]) if len(read.inputs) == 1 else None
    if shape is None:
        raise Odd
    known[out] = _filled(read.data, shape.data)


@functools.lru_cache(maxsize=8192)
def _filled(data: bytes, shape: bytes) -> Known:
    """What a ConstantOfShape makes."""
    array = Value.of_tensor(TensorProto.FromString(shape)).array
    fill = Value.of_array(np.zeros(1, np.float32))
    for attribute in NodeProto.FromString(data).attribute:
        if attribute.name == "value":
            fill = Value.of_tensor(attribute.t)
    if array is None or fill.array is None or fill.type.dtype != "float32":
        raise Odd
    sizes = tuple(array.reshape(-1).tolist())
    if any(not isinstance(d, int) or d <= 0 for d in sizes):
        raise Odd
    type_ = TensorType("float32", sizes)
    small = type_.elements <= SMALL_ELEMENTS
    made = Value(type_, np.full(sizes, fill.array.reshape(-1)[0]) if small else None)
    return _known(made.to_tensor("").SerializeToString())


def infer_types(
    read: FileNode, opset: int, known: Mapping[str, Known], types: dict[str, TensorType]
) -> None:
    """Add the types of an operator's results; Odd where they cannot be told from it alone."""
    key: list[object] = [read.structure, opset]
    live = False
    for name in read.inputs:
        type_ = types.get(name)
        if type_ is not None:
            live = True
            key.append(type_)
            continue
        constant = known.get(name)
        if constant is not None:
            key.append(constant.type)
            key.append(constant.data)
        elif name:
            raise Odd  # made further down, or nowhere
        else:
            key.append("")
    if not live:
        raise Odd
    told = tuple(key)
    if told in _inferred:
        made = _inferred[told]
    else:
        if len(_inferred) >= MOST_REMEMBERED:
            _inferred.clear()
        made = _inferred[told] = _ask(read, opset, known, types)
    if made is None:
        raise Odd
    for out, type_ in zip(read.outputs, made, strict=True):
        if out in types or out in known:
            raise Odd
        types[out] = type_


def _ask(
    read: FileNode, opset: int, known: Mapping[str, Known], types: Mapping[str, TensorType]
) -> tuple[TensorType, ...] | None:
    """What onnx, asked strictly, says of one operator; None where it objects, or is not sure."""
    if not all(read.outputs):
        return None
    proto = read.proto()
    proto.domain = ""
    names = list(dict.fromkeys(name for name in read.inputs if name))
    graph = helper.make_graph(
        [proto],
        "one",
        [
            helper.make_tensor_value_info(n, data_type(types[n].dtype), types[n].shape)
            for n in names
            if n in types
        ],
        [onnx.ValueInfoProto(name=out) for out in read.outputs],
        [_named(known[n].data, n) for n in names if n not in types],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        found = static_types(inferred)
        made = tuple(found[out] for out in read.outputs)
        held = {n: known[n].weight for n in names if n not in types}
        seen = {n: types[n] for n in names if n in types}
        node = node_of(read, "one", opset)
        all_types = {**seen, **dict(zip(read.outputs, made, strict=True))}
        check_network(Network("one", (node,), tuple(seen), read.outputs, all_types, held))
    except (*INFERENCE_ERRORS, KeyError, NetworkError):
        return None
    return made


def _named(data: bytes, name: str) -> TensorProto:
    tensor: TensorProto = TensorProto.FromString(data)
    tensor.name = name
    return tensor
