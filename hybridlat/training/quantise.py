"""Networks in 8 bits as ONNX Runtime's static quantiser writes them.

An engine that computes in the precision of the file learns INT8 from quantised files alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from hybridlat import onnx_io
from hybridlat.engines import registry
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.graph.operators import QUANTISERS, is_quantised, named
from hybridlat.schema.target import Target

_VERSION = 13
_PRODUCTS = named("Conv ConvTranspose Gemm MatMul")
_SUMS = named("Add Mul Concat")
_ENDS = named("Relu Clip")
"""Left out behind what is in 8 bits: the range ends where they do."""
_IN_8_BITS = (
    _PRODUCTS
    | _SUMS
    | _ENDS
    | named(
        "LeakyRelu Sigmoid Tanh Softmax Split Resize Pad MaxPool AveragePool GlobalAveragePool "
        "Reshape Transpose Squeeze Unsqueeze Gather InstanceNormalization LayerNormalization"
    )
)


def as_target_takes(network: Network, target: Target, dtype: str = "uint8") -> Network:
    """The network itself, or quantised where the target is of files in 8 bits."""
    done = any(node.op in QUANTISERS or is_quantised(node.op) for node in network.nodes)
    if done or not _takes_8_bits(target):
        return network
    file = onnx_io.to_onnx(quantised(network, dtype), None)
    return onnx_io.read_network(file, name=network.name)


def file_as_target_takes(path: Path, target: Target) -> Path | bytes:
    """The path of a file, or what the file is in 8 bits."""
    if not _takes_8_bits(target):
        return path
    return onnx_io.to_onnx(as_target_takes(onnx_io.read_network(path), target), None)


def _takes_8_bits(target: Target) -> bool:
    return target.precision == "int8" != registry.float_precision(target)


def quantised(network: Network, dtype: str = "uint8") -> Network:
    """The network with QuantizeLinear and DequantizeLinear around what is computed in 8 bits.

    ``dtype`` is that of activations; weights are int8. A tensor has one scale.
    """
    return _Quantiser(network, dtype).network()


@dataclass
class _Quantiser:
    """A network in the making.

    ``renamed`` are tensors by the names that they have now, ``norms`` the normalisations that fold
    into the convolution before them, by what that makes.
    """

    source: Network
    dtype: str
    nodes: list[Node] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.types, self.constants = dict(self.source.types), dict(self.source.constants)
        convolutions = (n for n in self.source.nodes if n.op == "Conv" and not n.domain)
        norms = ((n.outputs[0], self.source.reader(n, "BatchNormalization")) for n in convolutions)
        self.norms = {made: norm for made, norm in norms if norm is not None}

    def network(self) -> Network:
        for node in self.source.nodes:
            self._add(node)
        outputs = tuple(self.renamed.get(name, name) for name in self.source.outputs)
        nodes, types, constants = tuple(self.nodes), self.types, self.constants
        return replace(self.source, nodes=nodes, outputs=outputs, types=types, constants=constants)

    def _add(self, node: Node) -> None:
        is_in_8_bits = node.op in _IN_8_BITS and not node.domain
        first = node.inputs[0] if node.inputs else ""
        is_end = (node.op in _ENDS and is_in_8_bits) or node is self.norms.get(first)
        if is_end and first in self.renamed:
            self.renamed[node.outputs[0]] = self.renamed[first]
            return
        norm = self.norms.get(node.outputs[0])
        if norm is not None and len(node.inputs) == 2:  # its shift becomes the bias
            node = replace(node, inputs=(*node.inputs, norm.inputs[2]))
        inputs = [self.renamed.get(name, name) for name in node.inputs]
        if is_in_8_bits:
            inputs = [self._operand(node, place) for place in range(len(inputs))]
        self.nodes.append(replace(node, inputs=tuple(inputs)))
        if is_in_8_bits:
            for name in node.outputs:
                self._activation(name)

    def _operand(self, node: Node, place: int) -> str:
        name = node.inputs[place]
        constant = self.constants.get(name)
        if constant is None:
            return self._activation(name)
        if node.op not in _PRODUCTS | _SUMS or constant.type.dtype != "float32":
            return name  # bounds, sizes, scales
        dtype = self.dtype if node.op in _SUMS else "int32" if place == 2 else "int8"
        stored, made = f"{name}__{dtype}", f"{name}__from_{dtype}"
        if made not in self.types:
            self.constants[stored] = Constant(TensorType(dtype, constant.type.shape))
            self._node("DequantizeLinear", stored, made, dtype, constant.type)
        return made

    def _activation(self, name: str) -> str:
        type_ = self.types.get(name)
        if name in self.renamed or type_ is None or type_.dtype != "float32":
            return self.renamed.get(name, name)
        stored, made = f"{name}__{self.dtype}", f"{name}__from_{self.dtype}"
        narrow = TensorType(self.dtype, type_.shape)
        self._node("QuantizeLinear", name, stored, self.dtype, narrow)
        self._node("DequantizeLinear", stored, made, self.dtype, type_)
        self.renamed[name] = made
        return made

    def _node(self, op: str, read: str, made: str, dtype: str, type_: TensorType) -> None:
        scale, zero = f"{made}__scale", f"{made}__zero"
        self.constants[scale] = Constant(TensorType("float32", ()))
        self.constants[zero] = Constant(TensorType(dtype, ()))
        self.types[made] = type_
        self.nodes.append(Node(made, op, (read, scale, zero), (made,), (), "", _VERSION))
