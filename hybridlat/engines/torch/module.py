"""What a PyTorch module runs, from what its exporter wrote of it.

An exported file is not the module: the exporter folds a batch normalisation into the convolution
in front of it, which eager PyTorch and ``torch.compile`` (without freezing) never do, and writes
one ATen call as several operators. :func:`as_module` puts the normalisations and the separate bias
additions back; :mod:`.rules` joins what was one call; :mod:`.views` says which views copy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hybridlat.graph.network import Constant, Lowered, Network, Node, TensorType

MARK = ("memory_format", "channels_last")
"""Of an operator that runs with channels innermost, as PyTorch calls it. Shapes stay as written."""
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
# Exporters name what they fold: onnx::Conv_123 (TorchScript), conv1.weight_bias (dynamo).
_FOLDED_BIAS = re.compile(r"onnx::Conv(Transpose)?_\d+$|.*\bweight_bias$")
_OWN_BIAS = re.compile(r"(.*[./])?bias$")


@dataclass(frozen=True, slots=True)
class Module:
    """The network as a module runs it, and where each of its operators stands in the file.

    ``origins[i]`` is the file's position of ``network.nodes[i]``, None for one that was put in.
    """

    network: Network
    origins: tuple[int | None, ...]


def as_module(network: Network, bias_apart: bool = True) -> Module:
    """Put back what the exporter folded into convolutions.

    A ``BatchNormalization`` goes behind those whose bias was folded (:func:`folded_norms`). Any
    other bias becomes an ``Add`` (``bias_apart``): with cuDNN, PyTorch adds it in a call of its own
    (ATen's ``Convolution.cpp``), and so does the code that inductor makes for a GPU. On a CPU the
    convolution adds it.
    """
    normed = folded_norms(network)
    nodes: list[Node] = []
    origins: list[int | None] = []
    types, constants = dict(network.types), dict(network.constants)
    for position, node in enumerate(network.nodes):
        bias = _bias(network, node)
        if bias and (position in normed or bias_apart):
            raw = f"{node.outputs[0]}__conv"
            types[raw] = types[node.outputs[0]]
            nodes.append(replace(node, inputs=node.inputs[:2], outputs=(raw,)))
            nodes.append(_behind(node, raw, bias, position in normed, constants))
            origins += [position, None]
        else:
            nodes.append(node)
            origins.append(position)
    read = {name for node in nodes for name in node.inputs}
    kept = {name: c for name, c in constants.items() if name in read}
    made = replace(network, nodes=tuple(nodes), types=types, constants=kept)
    return Module(made, tuple(origins))


def folded_norms(network: Network) -> frozenset[int]:
    """Positions of the convolutions into which a batch normalisation was folded.

    The name that the exporter gives a folded bias tells it. Where no name in the file tells either
    way, the kind of network does: one that adds residuals or holds depthwise convolutions was not
    trained without normalisation, unless it normalises otherwise; AlexNet, VGG, SqueezeNet were.
    """
    biased = {i: b for i, node in enumerate(network.nodes) if (b := _bias(network, node))}
    folded = frozenset(i for i, name in biased.items() if _FOLDED_BIAS.match(name))
    if folded or any(_OWN_BIAS.match(name) for name in biased.values()):
        return folded
    ops = {node.op for node in network.nodes}
    if ops & {"LayerNormalization", "InstanceNormalization", "GroupNormalization"}:
        return frozenset()
    if not any(_is_modern(network, node) for node in network.nodes):
        return frozenset()
    return frozenset(i for i in biased if _pixels(network, network.nodes[i]) > 1)


def with_channels_last(module: Module, positions: frozenset[int]) -> Module:
    """The module with a mark on the operators at these positions: other kernels run them."""
    nodes = list(module.network.nodes)
    for position in positions:
        marked = tuple(sorted((*nodes[position].attributes, MARK)))
        nodes[position] = replace(nodes[position], attributes=marked)
    return replace(module, network=replace(module.network, nodes=tuple(nodes)))


def to_file(module: Module, lowered: Lowered) -> Lowered:
    """The same kernels, traced to the operators of the file."""
    origins = tuple(_of_file(module, origin) for origin in lowered.origins)
    return replace(lowered, origins=origins, removed=_of_file(module, lowered.removed))


def _of_file(module: Module, positions: Sequence[int]) -> tuple[int, ...]:
    origins = (module.origins[i] for i in positions)
    return tuple(i for i in origins if i is not None)


def _bias(network: Network, node: Node) -> str:
    if node.op not in _CONVOLUTIONS or node.domain or len(node.inputs) < 3:
        return ""
    return node.inputs[2] if node.inputs[2] in network.constants else ""


def _behind(node: Node, raw: str, bias: str, normed: bool, constants: dict[str, Constant]) -> Node:
    """The operator behind a convolution without its bias: a normalisation, or the bias alone."""
    dtype, (channels,) = constants[bias].type.dtype, constants[bias].type.shape
    if normed:
        names = tuple(f"{bias}__{part}" for part in ("scale", "shift", "mean", "variance"))
        constants.update((name, Constant(TensorType(dtype, (channels,)))) for name in names)
        return Node(
            f"{node.name}__norm", "BatchNormalization", (raw, *names), node.outputs, version=15
        )
    rank = len(constants[node.inputs[1]].type.shape) if node.inputs[1] in constants else 4
    name = f"{bias}__apart"
    constants[name] = Constant(TensorType(dtype, (channels, *[1] * (rank - 2))))
    return Node(f"{node.name}__bias", "Add", (raw, name), node.outputs, version=14)


def _is_modern(network: Network, node: Node) -> bool:
    if node.op == "Add":
        return sum(name in network.types for name in node.inputs) == 2
    return node.op == "Conv" and node.attribute("group", 1) not in (1, 2)


def _pixels(network: Network, node: Node) -> int:
    shape = network.types[node.outputs[0]].shape
    return shape[-1] * (shape[-2] if len(shape) > 3 else 1)
