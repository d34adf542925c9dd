"""The operators and constants of a file, each read once: networks share most of them."""

import functools
import hashlib
import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Node, TensorType, topological_order
from hybridlat.graph.operators import QUANTISERS, SIZES, is_quantised
from hybridlat.onnx_io.facts import bias_origin, simplified
from hybridlat.onnx_io.operator_form import local_form
from hybridlat.onnx_io.values import MOST_BYTES, NARROW, Known, Value, attributes_of, since_version
from hybridlat.schema.files import warn_once

MOST_NODES = 32_768
MOST_TENSORS = 8192
_MAKE_ANY_TYPE = ("Cast", "Constant", "ConstantOfShape")
_PADDINGS = (b"NOTSET", b"SAME_UPPER", b"SAME_LOWER", b"VALID")


def domain_of(domain: str) -> str:
    """A domain with one name for that of ONNX's own operators: none."""
    return "" if domain == "ai.onnx" else domain


def check_text(*names: str | bytes) -> None:
    """UnicodeDecodeError for a name that is not text: protobuf gives such names as bytes."""
    for name in names:
        if isinstance(name, bytes):
            name.decode()


_CONVOLUTION = re.compile(r"aten\.conv\w*\.\w+\]\(args = \(%\w+, %\w+(, %)?")
"""The call that PyTorch's exporter keeps beside an operator: input, weight, bias or none."""


@dataclass(frozen=True, slots=True, eq=False)
class FileNode:
    """An operator as its file has it, without weights; the ``domain`` of ONNX's own is empty.

    ``reads`` are the tensors it reads, those that its branches take from outside with them;
    ``structure`` is a digest of all but names; ``has_graph`` says whether it has branches,
    ``is_narrow`` whether it makes or computes with anything narrower than FP32. Of a convolution
    without a bias ``drops_bias`` says whether PyTorch's had one (of zeros); None: it is not known.
    ``naming`` is what names tell of a convolution's bias, and of its or a product's weights.
    """

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reads: tuple[str, ...]
    structure: bytes
    has_graph: bool
    is_narrow: bool
    drops_bias: bool | None
    naming: tuple[str, str]
    data: bytes

    def proto(self) -> NodeProto:
        proto: NodeProto = NodeProto.FromString(self.data)
        proto.name, proto.domain = self.name, self.domain
        return proto


def read_node(proto: NodeProto, name: str) -> FileNode:
    """The operator without weights, padded in one way alone; UnicodeDecodeError for no text."""
    data = proto.SerializeToString()
    return (_small_node if len(data) <= MOST_BYTES else _small_node.__wrapped__)(data, name)


@functools.lru_cache(maxsize=MOST_NODES)
def _small_node(data: bytes, name: str) -> FileNode:
    proto = NodeProto.FromString(data)
    if proto.op_type == "Constant" or b"auto_pad" in data:
        _make_lean(proto)
        data = proto.SerializeToString()
    inputs, outputs, read = tuple(proto.input), tuple(proto.output), tuple(reads(proto))
    kind = (proto.op_type, proto.domain, len(inputs), len(outputs))
    digest = hashlib.blake2b(repr(kind).encode(), digest_size=16)
    has_graph = False
    for attribute in proto.attribute:
        written = attribute.SerializeToString(deterministic=True)
        digest.update(len(written).to_bytes(4, "little"))
        digest.update(written)
        has_graph |= attribute.HasField("g") or bool(attribute.graphs)
    check_text(proto.name, proto.op_type, proto.domain, *read, *outputs)
    check_text(*[attribute.name for attribute in proto.attribute])
    domain, structure, is_narrow = domain_of(proto.domain), digest.digest(), _is_narrow(proto)
    naming = bias_origin(name, inputs, outputs), simplified(inputs, outputs)
    ways = (inputs, outputs, read, structure, has_graph, is_narrow, _drops_bias(proto), naming)
    return FileNode(name, proto.op_type, domain, *ways, data)


