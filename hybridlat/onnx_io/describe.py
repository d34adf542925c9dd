"""What a file says before its sizes are bound: structure, modules and precision.

The modules are the paths that exporters leave behind. They stand in scopes beside each node
(PyTorch's newer exporter), in its name (the older one, TensorFlow's converters), or in the names of
weights.
"""

import hashlib
import itertools
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set

from onnx import ModelProto, TensorProto

from hybridlat.graph.operators import contracts, is_number, is_quantised
from hybridlat.onnx_io.facts import FilePrecision
from hybridlat.onnx_io.infer import inferred
from hybridlat.onnx_io.nodes import FileNode
from hybridlat.onnx_io.torch_export import SCOPES, scopes_of
from hybridlat.onnx_io.values import Value
from hybridlat.onnx_io.walk import DATA_DEPENDENT

_FLOATS = ("float", "bfloat", "double")
_PARAMETER = re.compile(
    r"[._/](?:weight|bias|kernel|gamma|beta|scale|running_mean|running_var|mean|var|w|b"
    r"|moving_mean|moving_variance|riv|rm)(?:_\d+|_(?:bias|scale|zero_point|quantized))*$"
)
_NUMBERED = re.compile(r"^(?:onnx::.*|[A-Za-z]{0,2}_?\d*)$")
_WIDE = {"FLOAT": "fp32", "DOUBLE": "fp64", "FLOAT16": "fp16", "BFLOAT16": "bf16"}
_OF_TYPE = {TensorProto.DataType.Value(name): precision for name, precision in _WIDE.items()}
_FEW_BITS = re.compile(r"(U?INT|FLOAT)([2468])(E\w+)?")
_STORED = {0: "int8"}  # 0: unknown
_STORED |= {
    number: f"{'fp' if few[1] == 'FLOAT' else 'int'}{few[2]}"
    for name, number in TensorProto.DataType.items()
    if (few := _FEW_BITS.fullmatch(name))
}
_KEEP_TYPE = ("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Dropout")
_LONGEST_CHAIN = 8  # of such operators; in a damaged file they may bite their own tail


def structure_digest(
    frame: ModelProto, tensors: Mapping[str, Value], nodes: Sequence[FileNode], folded: Set[int]
) -> bytes:
    """Digest of everything but names and weights: operators, links, attributes, types, values."""
    number: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    blobs = [repr([(o.domain, o.version) for o in frame.opset_import]).encode()]
    for info in frame.graph.input:
        number[info.name]
        blobs.append(info.type.SerializeToString(deterministic=True))
    floats = {name for name, value in tensors.items() if value.type.dtype.startswith(_FLOATS)}
    weights: set[str] = set()
    for position, node in enumerate(nodes if floats else ()):
        folds = node.has_graph or (position in folded and node.op != "DequantizeLinear")
        for name in floats.intersection(node.reads):
            keeps = folds or is_number(node.op, tensors[name].type)
            (floats.discard if keeps else weights.add)(name)
    weights &= floats
    further: list[object] = [number[name] for name in tensors if name in number]
    for name, value in tensors.items():
        place = number[name]
        blobs.append(repr((place, value.type)).encode() if name in weights else value.data)
    links = [name for node in nodes for name in node.inputs + node.outputs]
    links += [info.name for info in frame.graph.output]
    further += [number[name] for node in nodes if node.has_graph for name in node.reads]
    stated = frame.graph.value_info
    further += [(number[v.name], v.type.SerializeToString(deterministic=True)) for v in stated]
    further += [node.name for node in nodes if node.op in DATA_DEPENDENT]
    fed = {info.name for info in frame.graph.input}.difference(tensors)
    for node in nodes:
        if node.op in ("Conv", "ConvTranspose"):
            further += fed.intersection(node.inputs[1:2])
            zeros = node.drops_bias is not None and f"zeros {node.drops_bias}"
            further += filter(None, [*node.naming, zeros])
        elif node.op in ("Gemm", "MatMul") and weights.issuperset(node.inputs[1:2]):
            further += filter(None, node.naming[1:])
    if further:
        blobs.append(repr(further).encode())
    digest = hashlib.sha256(array("q", map(number.__getitem__, links)).tobytes())
    digest.update(b"".join([node.structure for node in nodes]))
    digest.update(b"".join([b"%d:%b" % (len(blob), blob) for blob in blobs]))
    return digest.digest()


