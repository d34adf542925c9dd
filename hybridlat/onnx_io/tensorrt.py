"""Model files as TensorRT takes them: operator set 17, weights in noise files.

Set 17 is the newest that TensorRT 8.6 understands. Its parser does not refuse a newer one: it reads
ReduceMean of set 18 without the axes that have become an input, and averages over everything.
(onnx's own version converter leaves attributes that 17 does not know, and has no way down for
Split, Pad, Resize and Gelu.)

Weights of a plan's models lie in noise files, as ONNX external data: constant data runs faster on a
GPU than real data does. A noise file is one block of seeded numbers repeated until it is large
enough for the largest weight, so a plan carries the block (256 KB) and the board makes the file,
with ``cat`` if it has nothing else. The block's length is a prime, so that rows of a weight do not
line up. Classes of noise: ``w3`` uniform with standard deviation 2**-3 (weights, by He's rule from
the fan-in), ``p`` in 0.5..1.5 (scales, variances), ``b`` small (biases, means).
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Mapping
from dataclasses import replace

from onnx import TensorProto, external_data_helper

from hybridlat.graph.network import AttributeValue, Constant, Network, Node, TensorType
from hybridlat.onnx_io.values import data_type, has_schema, since_version
from hybridlat.onnx_io.write import build

NEWEST = 17
_REDUCE = (
    "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
# Attributes that came later; what they say when they are not there is what set 17 does.
_DEFAULTS = {
    "Split": ("num_outputs",), "Cast": ("saturate",), "AveragePool": ("dilations",),
    "Resize": ("antialias", "keep_aspect_ratio_policy"),
}  # fmt: skip
BLOCK = 65521
# TensorRT tells weights apart by where they start: no two of one model may start at one place.
_APART_BYTES = 256
_SUFFIX = {"float32": "f32", "float16": "f16"}
_ITEM = {"f32": ("f", 4), "f16": ("e", 2)}
_POSITIVE_INPUTS = {"BatchNormalization": (1, 4), "InstanceNormalization": (1,),
                    "LayerNormalization": (1,), "GroupNormalization": (1,)}  # fmt: skip
_MATRIX_OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def readable(network: Network) -> Network:
    """The network in set 17 or an older one where it can be written so, else as it is."""
    types, constants = dict(network.types), dict(network.constants)
    nodes: list[Node] = []
    for node in network.nodes:
        if node.domain or node.version <= NEWEST:
            nodes.append(node)
        elif not _can(node, constants):
            return network
        elif node.op == "Gelu":
            nodes.extend(_gelu(node, types, constants))
        else:
            nodes.append(_lowered(node, constants))
    read = {name for node in nodes for name in node.inputs}
    constants = {name: constant for name, constant in constants.items() if name in read}
    return replace(network, nodes=tuple(nodes), types=types, constants=constants)


def _can(node: Node, constants: Mapping[str, Constant]) -> bool:
    if node.op == "Gelu":
        return node.attribute("approximate", "none") == "none"
    if not has_schema(node.op, "", NEWEST):
        return False
    if node.op in _REDUCE:  # axes must be known here
        return not any(name and constants[name].values is None for name in node.inputs[1:])
    if node.op == "Pad":
        return not any(node.inputs[3:])
    if node.op == "Resize":
        return node.attribute("axes") is None and not node.attribute("antialias")
    dilations = node.attribute("dilations")
    return node.op != "AveragePool" or not isinstance(dilations, tuple) or set(dilations) <= {1}


def _lowered(node: Node, constants: Mapping[str, Constant]) -> Node:
    dropped = _DEFAULTS.get(node.op, ())
    attributes = {name: value for name, value in node.attributes if name not in dropped}
    op, inputs = node.op, node.inputs
    if op in _REDUCE:
        axes: AttributeValue | None = constants[inputs[1]].values if any(inputs[1:]) else None
        if attributes.pop("noop_with_empty_axes", 0) and axes is None:
            op, attributes = "Identity", {}
        if axes is not None:
            attributes["axes"] = axes
        inputs = inputs[:1]
    return replace(
        node, op=op, inputs=inputs, attributes=tuple(sorted(attributes.items())),
        version=since_version(op, "", NEWEST),
    )  # fmt: skip


def _gelu(node: Node, types: dict[str, TensorType], constants: dict[str, Constant]) -> list[Node]:
    """x / 2 · (1 + erf(x / √2)), as exporters write it for older sets."""
    x, y = node.inputs[0], node.outputs[0]
    for name, value in (("root", 2.0**0.5), ("one", 1.0), ("half", 0.5)):
        constants[f"{y}/{name}"] = Constant(TensorType(types[y].dtype, ()), (value,))
    steps = (
        ("Div", (x, f"{y}/root"), f"{y}/1"), ("Erf", (f"{y}/1",), f"{y}/2"),
        ("Add", (f"{y}/2", f"{y}/one"), f"{y}/3"), ("Mul", (x, f"{y}/3"), f"{y}/4"),
        ("Mul", (f"{y}/4", f"{y}/half"), y),
    )  # fmt: skip
    types.update((out, types[y]) for _, _, out in steps)
    return [
        Node(f"{node.name or y}/{i}", op, inputs, (out,), version=since_version(op, "", NEWEST))
        for i, (op, inputs, out) in enumerate(steps)
    ]


def prepare(network: Network) -> tuple[bytes, dict[str, int]]:
    """A model whose weights lie in noise files, and the bytes that each file must have."""
    network = readable(network)
    sizes: dict[str, int] = {}
    uses: dict[str, int] = {}

    def external(name: str, type_: TensorType) -> TensorProto | None:
        kind = _SUFFIX.get(type_.dtype)
        if kind is None:
            return None
        file = f"{kind}_{_noise_class(network, name, type_.shape)}.bin"
        size = _ITEM[kind][1] * type_.elements
        offset = uses.get(file, 0) * _APART_BYTES
        uses[file] = uses.get(file, 0) + 1
        sizes[file] = max(sizes.get(file, 0), offset + size)
        weight = TensorProto(name=name, data_type=data_type(type_.dtype), dims=type_.shape)
        weight.raw_data = b""  # the helper asks for it
        external_data_helper.set_external_data(weight, file, offset, size)
        weight.ClearField("raw_data")
        return weight

    return bytes(build(network, None, external=external).SerializeToString()), sizes


def block(name: str) -> bytes:
    """The numbers that the noise file ``<type>_<class>.bin`` repeats."""
    kind, _, noise = name.removesuffix(".bin").partition("_")
    # A string seeds Python's generator alike in every version; one stream for all scales.
    source = random.Random(f"hybridlat 0 {noise[0]}")
    values = [source.random() for _ in range(BLOCK)]
    if noise == "p":
        values = [0.5 + v for v in values]
    else:
        width = 2.0 ** -int(noise[1:]) * math.sqrt(3.0) if noise[0] == "w" else 0.02
        values = [(2.0 * v - 1.0) * width for v in values]
    return struct.pack(f"<{BLOCK}{_ITEM[kind][0]}", *values)


def _noise_class(network: Network, weight: str, shape: tuple[int, ...]) -> str:
    node = network.nodes[network.consumers[weight][0]]
    index = node.inputs.index(weight)
    if node.op in _MATRIX_OPS and index < 2 and len(shape) > 1:
        fan_in = math.prod(shape[1:])
        if node.op == "Gemm":
            fan_in = shape[1] if node.attribute("transB") else shape[0]
        elif node.op == "MatMul":
            fan_in = shape[-2]
        return f"w{min(9, max(0, round(-math.log2(math.sqrt(2.0 / max(1, fan_in))))))}"
    if node.op in _POSITIVE_INPUTS:
        return "p" if index in _POSITIVE_INPUTS[node.op] else "b"
    return "p" if node.op in ("Mul", "Div", "Sqrt", "Pow", "Log") else "b"
