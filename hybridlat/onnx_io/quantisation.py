"""Scales and zero points for a network whose weights are random: such as engines take.

The values in a file are not kept (one for each channel, they are weights). But engines fuse an
operator between quantisation and dequantisation only where zero points of weights are zero and the
scale of a bias is that of the input times that of the weight.
"""

from __future__ import annotations

from collections.abc import Mapping

from hybridlat.graph.network import Constant, Network, Node
from hybridlat.graph.operators import is_quantised

WEIGHT_SCALE = 0.01
_ZERO_POINTS = ("int8", "uint8", "int16", "uint16", "int4", "uint4")
_SCALES = ("float32", "float16", "bfloat16")


def quantisation_constants(network: Network) -> dict[str, Constant]:
    """The scales and zero points of a network that have no values, with values."""
    found: dict[str, Constant] = {}
    for node in network.nodes:
        if node.op in ("QuantizeLinear", "DequantizeLinear") or is_quantised(node.op):
            found.update(_of_weights(network, node))
    makers = {out: node for node in network.nodes for out in node.outputs if out}
    for node in network.nodes:
        found.update(_of_bias(network, node, makers, found))
    return found


def _of_weights(network: Network, node: Node) -> dict[str, Constant]:
    found = {}
    for name in node.inputs[1:]:
        constant = network.constants.get(name)
        if constant is None or constant.values is not None or len(constant.type.shape) != 1:
            continue
        count = constant.type.elements
        if constant.type.dtype in _SCALES:
            found[name] = Constant(constant.type, (WEIGHT_SCALE,) * count)
        elif constant.type.dtype in _ZERO_POINTS:
            found[name] = Constant(constant.type, (0,) * count)
    return found


def _of_bias(
    network: Network, node: Node, makers: Mapping[str, Node], known: Mapping[str, Constant]
) -> dict[str, Constant]:
    """The scale of a bias in 32 bits, where input, weight and bias are all dequantised."""
    reads = [makers.get(name) for name in node.inputs[:3]]
    if len(reads) < 3 or any(r is None or r.op != "DequantizeLinear" for r in reads):
        return {}
    names = [read.inputs[1] for read in reads if read is not None]
    x, weight, bias = (known.get(name, network.constants.get(name)) for name in names)
    if x is None or weight is None or bias is None or bias.type.dtype not in _SCALES:
        return {}
    if not x.values or not weight.values or names[2] not in known:
        return {}
    scale = float(x.values[0]) * float(weight.values[0])
    return {names[2]: Constant(bias.type, (scale,) * bias.type.elements)}