def module_paths(model: ModelProto) -> tuple[str, ...]:
    """The dotted path of every node's module, in file order; empty where nothing tells it."""
    graph = model.graph
    weights = {tensor.name: tensor.name for tensor in graph.initializer}
    paths = []
    for node in graph.node:
        scopes = next((scopes_of(e.value) for e in node.metadata_props if e.key == SCOPES), [])
        path = "".join(scopes[-2:-1]) or _from_name(node.name)  # the last scope is the operation
        named = [weights[name] for name in node.input if name in weights]
        if not path:
            path = next((module for module in map(_from_weight, named) if module), "")
        if node.op_type in ("ConstantOfShape", "Constant"):
            weights.update((out, out) for out in node.output)
        elif named and len(named) == sum(bool(name) for name in node.input):
            weights.update((out, named[0]) for out in node.output)  # cast, dequantised, transposed
        paths.append(path)
    return tuple(paths)


def _from_name(name: str) -> str:
    """``stages.0.blocks.1`` of ``/stages/stages.0/blocks/blocks.1/Add``.

    TFLite names a fused operator by all of its own, the result's first, with semicolons.
    """
    modules: list[str] = []
    for part in name.partition(";")[0].strip("/").split("/")[:-1]:
        if modules and part.startswith(f"{modules[-1]}."):
            modules[-1] = part
        elif part:
            modules.append(part)
    return ".".join(modules)


def _from_weight(name: str) -> str:
    """``layer1.0.conv1`` of ``layer1.0.conv1.weight``; nothing of ``onnx::Conv_205``."""
    path, replaced = _PARAMETER.subn("", name)
    is_path = replaced and not _NUMBERED.match(path)
    return path.strip("/.").replace("/", ".") if is_path else ""


def precision_of(model: ModelProto, nodes: Sequence[FileNode]) -> FilePrecision:
    """The precision of every convolution and product of a model, counted."""
    makers = {out: node for node in nodes for out in node.outputs if out}
    graph = inferred(model)[0].graph
    infos = (*graph.value_info, *graph.output, *graph.input)
    types = {info.name: info.type.tensor_type.elem_type for info in infos}
    types.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    for node in nodes:  # onnx knows no types behind an operator of another domain
        read = next(filter(_OF_TYPE.get, map(types.get, node.inputs)), 0)
        types |= {out: read for out in node.outputs if out not in types}
    contracting = [node for node in nodes if contracts(node.op)]
    return FilePrecision(dict(Counter(_precision(node, makers, types) for node in contracting)))


def _precision(node: FileNode, makers: Mapping[str, FileNode], types: Mapping[str, int]) -> str:
    if is_quantised(node.op):
        return "int8"
    operands = [name for name in node.inputs[:2] if name]
    stored = {_stored_in(name, makers, types) for name in operands} or {""}
    if "" not in stored:
        return max(sorted(stored), key=lambda precision: precision[-1])  # engines widen the other
    known = [_OF_TYPE.get(types.get(name, 0)) for name in reversed(operands)]
    return next(filter(None, known), "fp32")  # the weight tells best


def _stored_in(name: str, makers: Mapping[str, FileNode], types: Mapping[str, int]) -> str:
    """The precision from which a tensor was just dequantised; none for one of 16 bits or more."""
    for _ in range(_LONGEST_CHAIN):
        node = makers.get(name)
        if node is None or not node.inputs or node.op not in (*_KEEP_TYPE, "DequantizeLinear"):
            break
        name, zero = node.inputs[0], "".join(node.inputs[2:3])
        if node.op == "DequantizeLinear":
            return _STORED.get(types.get(name) or types.get(zero, 0), "")
    return ""
