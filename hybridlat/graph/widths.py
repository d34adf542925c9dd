"""A network with all of its channels scaled, those together that depend on each other.

Each channel of each tensor has a number. Operators hand numbers on, and tie those of operands that
must agree: both sides of a sum, a convolution's input and its filters, the groups of a grouped one.
What is tied is one channel: the dependency graph of structural pruning (Fang et al., "DepGraph",
CVPR 2023), channel by channel. So concatenations and splits need no arithmetic of their own.
Number 0 is all that keeps its size: the network's inputs and outputs, and the sides of images.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate, chain, pairwise
from operator import mul
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, Node, TensorType
from hybridlat.graph.operators import QUANTISERS
from hybridlat.graph.work import FAMILY_OF, Shape

MULTIPLE = 8
"""A group's channels are rounded to a multiple of this, or of what divides them and this."""
_SIZES_AT = {"Reshape": 1, "Expand": 1, "Resize": 3}
_SAME_SIZE = ("Softmax", "LogSoftmax", "LRN", "LayerNormalization")
_WINDOWS = ("Resize", "Upsample", "Pad", "Expand")
_BY_CHANNEL = ("BatchNormalization", "InstanceNormalization", *QUANTISERS)
_Ids: TypeAlias = "NDArray[np.intp]"


def scaled(network: Network, factor: float) -> Network:
    """The network with ``factor`` times the channels; its inputs and outputs keep their sizes.

    Channels that stand in the same tensors are scaled as one. Raises NetworkError for an operator
    that cannot be followed, and where no channel can be scaled.
    """
    channels = _Channels(network)
    labels = channels.labels()
    for node, ids in channels.kept:
        if labels[ids].any():
            raise NetworkError(
                f"{network.name}: the channels that {node.op} {node.name!r} reads cannot be "
                "scaled: its result hangs on their number"
            )
    if not labels.any():
        raise NetworkError(
            f"{network.name} has no channels to scale: all of them reach its inputs or outputs"
        )
    weights = _weights(channels, labels, factor)[labels]
    sizes = {n: tuple([round(weights[i].sum()) for i in channels.of(n)]) for n in channels.tensors}
    types = {n: TensorType(t.dtype, sizes[n]) for n, t in network.types.items()}
    constants = dict(network.constants)
    for name, constant in network.constants.items():
        if sizes.get(name, constant.type.shape) != constant.type.shape:
            kept = constant.values and tuple(np.resize(constant.values, sizes[name]).tolist())
            type_ = constant.type._replace(shape=sizes[name])
            constants[name] = replace(constant, type=type_, values=kept)

    def put(name: str, values: Iterable[int]) -> None:
        constants[name] = replace(constants[name], values=tuple(values))

    nodes = []
    for node in network.nodes:
        at, out = _SIZES_AT.get(node.op, 9), types[node.outputs[0]].shape
        if old := channels.numbers(node, "", at):
            put(node.inputs[at], [v if v <= 1 else out[i - len(old)] for i, v in enumerate(old)])
        if node.op == "Split" and len(node.inputs) > 1:
            axis: Any = node.attribute("axis", 0)
            put(node.inputs[1], [types[result].shape[axis] for result in node.outputs])
        for place in (1, 2) if node.op == "Slice" else ():
            put(node.inputs[place], channels.moved(node, place, weights))
        for name in node.inputs[:1]:
            if _is_depthwise(node, channels.of(name)):
                node = node.with_attributes(group=sizes[name][1])
        nodes.append(node)
    return replace(network, nodes=tuple(nodes), types=types, constants=constants)


def _weights(channels: "_Channels", labels: _Ids, factor: float) -> NDArray[np.float64]:
    """How many channels each becomes: those of a group differ by one at most, or by a part."""
    marks, kinds = np.zeros(channels.count, np.uint64), np.random.default_rng(0)
    times, parts = np.ones(channels.count, np.intp), np.zeros(channels.count, np.intp)
    for tensor in channels.tensors:
        for i, ids in enumerate(axes := channels.of(tensor)):
            roots, counts = np.unique(labels[ids], return_counts=True)
            marks[roots] += counts.astype(np.uint64) * kinds.integers(1 << 62, dtype=np.uint64)
            parts[roots] = np.gcd(parts[roots], counts)  # as often along each axis, if shuffled
            if i == 1 and len(axes) > 2 and tensor in channels.network.types:
                times[roots] = np.maximum(times[roots], counts)
    every = 1 + np.flatnonzero(marks[1:])  # but for what keeps its size
    weights = np.ones(channels.count)
    for mark in np.unique(marks[every]):
        group = every[marks[every] == mark]
        part = int(parts[group[0]])
        whole = MULTIPLE // math.gcd(MULTIPLE, int(times[group[0]]) // part)
        step = math.gcd(len(group) * part, whole)
        total = max(step, int(len(group) * part * factor / step + 0.5) * step)
        weights[group] = total // len(group) / part
        weights[group[: total % len(group)]] += 1 / part
    return weights


def _is_depthwise(node: Node, x: Sequence[_Ids]) -> bool:
    """Whether there is a filter for each channel of the input."""
    return len(x) > 1 and 1 < len(x[1]) == node.attribute("group", 1)


