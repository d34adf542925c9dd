"""Which channels of a network's tensors depend on each other.

Each channel of each tensor has a number. Operators hand numbers on, and tie those of operands that
must agree: both sides of a sum, a convolution's input and its filters, the groups of a grouped one.
What is tied is one channel: the dependency graph of structural pruning (Fang et al., "DepGraph",
CVPR 2023), channel by channel, so that concatenations and splits need no arithmetic of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate, chain, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hybridlat.graph.network import Network, Node
from hybridlat.graph.work import FAMILY_OF

_PER_CHANNEL = ("BatchNormalization", "InstanceNormalization")
_SAME_SIZE = ("Softmax", "LogSoftmax", "LRN", "LayerNormalization")
_WINDOWS = ("Resize", "Upsample", "Pad", "Expand")
Ids: TypeAlias = "NDArray[np.intp] | None"
"""The numbers along an axis; None where the axis keeps its size."""
Shape: TypeAlias = tuple[int, ...]


class Channels:
    """The numbers of all axes, pairs of those that are tied, and what was not followed (``kept``).

    Number 0 is what keeps its size: along the network's inputs and outputs, and what is tied to it.
    """

    def __init__(self, network: Network) -> None:
        self.network, self.count = network, 1
        self.axes: dict[str, list[Ids]] = {n: [None] * len(self.shape(n)) for n in network.inputs}
        self.pairs: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
        self.kept: list[tuple[Node, NDArray[np.intp]]] = []
        for node in network.nodes:
            results = [name for name in node.outputs if name]
            self.axes |= dict(zip(results, self.follow(node), strict=False))
        for ids in chain(*map(self.of, network.outputs)):
            self.tie(ids, None)

    def shape(self, tensor: str) -> Shape:
        return self.network.type_of(tensor).shape

    def of(self, tensor: str) -> list[Ids]:
        """The axes of a tensor; a constant's are new."""
        if tensor not in self.axes:
            shape = self.shape(tensor)
            if self.network.constants[tensor].values is not None:  # they say what is computed
                return self.axes.setdefault(tensor, [None] * len(shape))
            ends = [self.count, *accumulate(shape, initial=self.count)][1:]
            self.axes[tensor] = [
                np.arange(start, end) if end - start > 1 else None for start, end in pairwise(ends)
            ]
            self.count += sum(shape)
        return self.axes[tensor]

    def tie(self, one: Ids, other: Ids) -> Ids:
        """Both are the same channels from now on."""
        if one is None and other is None:
            return None
        zero = np.zeros(1, np.intp)
        both = np.broadcast_arrays(zero if one is None else one, zero if other is None else other)
        self.pairs.append((both[0].ravel(), both[1].ravel()))
        return other if one is None else one

    def alike(self, ids: Ids, outer: int, inner: int = 1) -> Ids:
        """The n numbers that stand for all along an axis of ``outer`` x n x ``inner``."""
        if ids is None:
            return None
        each = ids.reshape(outer, -1, inner)
        self.tie(each, each[:1, :, :1])
        return each[0, :, 0]

    def keep(self, node: Node, *axes: Ids) -> None:
        """What an operator reads that is not followed keeps its size."""
        self.kept += [(node, ids) for ids in axes if ids is not None]

    def numbers(self, node: Node, name: str, place: int) -> Any:
        """The numbers of an attribute, else of a constant input; none where it has neither."""
        constant = self.network.constants.get("".join(node.inputs[place : place + 1]))
        return node.attribute(name, () if constant is None else constant.values or ())

    def follow(self, node: Node) -> list[list[Ids]]:
        family = "" if node.domain else FAMILY_OF.get(node.op, "")
        named = [name for name in node.inputs if name]
        inputs, shapes = list(map(self.of, named)), [self.shape(n) for n in node.outputs if n]
        x, old, shape = inputs[0], self.shape(named[0]), shapes[0]
        axis: Any = node.attribute("axis", 0)
        if family == "conv" and node.op in ("Conv", "ConvTranspose"):
            return [[x[0], self.convolved(node, inputs), *[None] * (len(shape) - 2)]]
        if node.op == "Gemm" or (node.op == "MatMul" and min(map(len, inputs)) > 1):
            return [self.product(node, inputs, shape)]
        if node.op in _PER_CHANNEL:
            for parameter in inputs[1:]:
                self.tie(parameter[0], x[1])
            return [x]
        if family == "pointwise" or node.op in _SAME_SIZE:
            return [self.broadcast([(self.of(n), self.shape(n)) for n in named], shape)]
        if family == "pool" or node.op in _WINDOWS:
            new = len(shape) - len(old)
            same = [False] * new + [a == b for a, b in zip(old, shape[new:], strict=True)]
            self.keep(node, *[ids for ids, one in zip(x, same[new:], strict=True) if not one])
            return [[x[i - new] if one else None for i, one in enumerate(same)]]
        if node.op.startswith("Reduce"):
            axes = self.numbers(node, "axes", 1) or range(len(x))
            left = [None if i in axes else ids for i, ids in enumerate(x)]
            kept = len(shape) == len(x)
            return [left if kept else [ids for i, ids in enumerate(x) if i not in axes]]
        if node.op == "Transpose":
            return [[x[i] for i in self.numbers(node, "perm", 9)]]
        if node.op == "Reshape":
            return [self.reshaped(node, x, old, shape)]
        if node.op == "Concat":
            made = [
                None if i == axis else reduce(self.tie, column)
                for i, column in enumerate(zip(*inputs, strict=True))
            ]
            parts = [
                np.zeros(self.shape(name)[axis], np.intp) if ids[axis] is None else ids[axis]
                for name, ids in zip(named, inputs, strict=True)
            ]
            made[axis] = np.concatenate(parts)
            return [made]
        if node.op == "Split":
            ends = list(accumulate([each[axis] for each in shapes], initial=0))
            return [
                [None if ids is None else ids[a:b] if i == axis else ids for i, ids in enumerate(x)]
                for a, b in pairwise(ends)
            ]
        if node.op == "Slice":
            return [self.sliced(node, x, old)]
        if node.op == "Gather":
            self.keep(node, x[axis])
            return [[*x[:axis], *[None] * len(self.shape(node.inputs[1])), *x[axis + 1 :]]]
        if node.op == "DepthToSpace":
            square, by_row = old[1] // shape[1], node.attribute("mode") == "CRD"
            one = self.alike(x[1], 1, square) if by_row else self.alike(x[1], square)
            return [[x[0], one, None, None]]
        self.keep(node, *chain(*inputs))
        return [[None] * len(each) for each in shapes]

    def convolved(self, node: Node, inputs: Sequence[list[Ids]]) -> Ids:
        (_, x, *_), (first, second, *window), *biases = inputs
        is_plain, groups = node.op == "Conv", groups_of(node)
        out, read = (first, second) if is_plain else (second, first)
        if groups == self.shape(node.inputs[0])[1] > 1:  # a filter for each channel of the input
            out = None if x is None else np.repeat(x, self.shape(node.outputs[0])[1] // groups)
            self.tie(first, out if is_plain else x)
            window.append(second)
        else:
            each = self.alike(x, groups)
            self.tie(read, each if is_plain else x)
            if is_plain:
                self.alike(out, groups)
            elif out is not None:
                out = np.tile(out, groups)
        for ids in window:
            self.tie(ids, None)
        for (bias,) in biases:
            self.tie(bias, out)
        return out

    def product(self, node: Node, inputs: Sequence[list[Ids]], shape: Shape) -> list[Ids]:
        a, b = (
            axes[:-2] + (axes[:-3:-1] if node.attribute(name) else axes[-2:])
            for axes, name in zip(inputs, ("transA", "transB"), strict=False)
        )
        self.tie(a[-1], b[-2])
        sizes = [self.shape(name) for name in node.inputs if name]
        batches = [(axes[:-2], own[:-2]) for axes, own in zip((a, b), sizes, strict=False)]
        made = [*self.broadcast(batches, shape[:-2]), a[-2], b[-1]]
        biases = zip(inputs[2:], sizes[2:], strict=True)
        return self.broadcast([(made, shape), *biases], shape)

    def broadcast(self, inputs: Sequence[tuple[list[Ids], Shape]], shape: Shape) -> list[Ids]:
        """The axes of an element-wise result; inputs of size 1 along an axis say nothing of it."""
        made: list[Ids] = []
        for i in range(-len(shape), 0):
            every = [ids[i] for ids, own in inputs if len(own) >= -i and own[i] == shape[i]]
            made.append(reduce(self.tie, every) if every else None)
        return made

    def sliced(self, node: Node, x: list[Ids], old: Shape) -> list[Ids]:
        starts, ends, axes, steps = (self.numbers(node, "", place) for place in range(1, 5))
        made = list(x)
        for i, axis in enumerate(axes or range(len(starts))):
            ids, step = x[axis], steps[i] if steps else 1
            made[axis] = None if ids is None else ids[slice(starts[i], ends[i], step)]
            if step != 1:
                self.keep(node, ids)
        return made

    def reshaped(self, node: Node, x: list[Ids], old: Shape, new: Shape) -> list[Ids]:
        """Axes that are joined or cut; of a cut axis the largest part holds its channels."""
        inside, outside = ([1, *accumulate(shape, lambda a, b: a * b)] for shape in (old, new))
        cuts = sorted({*inside, *outside})
        nested = all(b % a == 0 for a, b in pairwise(cuts))
        held: list[tuple[int, int, Ids]] = []
        for ids, low, high in zip(x, inside, inside[1:], strict=False):
            parts = [(a, b) for a, b in pairwise(cuts) if low <= a and b <= high]
            if ids is None or not nested:
                self.keep(node, ids)
            elif parts:
                a, b = max(parts, key=lambda part: (part[1] // part[0], part[0]))
                held.append((a, b, self.alike(ids, a // low, high // b)))
        made: list[Ids] = []
        for low, high in pairwise(outside):
            own = [part for part in held if low <= part[0] and part[1] <= high]
            self.keep(node, *[ids for _, _, ids in own[1:]])
            a, b, ids = own[0] if len(own) == 1 else (low, high, None)
            made.append(None if ids is None else np.tile(np.repeat(ids, high // b), a // low))
        return made

    def labels(self) -> NDArray[np.intp]:
        """One number for all that are tied: the least that any of them can reach."""
        labels = np.arange(self.count)
        if not self.pairs:
            return labels
        one, other = (np.concatenate(side) for side in zip(*self.pairs, strict=True))
        while True:
            before = labels.copy()
            least = np.minimum(labels[one], labels[other])
            for side in (one, other, labels[one], labels[other]):
                np.minimum.at(labels, side, least)
            labels = labels[labels]
            if (labels == before).all():
                return labels


def groups_of(node: Node) -> int:
    """The groups of a convolution; 1 for any other operator."""
    groups: Any = node.attribute("group", 1) if node.op in ("Conv", "ConvTranspose") else 1
    return int(groups)
