"""Which operators of a file each kernel computes that ONNX Runtime made of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from hybridlat.engines.ort.predicted_graph import equal_results
from hybridlat.graph.network import Network, Node
from hybridlat.graph.operators import is_quantised, named

ACTIVATIONS = named("Relu LeakyRelu Tanh Sigmoid Clip HardSigmoid HardSwish QuickGelu")
ADDITIONS = named("Add Sum")
# What the engine makes of an operator often keeps its name, or its result's, in front:
# n12_token_43, n12.0_bn_nchwc.
_DERIVED_NAME = re.compile(r"n(\d+)(?:\.\d+(?:_bn)?_nchwc.*|[_/].*)?")


def trace(file: Network, lowered: Network) -> tuple[tuple[int, ...], ...]:
    """For every kernel the positions of the file's operators that it computes; each at most once.

    ``file`` is the network under the names of ``numbered``. The name of a kernel's tensor, or its
    own, leads to an operator of the file; from there the file is walked back to what other kernels
    compute. An addition or activation inside a convolution is found by walking forward. Operators
    that compute the same are one kernel's.
    """
    claimed: set[int] = set()
    anchors = [_anchors(file, node) for node in lowered.nodes]
    anchored = {position for group in anchors for position in group}
    equals = _equals(file)
    for group in anchors:  # an operator that was merged into an equal one goes to its kernel
        for position in [p for p in group if p in equals]:
            merged = [p for p in equals[position] if p not in anchored]
            group.extend(merged)
            anchored.update(merged)
    origins: list[tuple[int, ...]] = []
    for node, starts in zip(lowered.nodes, anchors, strict=True):
        mine: set[int] = set()
        stack = [s for s in starts if s not in claimed]
        while stack:
            position = stack.pop()
            if position in claimed or position in mine:
                continue
            mine.add(position)
            for name in file.nodes[position].inputs:
                source = file.producers.get(name)
                if source is not None and source not in anchored:
                    stack.append(source)
        mine |= _absorbed(file, equals, claimed | anchored, node, starts[:1], mine)
        claimed |= mine
        origins.append(tuple(sorted(mine)))
    return tuple(origins)


def _equals(file: Network) -> dict[int, list[int]]:
    """For each operator that computes the same as others: all of them."""
    producer = file.producers
    classes: dict[str, list[int]] = {}
    for later, first in equal_results(file).items():
        classes.setdefault(first, [producer[first]]).append(producer[later])
    return {position: group for group in classes.values() for position in group}


def _anchors(file: Network, node: Node) -> list[int]:
    if node.op == "ReorderOutput" and not node.attribute("channels_last", 0):
        return []  # the same values in another layout, under the name that they have in the file
    anchors = [file.producers[out] for out in node.outputs if out in file.producers]
    derived = _DERIVED_NAME.fullmatch(node.name)
    return [int(derived[1])] if derived and not anchors else anchors


def _absorbed(
    file: Network,
    equals: dict[int, list[int]],
    taken: set[int],
    node: Node,
    start: list[int],
    mine: set[int],
) -> set[int]:
    """Operators behind the anchor, none ``taken``, that a kernel's attributes speak of."""
    nodes = file.nodes

    def readers(here: Sequence[int], kinds: Collection[str]) -> list[int]:
        """The operator of these kinds that reads what ``here`` makes, and its equals; else none."""
        read = [r for p in here for out in nodes[p].outputs for r in file.consumers.get(out, ())]
        fitting = [r for r in read if nodes[r].op in kinds and r not in taken]
        alike = equals.get(fitting[0], fitting[:1]) if fitting else []
        return fitting if set(fitting).issubset(alike) else []

    kinds_behind: list[Collection[str]] = []
    ops = {nodes[i].op for i in mine}
    adds = node.op in ("Conv", "FusedConv") and len(node.inputs) > 3 and bool(node.inputs[3])
    if adds and not ops & ADDITIONS:
        kinds_behind.append(ADDITIONS)
    activation = node.attribute("activation")
    if isinstance(activation, str) and (kinds_behind or not ops & ACTIVATIONS):
        kinds_behind.append(ACTIVATIONS)
    absorbed: set[int] = set()
    here = start
    for kinds in kinds_behind:
        here = readers(here, kinds)
        if not here:
            return absorbed
        absorbed.update(here)
    if is_quantised(node.op):
        # It gives out whole numbers: what rounds them in the file, and a bound that rounding keeps.
        bound = readers(here, ACTIVATIONS)
        rounded = readers(bound or here, ("QuantizeLinear",))
        if rounded:
            absorbed.update(bound, rounded)
    return absorbed