def _fixed(shape: Shape) -> list[_Ids]:
    return [np.zeros(size, np.intp) for size in shape]


class _Channels:
    """The numbers of all axes of tensors, pairs of those that are tied, and those not followed."""

    def __init__(self, network: Network) -> None:
        self.network, self.count = network, 1
        self.quantised = {*chain(*(n.inputs for n in network.nodes if n.op in QUANTISERS))}
        self.tensors = {n: _fixed(self.shape(n)) for n in network.inputs} | {"": []}
        self.pairs = [np.zeros((2, 1), np.intp)]
        self.kept: list[tuple[Node, _Ids]] = []
        for node in network.nodes:
            self.tensors |= zip(filter(None, node.outputs), self.follow(node), strict=False)
        for ids in chain(*map(self.of, network.outputs)):
            self.tie(ids, np.zeros_like(ids))

    def labels(self) -> _Ids:
        """One number for all that are tied: the least that any of them can reach."""
        labels, (one, other) = np.arange(self.count), np.concatenate(self.pairs, axis=1)
        while True:
            before = labels.copy()
            least = np.minimum(labels[one], labels[other])
            for side in (one, other, labels[one], labels[other]):
                np.minimum.at(labels, side, least)
            labels = labels[labels]
            if (labels == before).all():
                return labels

    def shape(self, tensor: str) -> Shape:
        return self.network.type_of(tensor).shape

    def of(self, tensor: str) -> list[_Ids]:
        """The axes of a tensor; a weight's are new, other constants say what is computed."""
        if (held := self.network.held_as.get(tensor, tensor)) != tensor:
            self.tensors[tensor] = self.of(held)  # one weight for several layers
        if tensor not in self.tensors:
            axes = self.tensors[tensor] = _fixed(self.shape(tensor))
            if tensor in self.quantised or self.network.constants[tensor].values is None:
                for ids in [each for each in axes if len(each) > 1]:
                    ids += np.arange(self.count, self.count + len(ids))
                    self.count += len(ids)
        return self.tensors[tensor]

    def tie(self, one: _Ids, other: _Ids) -> _Ids:
        """Both are the same channels from now on."""
        self.pairs.append(np.stack(np.broadcast_arrays(one, other)).reshape(2, -1))
        return one

    def alike(self, ids: _Ids, outer: int, inner: int = 1) -> _Ids:
        """The n numbers that stand for an axis of ``outer`` x n x ``inner``, kept at ""."""
        each = ids.reshape(outer, -1, inner)
        self.tensors[""].append(self.tie(each, each[:1, :, :1])[0, :, 0])
        return each[0, :, 0]

    def keep(self, node: Node, axes: Iterable[_Ids]) -> None:
        """What an operator reads that is not followed keeps its size."""
        self.kept += [(node, ids) for ids in axes]

    def numbers(self, node: Node, name: str, place: int) -> Any:
        """The numbers of an attribute, else of a constant input; none where it has neither."""
        constant = self.network.constant(node, place)
        return node.attribute(name, () if constant is None else constant.values or ())

    def follow(self, node: Node) -> list[list[_Ids]]:
        """The axes of each result."""
        op = "" if node.domain or node.attribute("block_size") else node.op
        family, named = FAMILY_OF.get(op, ""), [name for name in node.inputs if name]
        inputs, shapes = list(map(self.of, named)), [self.shape(n) for n in node.outputs if n]
        x, shape = (*inputs, [])[0], shapes[0]
        axis = int(str(node.attribute("axis", int(op in _BY_CHANNEL)))) % max(1, len(x))
        if op in ("Conv", "ConvTranspose"):
            return [[x[0], self.convolved(node, inputs), *self.sides(node, x[2:], shape[2:])]]
        if op == "Gemm" or (op == "MatMul" and min(map(len, inputs)) > 1):
            return [self.product(node, inputs, shape)]
        if op in _BY_CHANNEL:
            for (parameter,) in filter(None, inputs[1:]):  # it may be one of all channels
                self.tie(parameter, x[axis])
            return [x]
        if family == "pointwise" or op in _SAME_SIZE:
            return [self.broadcast(inputs, shape), *map(_fixed, shapes[1:])]
        if family == "pool" or op in _WINDOWS:
            # A pool may tell the places of its maxima besides.
            return [self.sides(node, [*_fixed(shape[: len(shape) - len(x)]), *x], shape)] * len(
                shapes
            )
        if op.startswith("Reduce"):
            axes, kept = self.numbers(node, "axes", 1) or range(len(x)), len(shape) == len(x)
            sides = [_fixed((1,) * kept) if i in axes else [ids] for i, ids in enumerate(x)]
            return [[*chain(*sides)]]
        if op == "Transpose":
            return [[x[i] for i in node.sizes("perm") or ()]]
        if op == "Reshape":
            return [self.reshaped(node, x, shape)]
        if op == "Concat":
            columns = enumerate(zip(*inputs, strict=True))
            return [[np.concatenate(c) if i == axis else reduce(self.tie, c) for i, c in columns]]
        if op == "Split":
            ends = accumulate([each[axis] for each in shapes], initial=0)
            return [[*x[:axis], x[axis][a:b], *x[axis + 1 :]] for a, b in pairwise(ends)]
        if op == "Slice":
            return [self.sliced(node, x)]
        if op == "Gather":
            self.keep(node, [x[axis]])
            return [[*x[:axis], *_fixed(self.shape(named[1])), *x[axis + 1 :]]]
        if op == "DepthToSpace":
            square, by_row = len(x[1]) // shape[1], node.attribute("mode") == "CRD"
            one = self.alike(x[1], 1, square) if by_row else self.alike(x[1], square)
            return [[x[0], one, *_fixed(shape[2:])]]
        self.keep(node, chain(*inputs))
        return list(map(_fixed, shapes))

    def sides(self, node: Node, x: Iterable[_Ids], shape: Shape) -> list[_Ids]:
        """Axes that a window moves along: those whose size it changes keep their own."""
        pairs = list(zip(x, _fixed(shape), strict=True))
        self.keep(node, [ids for ids, new in pairs if len(ids) != len(new)])
        return [ids if len(ids) == len(new) else new for ids, new in pairs]

    def convolved(self, node: Node, inputs: Sequence[list[_Ids]]) -> _Ids:
        (_, x, *_), (first, second, *window), *biases = inputs
        is_plain, groups = node.op == "Conv", int(str(node.attribute("group", 1)))
        if _is_depthwise(node, inputs[0]):
            out = np.repeat(x, self.shape(node.outputs[0])[1] // groups)
            self.tie(first, out if is_plain else x)
            window.append(second)
        else:
            each = self.alike(x, groups)
            self.tie(*((second, each) if is_plain else (first, x)))
            out = first if is_plain else np.tile(second, groups)
            self.alike(out, groups)
        for ids in window:
            self.tie(ids, np.zeros_like(ids))
        for (bias,) in biases:
            self.tie(bias, out)
        return out

    def product(self, node: Node, inputs: Sequence[list[_Ids]], shape: Shape) -> list[_Ids]:
        a, b = (
            axes[:-2] + (axes[:-3:-1] if node.attribute(name) else axes[-2:])
            for axes, name in zip(inputs, ("transA", "transB"), strict=False)
        )
        self.tie(a[-1], b[-2])
        made = [*self.broadcast((a[:-2], b[:-2]), shape[:-2]), a[-2], b[-1]]
        return self.broadcast([made, *inputs[2:]], shape)

    def broadcast(self, inputs: Iterable[list[_Ids]], shape: Shape) -> list[_Ids]:
        """The axes of an element-wise result; inputs of size 1 along an axis say nothing of it."""
        made = []
        for i in range(-len(shape), 0):
            every = [x[i] for x in inputs if len(x) >= -i and len(x[i]) == shape[i]]
            made.append(reduce(self.tie, every) if every else _fixed(shape)[i])
        return made

    def sliced(self, node: Node, x: list[_Ids]) -> list[_Ids]:
        starts, ends, axes, steps = (self.numbers(node, "", place) for place in range(1, 5))
        axes, steps, made = axes or range(len(starts)), steps or (1,) * len(starts), list(x)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            made[axis] = x[axis][start:end:step]
            self.tensors[""].append(x[axis][:start])
            self.keep(node, [x[axis]] if step != 1 else [])
        return made

    def moved(self, node: Node, place: int, weights: NDArray[np.float64]) -> list[int]:
        """Where a Slice starts or ends among the channels that are left."""
        x, made = self.of(node.inputs[0]), list(self.numbers(node, "", place))
        for i, axis in enumerate(self.numbers(node, "", 3) or range(len(made))):
            if x[axis].any():
                made[i] = round(weights[x[axis][: made[i]]].sum())
        return made

    def reshaped(self, node: Node, x: list[_Ids], new: Shape) -> list[_Ids]:
        """Axes that are joined or cut; of a cut axis the largest part that differs is channels."""
        old = tuple(map(len, x))
        inside, outside = ([1, *accumulate(shape, mul)] for shape in (old, new))
        cuts = sorted({*inside, *outside})
        if any(b % a for a, b in pairwise(cuts)):
            self.keep(node, x)
            return _fixed(new)
        held: list[tuple[int, int, _Ids]] = []
        for ids, low, high in zip(x, inside, inside[1:], strict=False):
            parts = [(a, b) for a, b in pairwise(cuts) if low <= a and b <= high]
            if ids.any():
                each = ids.reshape([b // a for a, b in parts])
                differs = [bool(np.diff(each, axis=i).any()) for i in range(len(parts))]
                a, b = max(zip(differs, each.shape, parts, strict=True))[2]
                held.append((a, b, self.alike(ids, a // low, high // b)))
        made = []
        for low, high in pairwise(outside):
            own = [part for part in held if low <= part[0] and part[1] <= high]
            self.keep(node, [ids for _, _, ids in own] if len(own) > 1 else [])
            a, b, ids = own[0] if len(own) == 1 else (low, high, *_fixed((high // low,)))
            made.append(np.tile(np.repeat(ids, high // b), a // low))
        return made
