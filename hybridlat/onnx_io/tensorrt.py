"""Model files as TensorRT takes them: operator set 17, weights in noise files.

Set 17 is the newest that TensorRT 8.6 understands. Its parser does not refuse a newer one: it reads
ReduceMean of set 18 without the axes that have become an input, and averages over everything.

Weights of a plan's models lie in noise files, as ONNX external data: constant data runs faster on a
GPU than real data does. A noise file repeats a block of seeded numbers (256 KB, which a plan
carries), of prime length, so that rows of a weight do not line up. Classes of noise: ``w3`` uniform
with standard deviation 2**-3 (weights, by He's rule from the fan-in), ``p`` in 0.5..1.5 (scales,
variances), ``b`` small (biases, means).
"""

import math
import random
import struct
from collections import Counter
from dataclasses import replace

from onnx import TensorProto

from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.graph.operators import SET
from hybridlat.onnx_io.values import since_version
from hybridlat.onnx_io.write import external_weight, to_onnx

# Activations that came later, step by step: what each reads and makes, from x to y.
_STEPS = {
    "Gelu": (("Div", "x root", "a"), ("Erf", "a", "b"), ("Add", "b one", "c"), ("Mul", "x c", "d"),
             ("Mul", "d half", "y")),
    "Gelu tanh": (("Mul", "x x", "a"), ("Mul", "a x", "b"), ("Mul", "b cubic", "c"),
                  ("Add", "x c", "d"), ("Mul", "d slope", "e"), ("Tanh", "e", "f"),
                  ("Add", "f one", "g"), ("Mul", "x g", "h"), ("Mul", "h half", "y")),
    "Mish": (("Softplus", "x", "a"), ("Tanh", "a", "b"), ("Mul", "x b", "y")),
    "Swish": (("Sigmoid", "x", "a"), ("Mul", "x a", "y")),
}  # fmt: skip
_NUMBERS = {"root": 2**0.5, "one": 1.0, "half": 0.5, "cubic": 0.044715}
_NUMBERS["slope"] = (2 / math.pi) ** 0.5
BLOCK = 65521
# TensorRT tells weights apart by where they start: no two of one model may start at one place.
_APART_BYTES = 256
_KINDS = {"float32": "f32", "float16": "f16"}
_POSITIVE_INPUTS = {"BatchNormalization": (1, 4)} | dict.fromkeys(
    ("InstanceNormalization", "LayerNormalization", "GroupNormalization"), (1,)
)
_MATRIX_OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def readable(network: Network) -> Network:
    """The network in set 17; MeasurementError where it cannot be written so."""
    types, constants, nodes = {**network.types}, {**network.constants}, list[Node]()
    for node in network.nodes:
        if node.domain or node.version <= SET:
            nodes.append(node)
        elif _form(node) in _STEPS:
            nodes += _written_out(node, types, constants)
        else:
            raise MeasurementError(
                f"{node.op} {node.name!r} of operator set {node.version} cannot be written in set "
                f"{SET}, the newest that all of TensorRT reads: export it with opset_version="
                f"{SET}, as plain operators"
            )
    return replace(network, nodes=tuple(nodes), types=types, constants=constants)


def _written_out(
    node: Node, types: dict[str, TensorType], constants: dict[str, Constant]
) -> list[Node]:
    """The operator as several, as exporters write it for older sets."""
    y, nodes = node.outputs[0], []
    names = {"x": node.inputs[0], "y": y}
    for i, (op, operands, result) in enumerate(_STEPS[_form(node)]):
        read = operands.split()
        for name in set(read).intersection(_NUMBERS):
            names[name] = f"{y}/{name}"
            constants[names[name]] = Constant(TensorType(types[y].dtype, ()), (_NUMBERS[name],))
        names[result] = out = y if result == "y" else f"{y}/{result}"
        types[out] = types[y]
        name, inputs = f"{node.name or y}/{i}", tuple([names[name] for name in read])
        nodes.append(Node(name, op, inputs, (out,), version=since_version(op, "", SET)))
    return nodes


def _form(node: Node) -> str:
    return f"{node.op} {node.attribute('approximate', '') or node.attribute('alpha', '')}".strip()


def prepare(network: Network) -> tuple[bytes, dict[str, int]]:
    """A model whose weights lie in noise files, and the bytes that each file must have."""
    network = readable(network)
    sizes: dict[str, int] = {}
    uses = Counter[str]()

    def external(name: str, type_: TensorType) -> TensorProto | None:
        if type_.dtype not in _KINDS:
            return None
        file = f"{_KINDS[type_.dtype]}_{_noise_class(network, name, type_.shape)}.bin"
        offset = uses[file] * _APART_BYTES
        uses[file] += 1
        sizes[file] = max(sizes.get(file, 0), offset + type_.bytes)
        return external_weight(name, type_, file, offset)

    return to_onnx(network, None, external), sizes


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
    return struct.pack(f"<{BLOCK}{'f' if kind == 'f32' else 'e'}", *values)


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
