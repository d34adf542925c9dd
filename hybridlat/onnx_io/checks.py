"""What no engine can run and onnx's own checker lets pass: sizes that do not fit together."""

from collections.abc import Iterator

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, Node, TensorType
from hybridlat.graph.operators import RECURRENT

MAX_TENSOR_ELEMENTS = 1 << 36
_PER_CHANNEL = ("BatchNormalization", "InstanceNormalization", "GroupNormalization")
"""What they read besides their input has one value for each channel, or for each group of them."""
_BROADCAST = ("PRelu", "LayerNormalization", "RMSNormalization", "Gemm")
"""What they read besides their input (Gemm: and its weight) has its last sizes, or 1."""
POOLS = ("MaxPool", "AveragePool", "LpPool")
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_SAME_RANK = (*_CONVOLUTIONS, *POOLS, "Transpose", "DepthToSpace", "SpaceToDepth")
_CHECKED = frozenset((*_PER_CHANNEL, *_BROADCAST, *_SAME_RANK, *RECURRENT, "Reshape"))


class Misfit(NetworkError):
    """Sizes that do not fit together: those that were asked for may not be the file's."""


def refusal(words: str) -> NetworkError:
    """What to say of a network that onnx objects to with these words, and the engine as well."""
    if "bfloat16" in words:
        why = f"ONNX does not define all operators of this BF16 file for BF16 ({words})"
        fix = "export the model in FP32 (model.float()) and ask for a target in bf16"
        return NetworkError(f"{why}: {fix}")
    if "inconsistent type" in words or "unsupported type" in words:
        why = f"the types of the tensors do not fit together ({words})"
        fix = "export the whole model in one, best in FP32 (model.float())"
        return NetworkError(f"{why}: the exporter mixed precisions; {fix}")
    fix = "a file exported for other sizes may need those; give them with --shape"
    return Misfit(f"the shapes do not fit together ({words}): {fix}")


def check_network(network: Network, batch: int | None = None) -> None:
    """NetworkError for sizes that are zero, negative or absurd; Misfit where they do not fit."""
    for name, type_ in network.types.items():
        if any(size <= 0 for size in type_.shape):
            raise NetworkError(f"the tensor {name!r} has a size of zero or less: {type_}")
        if type_.elements > MAX_TENSOR_ELEMENTS:
            largest = max(each.elements for each in network.types.values())
            most = 0 if batch is None else batch * MAX_TENSOR_ELEMENTS // largest
            fix = f": give a --batch of at most {most}" if most else ""
            large = f"absurdly large: {type_} ({type_.elements:.3g} elements)"
            raise NetworkError(f"the tensor {name!r} is {large}{fix}")
    for node in network.nodes:
        for fault in _faults(network, node) if node.qualified_op in _CHECKED else ():
            raise Misfit(f"{node.op} {node.name!r} {fault}")


def _faults(network: Network, node: Node) -> Iterator[str]:
    """What of the weights, channels, rows and elements of an operator does not fit together."""
    source = network.type_of(node.inputs[0])
    made = network.types.get(node.outputs[0], source)
    operands = [network.type_of(name) for name in node.inputs[1:] if name]
    if node.op in _CONVOLUTIONS and operands:
        yield from _faults_of_convolution(node, source, *operands)
    if node.op in _PER_CHANNEL:
        if len(source.shape) < 2:
            yield f"has an input {source}, which has no channels"
        number, what = source.shape[1], "channels"
        groups = int(str(node.attribute("num_groups", 1)))
        if not 1 <= groups <= number:
            yield f"has {number} channels in {groups} groups"
        if node.op == "GroupNormalization" and node.version < 21:
            number, what = groups, "groups"
        for type_ in operands:
            if type_.elements != number:
                yield f"has {number} {what}, but a parameter {type_}"
    if node.op in _SAME_RANK and len(made.shape) != len(source.shape):
        axes = f"orders {len(made.shape)} axes" if node.op == "Transpose" else f"makes {made}"
        yield f"{axes} of an input {source}"
    if node.op in POOLS:
        kernel, pads = node.sizes("kernel_shape") or (), node.sizes("pads") or ()
        steps = node.sizes("dilations") or (1,) * len(kernel)
        spans = [(size - 1) * step + 1 for size, step in zip(kernel, steps, strict=False)]
        if any(pad >= span for pad, span in zip(pads, 2 * spans, strict=False)):
            yield f"has pads {pads} that reach over its kernel {kernel}"
    if node.op.endswith(("ToSpace", "ToDepth")) and source.elements != made.elements:
        yield f"makes {made} of an input {source} by blocks of {node.attribute('blocksize', 1)}"
    if node.op in _BROADCAST and node.version > 6:
        for type_ in operands[node.op == "Gemm" :]:
            ends = zip(reversed(type_.shape), reversed(made.shape), strict=False)
            if len(type_.shape) > len(made.shape) or any(a not in (1, b) for a, b in ends):
                yield f"makes {made}, but has a parameter {type_}"
    if node.op in RECURRENT and operands[0].shape[-1] != source.shape[-1]:
        yield f"has an input {source}, but a weight {operands[0]}"
    if node.attribute("training_mode", 0) or (node.op in _PER_CHANNEL and any(node.outputs[1:])):
        yield "is in training mode: export the network for inference (model.eval())"
    if node.op == "Reshape" and source.elements != made.elements:
        yield (
            f"makes {source.elements} elements ({source}) {made.elements} ({made}): if the file "
            "was exported for other sizes, give those with --shape"
        )
    if node.op == "Gemm":
        columns = source.shape[0 if node.attribute("transA", 0) else 1]
        rows = operands[0].shape[1 if node.attribute("transB", 0) else 0]
        if columns != rows:
            yield f"multiplies {columns} columns with {rows} rows"


def _faults_of_convolution(
    node: Node, source: TensorType, weight: TensorType, bias: TensorType | None = None
) -> Iterator[str]:
    if len(source.shape) < 3 or len(weight.shape) != len(source.shape):
        yield f"has an input {source} and a weight {weight}"
    group = node.attribute("group", 1)
    if not isinstance(group, int) or group < 1:
        yield f"has {group} groups"
    group = int(str(group))
    read, made = weight.shape[1] * group, weight.shape[0]
    if node.op == "ConvTranspose":
        read, made = weight.shape[0], weight.shape[1] * group
    if source.shape[1] != read:
        yield f"expects {read} input channels, but its input has {source.shape[1]}"
    if weight.shape[0] % group:
        yield f"has {weight.shape[0]} channels in {group} groups"
    if bias is not None and bias.shape != (made,):
        yield f"has {made} channels, but a bias {bias}"
