"""Sizes checked against each other: what onnx's own checker lets pass and no engine can run."""

from __future__ import annotations

from hybridlat.errors import NetworkError
from hybridlat.graph.network import AttributeValue, Network, Node, TensorType

MAX_TENSOR_ELEMENTS = 1 << 36
MAX_WEIGHT_BYTES = 1 << 37


def check_network(network: Network, batch: int | None = None) -> None:
    """NetworkError for sizes that are zero, negative or absurd, or do not fit together.

    ``batch`` is the user's: where it makes a tensor too large, the message says how much fits.
    """
    for name, type_ in network.types.items():
        if any(size <= 0 for size in type_.shape):
            raise NetworkError(f"the tensor {name!r} has a size of zero or less: {type_}")
        if type_.elements > MAX_TENSOR_ELEMENTS:
            raise NetworkError(
                f"the tensor {name!r} is absurdly large: {type_} "
                f"({type_.elements:.3g} elements){_less_than(batch, network)}"
            )
    for name, constant in network.constants.items():
        if any(size < 0 for size in constant.type.shape):
            raise NetworkError(f"the constant {name!r} has a negative size")
    for node in network.nodes:
        if node.domain == "":
            _check_node(network, node)


def check_weights(network: Network) -> None:
    """NetworkError for weights that no machine holds."""
    if network.weight_bytes > MAX_WEIGHT_BYTES:
        raise NetworkError(f"{network.weight_bytes / 1e9:.3g} GB of weights is absurdly large")


def _less_than(batch: int | None, network: Network) -> str:
    """What to do about tensors that a batch made so large."""
    largest = max(type_.elements for type_ in network.types.values())
    most = 0 if batch is None else batch * MAX_TENSOR_ELEMENTS // largest
    return f": give a --batch of at most {most}" if most else ""


def _check_node(network: Network, node: Node) -> None:
    """What an operator reads must fit together: weights, channels, rows, numbers of elements."""
    where = f"{node.op} {node.name!r}"
    if node.op in ("Conv", "ConvTranspose") and len(node.inputs) >= 2:
        _check_convolution(network, node, where)
    if node.op == "BatchNormalization":
        source = network.type_of(node.inputs[0])
        if len(source.shape) < 2:
            raise NetworkError(f"{where} has an input {source}, which has no channels")
        channels = source.shape[1]
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


def _check_convolution(network: Network, node: Node, where: str) -> None:
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
    if node.op != "Conv":
        return
    if weight.shape[0] % group:
        raise NetworkError(f"{where}: {weight.shape[0]} channels in {group} groups")
    if len(node.inputs) > 2 and node.inputs[2]:
        bias = network.type_of(node.inputs[2])
        if bias.shape != (weight.shape[0],):
            raise NetworkError(f"{where} has {weight.shape[0]} channels, but a bias {bias}")
    sizes, result = _convolved(node, source, weight), network.type_of(node.outputs[0])
    if sizes is not None and sizes != result.shape[2:]:
        raise NetworkError(
            f"{where} gives {result}, which its weight {weight} does not make of {source}: its "
            "kernel_shape must be that of the weight"
        )


def _convolved(node: Node, source: TensorType, weight: TensorType) -> tuple[int, ...] | None:
    """The result's sizes by the weight; None where the padding depends on them."""
    if node.attribute("auto_pad", "NOTSET") != "NOTSET":
        return None
    axes = len(source.shape) - 2
    pads = _numbers(node.attribute("pads"), (0,) * (2 * axes))
    steps = _numbers(node.attribute("strides"), (1,) * axes)
    dilations = _numbers(node.attribute("dilations"), (1,) * axes)
    if len(pads) != 2 * axes or len(steps) != axes or len(dilations) != axes or min(steps) < 1:
        return None  # onnx's own inference says what is wrong
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, weight.shape[2:], strict=True)]
    return tuple(
        (size + pads[i] + pads[i + axes] - spans[i]) // steps[i] + 1
        for i, size in enumerate(source.shape[2:])
    )


def _numbers(value: AttributeValue | None, default: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, value)) if isinstance(value, tuple) else default
