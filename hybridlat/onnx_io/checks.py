"""What onnx's own checker lets pass and no engine can run."""

from __future__ import annotations

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, Node

MAX_TENSOR_ELEMENTS = 1 << 36
MAX_WEIGHT_BYTES = 1 << 37


def check_network(network: Network, batch: int | None = None) -> None:
    """NetworkError for sizes that are zero, negative or absurd, and weights that do not fit.

    ``batch`` is what was asked for beside the file: where it makes a size absurd it is named.
    """
    for name, type_ in network.types.items():
        if any(size <= 0 for size in type_.shape):
            raise NetworkError(
                f"{network.name}: the tensor {name!r} has a size of zero or less: {type_}"
            )
        if type_.elements > MAX_TENSOR_ELEMENTS:
            raise NetworkError(
                f"{network.name}: the tensor {name!r} is absurdly large: {type_} "
                f"({type_.elements:.3g} elements){_less_than(batch, network)}"
            )
    for name, constant in network.constants.items():
        if any(size < 0 for size in constant.type.shape):
            raise NetworkError(f"{network.name}: the constant {name!r} has a negative size")
    if network.weight_bytes > MAX_WEIGHT_BYTES:
        raise NetworkError(
            f"{network.name}: {network.weight_bytes / 1e9:.3g} GB of weights is absurdly large"
        )
    for node in network.nodes:
        if node.domain == "":
            _check_node(network, node)


def _less_than(batch: int | None, network: Network) -> str:
    """What to do about tensors that a batch made so large."""
    largest = max(type_.elements for type_ in network.types.values())
    most = 0 if batch is None else batch * MAX_TENSOR_ELEMENTS // largest
    return f": give a --batch of at most {most}" if most else ""


def _check_node(network: Network, node: Node) -> None:
    """What an operator reads must fit together: weights, channels, rows, numbers of elements."""
    where = f"{network.name}: {node.op} {node.name!r}"
    if node.op in ("Conv", "ConvTranspose") and len(node.inputs) >= 2:
        source, weight = network.type_of(node.inputs[0]), network.type_of(node.inputs[1])
        if len(source.shape) < 3 or len(weight.shape) != len(source.shape):
            raise NetworkError(f"{where} has an input {source} and a weight {weight}")
        group = node.attribute("group", 1)
        if not isinstance(group, int) or group < 1:
            raise NetworkError(f"{where} has {group} groups")
        channels = weight.shape[1] * group if node.op == "Conv" else weight.shape[0]
        if source.shape[1] != channels:
            raise NetworkError(
                f"{where} expects {channels} input channels, but its input has {source.shape[1]}"
            )
        if node.op == "Conv" and weight.shape[0] % group:
            raise NetworkError(f"{where}: {weight.shape[0]} channels in {group} groups")
        if node.op == "Conv" and len(node.inputs) > 2 and node.inputs[2]:
            bias = network.type_of(node.inputs[2])
            if bias.shape != (weight.shape[0],):
                raise NetworkError(f"{where} has {weight.shape[0]} channels, but a bias {bias}")
    if node.op == "BatchNormalization":
        channels = network.type_of(node.inputs[0]).shape[1]
        for name in node.inputs[1:]:
            type_ = network.type_of(name)
            if type_.elements != channels:
                raise NetworkError(f"{where} has {channels} channels, but a parameter {type_}")
    if node.op == "Reshape":
        source, target = network.type_of(node.inputs[0]), network.type_of(node.outputs[0])
        if source.elements != target.elements:
            raise NetworkError(
                f"{where} makes {source.elements} elements ({source}) {target.elements} "
                f"({target}): if the file was exported for other sizes, give those with --shape"
            )
    if node.op == "Gemm":
        first, second = (network.type_of(n).shape for n in node.inputs[:2])
        inner_a = first[0] if node.attribute("transA", 0) else first[1]
        inner_b = second[1] if node.attribute("transB", 0) else second[0]
        if inner_a != inner_b:
            raise NetworkError(f"{where} multiplies {inner_a} columns with {inner_b} rows")
