"""What no engine can run and onnx's own checker lets pass: sizes that do not fit together."""

from __future__ import annotations

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, Node
from hybridlat.graph.normal import sizes_of

MAX_TENSOR_ELEMENTS = 1 << 36
_PER_CHANNEL = ("BatchNormalization", "InstanceNormalization", "GroupNormalization")
"""What they read besides their input has one value for each channel, or for each group of them."""
_BROADCAST = ("PRelu", "LayerNormalization", "RMSNormalization")
"""What they read besides their input has its last sizes, or 1."""
_POOLS = ("MaxPool", "AveragePool", "LpPool")
_WINDOWS = (*_POOLS, "Conv", "ConvTranspose")


class Misfit(NetworkError):
    """Sizes that do not fit together: those that were asked for may not be the file's."""


def refusal(words: str) -> NetworkError:
    """What to say of a network that onnx objects to with these words, and the engine as well."""
    if "bfloat16" in words:
        return NetworkError(
            f"ONNX does not define all operators of this BF16 file for BF16 ({words}): export "
            "the model in FP32 (model.float()) and ask for a target in bf16"
        )
    if "inconsistent type" in words:
        return NetworkError(
            f"the types of the tensors do not fit together ({words}): the exporter mixed "
            "precisions; export the whole model in one, best in FP32 (model.float())"
        )
    return Misfit(
        f"the shapes do not fit together ({words}): a file exported for other sizes may "
        "need those; give them with --shape"
    )


def check_network(network: Network, batch: int | None = None) -> None:
    """NetworkError for sizes that are zero, negative or absurd, or do not fit together."""
    for name, type_ in network.types.items():
        if any(size <= 0 for size in type_.shape):
            raise NetworkError(f"the tensor {name!r} has a size of zero or less: {type_}")
        if type_.elements > MAX_TENSOR_ELEMENTS:
            largest = max(each.elements for each in network.types.values())
            most = 0 if batch is None else batch * MAX_TENSOR_ELEMENTS // largest
            fix = f": give a --batch of at most {most}" if most else ""
            large = f"absurdly large: {type_} ({type_.elements:.3g} elements)"
            raise NetworkError(f"the tensor {name!r} is {large}{fix}")
    for name, constant in network.constants.items():
        if any(size < 0 for size in constant.type.shape):
            raise NetworkError(f"the constant {name!r} has a negative size")
    for node in network.nodes:
        if node.domain == "":
            _check_node(network, node)


def _check_node(network: Network, node: Node) -> None:
    """What an operator reads must fit together: weights, channels, rows, numbers of elements."""
    where = f"{node.op} {node.name!r}"
    if node.op in ("Conv", "ConvTranspose") and len(node.inputs) >= 2:
        _check_convolution(network, node, where)
    if node.op in _PER_CHANNEL:
        _check_parameters(network, node, where)
    if node.op in _WINDOWS or node.op in ("Transpose", "DepthToSpace"):
        _check_sizes(network, node, where)
    if node.op in _BROADCAST and node.version > 6:
        source = network.type_of(node.inputs[0])
        for type_ in map(network.type_of, filter(None, node.inputs[1:])):
            ends = zip(reversed(type_.shape), reversed(source.shape), strict=False)
            if len(type_.shape) > len(source.shape) or any(a not in (1, b) for a, b in ends):
                raise NetworkError(f"{where} has an input {source}, but a parameter {type_}")
    if node.attribute("training_mode", 0) or (node.op in _PER_CHANNEL and any(node.outputs[1:])):
        raise NetworkError(
            f"{where} is in training mode: export the network for inference (model.eval())"
        )
    if node.op == "Reshape":
        source, target = network.type_of(node.inputs[0]), network.type_of(node.outputs[0])
        if source.elements != target.elements:
            raise Misfit(
                f"{where} makes {source.elements} elements ({source}) {target.elements} "
                f"({target}): if the file was exported for other sizes, give those with --shape"
            )
    if node.op == "Gemm":
        first, second = (network.type_of(n).shape for n in node.inputs[:2])
        inner_a = first[0] if node.attribute("transA", 0) else first[1]
        inner_b = second[1] if node.attribute("transB", 0) else second[0]
        if inner_a != inner_b:
            raise NetworkError(f"{where} multiplies {inner_a} columns with {inner_b} rows")


def _check_parameters(network: Network, node: Node, where: str) -> None:
    source, what = network.type_of(node.inputs[0]), "channels"
    if len(source.shape) < 2:
        raise NetworkError(f"{where} has an input {source}, which has no channels")
    number = source.shape[1]
    if node.op == "GroupNormalization" and node.version < 21:
        number, what = int(str(node.attribute("num_groups", 1))), "groups"
    for type_ in map(network.type_of, filter(None, node.inputs[1:])):
        if type_.elements != number:
            raise NetworkError(f"{where} has {number} {what}, but a parameter {type_}")


def _check_sizes(network: Network, node: Node, where: str) -> None:
    """The rank of what a window or an order of axes makes, and what onnx rounds or lets pass."""
    source, made = network.type_of(node.inputs[0]), network.type_of(node.outputs[0])
    if len(made.shape) != len(source.shape):
        order = f"orders {len(made.shape)} axes" if node.op == "Transpose" else f"makes {made}"
        raise NetworkError(f"{where} {order} of an input {source}")
    kernel, pads = sizes_of(node, "kernel_shape"), sizes_of(node, "pads")
    if node.op in _POOLS and kernel:
        steps = sizes_of(node, "dilations") or (1,) * len(kernel)
        spans = [(size - 1) * step + 1 for size, step in zip(kernel, steps, strict=False)]
        if any(pad >= span for pad, span in zip(pads or (), 2 * spans, strict=False)):
            raise NetworkError(f"{where} has pads {pads} that reach over its kernel {kernel}")
    if node.op == "DepthToSpace" and source.elements != made.elements:
        block = int(str(node.attribute("blocksize", 1))) ** 2
        raise NetworkError(f"{where} makes blocks of {source.shape[1]} channels, not of {block}")


def _check_convolution(network: Network, node: Node, where: str) -> None:
    source, weight = network.type_of(node.inputs[0]), network.type_of(node.inputs[1])
    if len(source.shape) < 3 or len(weight.shape) != len(source.shape):
        raise NetworkError(f"{where} has an input {source} and a weight {weight}")
    group = node.attribute("group", 1)
    if not isinstance(group, int) or group < 1:
        raise NetworkError(f"{where} has {group} groups")
    channels = weight.shape[1] * group if node.op == "Conv" else weight.shape[0]
    if source.shape[1] != channels:
        raise Misfit(
            f"{where} expects {channels} input channels, but its input has {source.shape[1]}"
        )
    if weight.shape[0] % group:
        raise NetworkError(f"{where}: {weight.shape[0]} channels in {group} groups")
    made = weight.shape[0] if node.op == "Conv" else weight.shape[1] * group
    if len(node.inputs) > 2 and node.inputs[2]:
        bias = network.type_of(node.inputs[2])
        if bias.shape != (made,):
            raise NetworkError(f"{where} has {made} channels, but a bias {bias}")
