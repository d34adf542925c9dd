"""The operators of a file, each read once: networks of one search space share most of them.

Reading an operator through its protobuf costs some twenty microseconds, finding it again by its
bytes one. What is remembered is bounded; operators with much in them (weights in a Constant) are
read anew each time.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnx import NodeProto, TensorProto

from hybridlat.graph.network import Node
from hybridlat.graph.operators import is_quantised
from hybridlat.onnx_io.remembering import remembered
from hybridlat.onnx_io.tensors import check_text
from hybridlat.onnx_io.values import attributes_of, since_version

MOST_REMEMBERED = 32_768
LARGEST_REMEMBERED = 2048
"""Bytes of an operator; names, links and attributes of a convolution take 150."""
_MAKE_ANY_TYPE = ("Cast", "Constant", "ConstantOfShape")
NARROW = frozenset({
    TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT8, TensorProto.UINT8,
    TensorProto.INT4, TensorProto.UINT4,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileNode:
    """An operator as its file has it, without weights.

    ``links`` are how many inputs it has, their names, how many outputs, and theirs; ``reads`` the
    tensors it reads, those that its branches take from outside with them; ``structure`` is a digest
    of all but names; ``has_graph`` says whether it has branches, ``is_narrow`` whether it makes or
    computes with anything narrower than FP32.
    """

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    links: tuple[int | str, ...]
    reads: tuple[str, ...]
    structure: bytes
    has_graph: bool
    is_narrow: bool
    data: bytes

    def proto(self) -> NodeProto:
        """The operator as protobuf again."""
        proto: NodeProto = NodeProto.FromString(self.data)
        return proto


def file_nodes(protos: Iterable[NodeProto]) -> tuple[FileNode, ...]:
    """The operators of a graph that holds no weights any more, in order."""
    return tuple([file_node(proto.SerializeToString()) for proto in protos])


@remembered(MOST_REMEMBERED, LARGEST_REMEMBERED)
def file_node(data: bytes) -> FileNode:
    """The operator of these bytes."""
    proto = NodeProto.FromString(data)
    digest = hashlib.blake2b(repr((proto.op_type, proto.domain)).encode(), digest_size=16)
    has_graph = False
    for attribute in proto.attribute:
        written = attribute.SerializeToString(deterministic=True)
        digest.update(len(written).to_bytes(4, "little"))
        digest.update(written)
        has_graph |= attribute.HasField("g") or bool(attribute.graphs)
    inputs, outputs, read = tuple(proto.input), tuple(proto.output), tuple(reads(proto))
    check_text(proto.name, proto.op_type, proto.domain, *read, *outputs)
    check_text(*[attribute.name for attribute in proto.attribute])
    links = (len(inputs), *inputs, len(outputs), *outputs)
    return FileNode(
        proto.name, proto.op_type, proto.domain, inputs, outputs, links,
        read, digest.digest(), has_graph, _is_narrow(proto), data,
    )  # fmt: skip


def reads(node: NodeProto) -> list[str]:
    """The tensors that an operator reads, those that its branches take from outside with them."""
    names = list(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner = attribute.g.node
            names += [name for one in inner for name in reads(one)]
            names += [info.name for info in attribute.g.output]
    return names


def _is_narrow(proto: NodeProto) -> bool:
    if proto.op_type in _MAKE_ANY_TYPE:
        return any(a.i in NARROW or a.t.data_type in NARROW for a in proto.attribute)
    return proto.op_type.endswith("QuantizeLinear") or is_quantised(proto.op_type)


def node_of(read: FileNode, name: str, opset: int) -> Node:
    """The operator as networks have it; ``opset`` is its domain's. NetworkError for a branch."""
    if len(read.data) > LARGEST_REMEMBERED:
        return _node(read, name, opset)
    return _remembered_node(read.data, name, opset)


@functools.lru_cache(maxsize=MOST_REMEMBERED)
def _remembered_node(data: bytes, name: str, opset: int) -> Node:
    return _node(file_node(data), name, opset)


def _node(read: FileNode, name: str, opset: int) -> Node:
    domain = "" if read.domain == "ai.onnx" else read.domain
    opsets = {domain: opset}
    proto = read.proto()
    return Node(
        name=name,
        op=read.op,
        domain=domain,
        version=since_version(read.op, domain, opsets),
        inputs=read.inputs,
        outputs=read.outputs,
        attributes=attributes_of(proto, domain, opsets),
    )


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
