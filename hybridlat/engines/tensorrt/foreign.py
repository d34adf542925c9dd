"""What classic TensorRT gives to Myelin, from version 10 on: a ForeignNode of its engine."""

from __future__ import annotations

from hybridlat.graph.network import Network
from hybridlat.graph.operators import KINDS, kind_of

_BUILT_IN = frozenset({
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize", "Upsample",
    "Gemm",
})  # fmt: skip
_MAP = 4  # dimensions of feature maps
_COMPUTES = frozenset({KINDS["pointwise"], KINDS["matmul"], KINDS["reduce"]})


def compiled(network: Network) -> frozenset[int]:
    """Positions of operators that Myelin compiles in a network without layer normalisations.

    A published engine of 10.7 has them around what computes on anything but feature maps: products
    of activations, softmaxes and element-wise heads, with the copies and views that hang on them.
    """
    nodes, types = network.nodes, network.types
    free = {i for i, node in enumerate(nodes) if node.op not in _BUILT_IN}

    def computes_apart(position: int) -> bool:
        node = nodes[position]
        ranks = [len(types[name].shape) for name in node.inputs if name in types]
        return kind_of(node.op) in _COMPUTES and bool(ranks) and max(ranks) != _MAP

    waiting = [i for i in free if computes_apart(i)]
    region = set(waiting)
    while waiting:
        node = nodes[waiting.pop()]
        beside = {network.producers[name] for name in node.inputs if name in network.producers}
        beside.update(i for out in node.outputs for i in network.consumers.get(out, ()))
        waiting += (beside & free) - region
        region |= beside & free
    return frozenset(region)
