"""A whole model taken apart, its weights left behind: operators, constants, and the frame."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, inliner
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Shapes, topological_order
from hybridlat.graph.operators import LEARNED, RECURRENT, SIZES
from hybridlat.onnx_io.describe import module_paths, precision_of, structure_digest
from hybridlat.onnx_io.facts import FilePrecision
from hybridlat.onnx_io.infer import last_line
from hybridlat.onnx_io.nodes import FileNode, check_text, read_nodes, read_tensor, with_branches
from hybridlat.onnx_io.shapes import Frame, bound, opsets_of, written_sizes
from hybridlat.onnx_io.values import NARROW, Value, data_type, dense, dtype_name, schema_of

OLDEST_OPSET = 7
MAX_INLINED_OPERATORS = 200_000
_WEIGHTED = LEARNED.difference(("MatMul", "Einsum"))  # what these read may be data


@dataclass(frozen=True)
class Parsed:
    """A model without weights: ``frame`` is all but its ``nodes`` and constants (``tensors``)."""

    frame: ModelProto
    tensors: Mapping[str, Value]
    nodes: tuple[FileNode, ...]
    sizes_elsewhere: Mapping[str, str] = field(default_factory=dict)
    """By tensor, the file beside the model that holds its whole numbers, which may be sizes."""

    @cached_property
    def model(self) -> ModelProto:
        model = ModelProto()
        model.CopyFrom(self.frame)
        model.graph.initializer.extend([v.tensor(name) for name, v in self.tensors.items()])
        model.graph.node.extend([node.proto() for node in self.nodes])
        return model

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple([info.name for info in self.frame.graph.input])

    @property
    def fed(self) -> list[ValueInfoProto]:
        """The inputs that have no value in the file."""
        return [info for info in self.frame.graph.input if info.name not in self.tensors]

    def bound(self, batch: int | None, shapes: Shapes) -> Frame:
        """The frame with every size bound; NetworkError says what is wrong or missing."""
        # What operators read as weights has no batch.
        weights = {n for node in self.nodes if node.op in _WEIGHTED for n in node.inputs[1:]}
        return bound(self.frame, self.fed, batch, shapes, weights, stepped(self.nodes))

    @property
    def input_sizes(self) -> dict[str, tuple[int | None, ...]]:
        return {info.name: tuple(written_sizes(info)) for info in self.fed}

    @cached_property
    def every_node(self) -> tuple[FileNode, ...]:
        return with_branches(self.nodes)

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        return tuple([node.name for node in self.every_node])

    @cached_property
    def op_types(self) -> tuple[str, ...]:
        return tuple([node.op for node in self.every_node])

    @cached_property
    def module_paths(self) -> tuple[str, ...]:
        return module_paths(self.model) + ("",) * (len(self.every_node) - len(self.nodes))

    @cached_property
    def constant_nodes(self) -> frozenset[int]:
        """Positions of operators that only make weights or compute shapes."""
        fixed = {"", *self.tensors}
        positions = set()
        for position, node in enumerate(self.nodes):
            # A branch may read what its operator does not name.
            is_fixed = not node.has_graph and fixed.issuperset(node.inputs)
            if is_fixed or node.op in ("Shape", "Size"):
                positions.add(position)
                fixed.update(node.outputs)
        return frozenset(positions)

    @cached_property
    def precision(self) -> FilePrecision:
        """The usual file, whose floats are all FP32, is one in FP32 at a glance."""
        types = {info.type.tensor_type.elem_type for info in self.frame.graph.input}
        types.update(map(data_type, {value.type.dtype for value in self.tensors.values()}))
        others = NARROW | {TensorProto.DOUBLE}
        if others.isdisjoint(types) and not any(node.is_narrow for node in self.every_node):
            return FilePrecision({"fp32": 1})
        return precision_of(self.model, self.every_node)

    @cached_property
    def structure(self) -> bytes:
        return structure_digest(self.frame, self.tensors, self.nodes, self.constant_nodes)


def stepped(nodes: Sequence[FileNode]) -> set[str]:
    """What begins with the steps of a recurrent layer: what it reads, or looks up in a table."""
    layers = [n for n in nodes if n.op in RECURRENT and n.inputs]
    tables = [n for n in nodes if n.op == "Gather" and n.inputs[1:]] if layers else []
    looked_up = {n.outputs[0]: n.inputs[1] for n in tables}
    batch_first = [any(a.name == "layout" and a.i for a in n.proto().attribute) for n in layers]
    by_steps = [n.inputs[0] for n, first in zip(layers, batch_first, strict=True) if not first]
    return {looked_up.get(name, name) for name in by_steps}


class NotOnnx(NetworkError):
    """The bytes are no ONNX model at all."""


def parse(source: bytes | ModelProto) -> Parsed:
    """The model without weights, its functions inlined; NetworkError if it is no whole one."""
    if not source:
        raise NotOnnx("the file is empty: give a file with an ONNX model")
    try:
        model = ModelProto.FromString(source) if isinstance(source, bytes) else source
    except DecodeError as error:
        wrong = "this is not an ONNX model: it is cut off, damaged or of another format"
        raise NotOnnx(wrong) from error
    check_text(model.graph.name, *[opset.domain for opset in model.opset_import])
    for info in (*model.graph.input, *model.graph.output):
        check_text(info.name, *[size.dim_param for size in info.type.tensor_type.shape.dim])
    if model.functions:
        model = _inlined(model)
    graph = model.graph
    nodes = read_nodes(graph.node)
    _validate(model, nodes)
    stored = [*graph.initializer, *map(dense, graph.sparse_initializer)]
    frame = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    frame.graph.name = graph.name or "network"
    frame.graph.input.extend(graph.input)
    frame.graph.output.extend(graph.output)
    opset = dict(opsets_of(model))
    kinds = {(node.op, node.domain) for node in nodes}
    foreign = {k for k in kinds if schema_of(*k, opset.get(k[1], 1)) is None}
    if foreign:
        made = {o for node in nodes if (node.op, node.domain) in foreign for o in node.outputs}
        stated = (*graph.value_info, *graph.output)
        frame.graph.value_info.extend(info for info in stated if info.name in made)
    elsewhere = {
        tensor.name: place.value
        for tensor in stored
        if tensor.data_location == TensorProto.EXTERNAL and dtype_name(tensor.data_type) in SIZES
        for place in tensor.external_data
        if place.key == "location"
    }
    return Parsed(frame, dict(map(read_tensor, stored)), nodes, elsewhere)


def _validate(model: ModelProto, nodes: tuple[FileNode, ...]) -> None:
    if not nodes:
        raise NotOnnx("no operators in the file: it is empty, or not an ONNX model")
    if not model.graph.output:
        raise NetworkError("the network has no outputs: export it with the results it computes")
    for node in nodes:
        if not any(node.outputs):
            raise NetworkError(f"the operator {node.op!r} gives nothing out: the file is damaged")
    named, first = [*model.graph.input, *model.graph.initializer], dict[str, list[int | None]]()
    for one in named if len({one.name for one in named}) < len(named) else ():
        shape = list(one.dims) if isinstance(one, TensorProto) else written_sizes(one)
        other = first.setdefault(one.name, shape)
        if shape and other and shape != other and None not in shape + other:
            raise NetworkError(f"{one.name!r} has two shapes, {other} and {shape}: rename one")
    opset = dict(opsets_of(model)).get("")
    newest = onnx.defs.onnx_opset_version()
    if opset is None and not all(node.domain for node in nodes):
        raise NetworkError("the file does not say which ONNX opset it uses: export it again")
    if opset is not None and not OLDEST_OPSET <= opset <= newest:
        why = f"the file uses opset {opset}: opsets {OLDEST_OPSET} to {newest} can be read"
        raise NetworkError(f"{why}; convert it with onnx.version_converter")


def _inlined(model: ModelProto) -> ModelProto:
    """The model without functions of its own; NetworkError where that makes it endless."""
    places = {(f.domain, f.name): place for place, f in enumerate(model.functions)}
    calls = [_calls(function.node, places) for function in model.functions]
    order = topological_order([set(called) for called in calls])
    if len(order) < len(calls):
        raise NetworkError("it has functions that call each other in a circle: export it again")
    sizes = [len(function.node) for function in model.functions]
    for place in order:
        sizes[place] += sum(sizes[called] for called in calls[place])
    operators = sum(sizes[called] for called in _calls(model.graph.node, places))
    if operators > MAX_INLINED_OPERATORS:
        raise NetworkError(
            f"the file has functions that stand for {operators:.3g} operators: "
            f"at most {MAX_INLINED_OPERATORS} can be read"
        )
    lean = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    lean.functions.extend(model.functions)
    for part in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(lean.graph, part).extend(getattr(model.graph, part))
    lean.graph.name = model.graph.name or "network"
    weights = [Value.of_tensor(t).tensor(t.name) for t in model.graph.initializer]
    lean.graph.initializer.extend(weights)
    try:
        return inliner.inline_local_functions(lean)
    except (InferenceError, ValidationError, ValueError, RuntimeError) as error:
        why = f"the file has functions that cannot be inlined: {last_line(error)}"
        raise NetworkError(why) from error


def _calls(nodes: Iterable[NodeProto], places: Mapping[tuple[str, str], int]) -> list[int]:
    called = []
    for node in nodes:
        if (node.domain, node.op_type) in places:
            called.append(places[node.domain, node.op_type])
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                called += _calls(graph.node, places)
    return called