def reads(node: NodeProto) -> list[str]:
    """The tensors that an operator reads, those that its branches take from outside with them."""
    names = list(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names += [name for inner in attribute.g.node for name in reads(inner)]
            names += [info.name for info in attribute.g.output]
    return names


def _drops_bias(proto: NodeProto) -> bool | None:
    if proto.op_type not in ("Conv", "ConvTranspose") or len(proto.input) > 2:
        return None
    calls = [e.value for e in proto.metadata_props if e.key == "pkg.torch.onnx.fx_node"]
    call = _CONVOLUTION.search("".join(calls))
    return None if call is None else call[1] is not None


def _is_narrow(proto: NodeProto) -> bool:
    if proto.op_type in _MAKE_ANY_TYPE:
        return any(a.i in NARROW or a.t.data_type in NARROW for a in proto.attribute)
    return proto.op_type.endswith("QuantizeLinear") or is_quantised(proto.op_type)


@functools.lru_cache(maxsize=MOST_NODES)
def node_of(read: FileNode, opset: int) -> Node:
    """The operator as networks have it, in this operator set. NetworkError for a branch."""
    version, domain = since_version(read.op, read.domain, opset), read.domain
    attributes = attributes_of(read.proto(), domain, opset)
    if domain == "com.microsoft" and read.op in QUANTISERS:  # one kernel runs it and ONNX's own
        version, domain = 21, ""
        if not any(read.inputs[1:2]):
            raise NetworkError(f"{read.op} {read.name!r} has no scale: export the network again")
    node = Node(read.name, read.op, read.inputs, read.outputs, attributes, domain, version)
    return local_form(node)


def read_nodes(protos: Sequence[NodeProto]) -> tuple[FileNode, ...]:
    """The operators of a graph; those whose name is missing or repeated get one with a number."""
    names = [proto.name for proto in protos]
    counts = Counter(names if len({*names, ""}) <= len(names) else ())
    taken = {name for name, count in counts.items() if count == 1 and name}
    for position, name in enumerate(names if counts else ()):
        if not name or counts[name] > 1:
            name = f"{name or protos[position].op_type}_{position}"
            while name in taken:
                name += "_"
            taken.add(name)
            names[position] = name
    return tuple(map(read_node, protos, names))


def in_order(nodes: Sequence[FileNode], known: Container[str]) -> list[FileNode]:
    """In topological order, by the first maker of each tensor; NetworkError for a cycle."""
    makers = [(out, position) for position, node in enumerate(nodes) for out in node.outputs]
    made = {out: position for out, position in reversed(makers) if out and out not in known}
    needs = [{made[source] for source in node.reads if source in made} for node in nodes]
    order = topological_order(needs)
    if len(order) < len(nodes):
        first = nodes[min(set(range(len(nodes))).difference(order))].name
        raise NetworkError(f"the graph has a cycle at {first!r} or before it: export it again")
    return [nodes[i] for i in order]


def _make_lean(proto: NodeProto) -> None:
    """Take out weights, and what an auto_pad overrules, which onnx's own inference takes."""
    for attribute in proto.attribute if proto.op_type == "Constant" else ():
        if attribute.HasField("t"):
            attribute.t.CopyFrom(Value.of_tensor(attribute.t).tensor(attribute.t.name))
    mode = next((a.s for a in proto.attribute if a.name == "auto_pad"), b"NOTSET")
    if mode not in _PADDINGS:
        raise NetworkError(
            f"{proto.op_type} {proto.name!r} has the auto_pad {mode.decode('latin-1')!r}: "
            f"ONNX has {b', '.join(_PADDINGS).decode()}"
        )
    if mode != b"NOTSET":
        names = {attribute.name for attribute in proto.attribute}
        if "pads" in names and proto.op_type in ("Conv", "ConvTranspose"):
            warn_once("pads beside an auto_pad do not count: ONNX Runtime refuses the file")
        overruled = "pads auto_pad" if mode == b"VALID" else "pads output_padding ceil_mode"
        kept = [one for one in proto.attribute if one.name not in overruled.split()]
        del proto.attribute[:]
        proto.attribute.extend(kept)


def read_tensor(tensor: TensorProto) -> tuple[str, Value]:
    """The name of a tensor, and all of it but weights."""
    # Protobuf writes a message to count its bytes: weights of megabytes are told by their sizes.
    is_large = tensor.HasField("raw_data") and math.prod(tensor.dims) > MOST_BYTES
    if not is_large and tensor.ByteSize() <= MOST_BYTES:
        return _small_tensor(tensor.SerializeToString())
    check_text(tensor.name)
    return tensor.name, Value.of_tensor(tensor)


@functools.lru_cache(maxsize=MOST_TENSORS)
def _small_tensor(data: bytes) -> tuple[str, Value]:
    tensor = TensorProto.FromString(data)
    check_text(tensor.name)
    return tensor.name, Value.of_tensor(tensor)


# ---- branches of an If as operators of the network around it, for a constant condition ----

BRANCHES = ("else_branch", "then_branch")
Branch = tuple[list[FileNode], dict[str, Value]]
"""Operators and constants."""


def with_branches(nodes: Iterable[FileNode]) -> tuple[FileNode, ...]:
    """The operators, and behind them those of the branches that may be taken."""
    every = [*nodes]
    for node in every:  # they grow: a branch may hold branches
        for name in BRANCHES if _is_if(node) else ():
            every += branch(node, name)[0]
    return tuple(every)


def _is_if(node: FileNode) -> bool:
    return node.has_graph and node.op == "If" and not node.domain


def taken(node: FileNode, known: Mapping[str, Known]) -> Branch | None:
    """The branch that an If takes whatever the data; None where they decide, or for no If."""
    condition = known.get(node.inputs[0]) if _is_if(node) and node.inputs else None
    array = condition.array if isinstance(condition, Value) else None
    return None if array is None or array.size != 1 else branch(node, BRANCHES[bool(array.any())])


def is_cut(node: FileNode, nodes: Sequence[FileNode], outputs: Sequence[str]) -> bool:
    """Whether the operator makes a sequence of parts of a tensor that are read one by one."""
    whole = {name for other in nodes if other.op != "SequenceAt" for name in other.reads}
    is_own = any(node.outputs) and not node.domain
    return is_own and whole.union(outputs).isdisjoint(node.outputs)


def part(node: FileNode, cut: FileNode, known: Mapping[str, Known]) -> Branch:
    """What a SequenceAt gives of a tensor that is ``cut``, as a Slice; NetworkError if unknown."""
    stated = {attribute.name: attribute.i for attribute in cut.proto().attribute}
    type_, axis = known.get("".join(cut.inputs[:1])), stated.get("axis", 0)
    shape = type_.shape if isinstance(type_, TensorType) else ()
    values = [known.get("".join(one.inputs[1:2])) for one in (node, cut)]
    read = [v.array for v in values if isinstance(v, Value) and v.type.dtype in SIZES]
    numbers = [array.ravel().tolist() for array in read if array is not None and array.size]
    (at, *_), sizes = numbers if len(numbers) > 1 else ([0], [])
    size = shape[axis] if -len(shape) <= axis < len(shape) else 0
    if len(sizes) == 1 and size <= MOST_NODES:  # of each part
        sizes *= -(-size // max(1, sizes[0]))
    if not size or not -len(sizes) <= at < len(sizes):
        which = f"{node.op} {node.name!r} takes no part of {cut.op} {cut.name!r} that is known"
        raise NetworkError(f"{which}: export the network with tensors alone")
    start = sum(sizes[: at % len(sizes)])
    bounds = {"start": start, "end": start + sizes[at], "axis": axis}
    arrays = {f"{node.outputs[0]}/{label}": np.array([n], np.int64) for label, n in bounds.items()}
    proto = NodeProto(op_type="Slice", input=[cut.inputs[0], *arrays], output=node.outputs)
    return [read_node(proto, node.name)], {name: Value.of_array(a) for name, a in arrays.items()}


def branch(node: FileNode, name: str) -> Branch:
    """The branch of that name; what it makes goes by names of its own, its results by the If's."""
    graph = next((a.g for a in node.proto().attribute if a.name == name), GraphProto())
    prefix = f"{node.name}/{name.partition('_')[0]}/"
    names, copies = {own: prefix + own for own in _own_names(graph)}, list[NodeProto]()
    for info, out in zip(graph.output, node.outputs, strict=False):
        if names.get(info.name) == prefix + info.name:
            names[info.name] = out or prefix + info.name
        elif out:
            copies.append(NodeProto(op_type="Identity", input=[info.name], output=[out]))
    constants = {names[own]: value for own, value in map(read_tensor, graph.initializer)}
    nodes = []
    for place, inner in enumerate((*graph.node, *copies)):
        _rename(inner, names)
        nodes.append(read_node(inner, f"{prefix}{inner.name or inner.op_type}_{place}"))
    return [node for node in nodes if any(node.outputs)], constants


def _own_names(graph: GraphProto) -> set[str]:
    made = {out for node in graph.node for out in node.output if out}
    return made.union(tensor.name for tensor in graph.initializer)


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    for field in (node.input, node.output):
        field[:] = [names.get(name, name) for name in field]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = _own_names(graph).union(info.name for info in graph.input)
            outside = {name: new for name, new in names.items() if name not in own}
            for inner in graph.node:
                _rename(inner, outside)
            for info in graph.output:
                info.name = outside.get(info.name, info.name)
