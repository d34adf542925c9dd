"""The conditions in TensorRT's table of fusion rules that ask about convolutions and Concats."""

from __future__ import annotations

from hybridlat.engines.fusion.conditions import is_half, is_int8, pixels, reads_one
from hybridlat.engines.fusion.rules import FusionState
from hybridlat.graph.network import Node
from hybridlat.graph.operators import KINDS, kind_of

_CHANNEL_MULTIPLE = 8
_PRODUCT_CHANNELS = 256
_PIXEL_CHANNELS = 4
_INT8_VECTOR = 4  # channels that lie together at least, in whole numbers
_HALF_VECTOR = 8  # those in half precision: a part of a Concat begins at a multiple
_CONVS, _POOLS = ("Conv", "ConvTranspose"), ("MaxPool", "AveragePool")
_SUMS = frozenset({"Add", "Sum"})
_READ_DENSE = frozenset({"Resize", "Upsample", "Slice", "Split", *_POOLS})  # no part of another


def is_a_classifier(s: FusionState, producer: int, consumer: int) -> bool:
    """In single precision: a convolution of one pixel, as wide as a matrix product."""
    is_wide = pixels(s, consumer) == 1 and _is_wide(s, producer)
    return is_wide and not is_half(s, producer, consumer)


def is_fully_connected(s: FusionState, producer: int, consumer: int) -> bool:
    """In half precision: a dense 1x1 convolution, wide enough to run as a matrix product."""
    return is_half(s, producer, consumer) and _is_wide(s, producer)


def is_winograd(s: FusionState, producer: int, consumer: int) -> bool:
    """A dense 3x3 convolution with stride 1."""
    return _dense_weight(s, producer)[2:] == (3, 3)


def reads_pixels(s: FusionState, producer: int, consumer: int) -> bool:
    """The producer is a dense convolution of an image's few channels."""
    conv = _conv(s, producer)
    if conv is None or conv.attribute("group", 1) != 1:
        return False
    return s.network.type_of(conv.inputs[1]).shape[1] <= _PIXEL_CHANNELS


def has_a_twin(s: FusionState, producer: int, consumer: int) -> bool:
    """Another convolution without an epilogue reads as the producer does: both run as one."""
    return any(s.ops(g) == ("Conv",) and _read_alike(s, g, producer) for g in s.beside(producer))


def is_a_twin(s: FusionState, producer: int, consumer: int) -> bool:
    """The consumer convolves what the producer does, in the same way, and does the same to it.

    In whole numbers other epilogues than a ReLU are made before convolutions are put together.
    """
    whole, part = s.op_counts[producer], s.op_counts[consumer]
    takes = {"Conv", "Relu"} if is_int8(s, producer, consumer) else {"Conv", "Relu", "Clip"}
    is_alike = whole == {op: whole["Conv"] * n for op, n in part.items()}
    return is_alike and takes.issuperset(part) and _read_alike(s, producer, consumer)


def is_depthwise(s: FusionState, producer: int, consumer: int) -> bool:
    """The producer convolves each channel by itself."""
    conv = _conv(s, producer)
    is_dense = conv is None or conv.attribute("group", 1) == 1
    return not is_dense and not _is_grouped(s, producer)


def makes_few_channels(s: FusionState, producer: int, consumer: int) -> bool:
    """The producer makes fewer channels than lie together in whole numbers."""
    return is_int8(s, producer, consumer) and s.output(producer).shape[1] < _INT8_VECTOR


def is_added_first(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming sum names the producer's result before the others."""
    return s.producers_of(consumer)[:1] == [producer]


def made_by_grouped(s: FusionState, producer: int, consumer: int) -> bool:
    """What the producer reads is made by a grouped convolution that is not depthwise."""
    return any(_is_grouped(s, maker) for maker in s.producers_of(producer))


def adds_a_grouped_branch(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming Add adds two grouped convolutions that are not depthwise."""
    makers = s.producers_of(consumer)
    return len(makers) == 2 and all(_is_grouped(s, maker) for maker in makers)


def adds_a_scaled_branch(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming Add adds another convolution, which is scaled already."""
    others = [g for g in s.producers_of(consumer) if g != producer]
    return any(s.kind[g] == "Conv" and s.ops(g)[-1] == "Mul" for g in others)


def adds_twice(s: FusionState, producer: int, consumer: int) -> bool:
    """The producer holds two additions."""
    return s.ops(producer).count("Add") > 1


def before_scaled_branches(s: FusionState, producer: int, consumer: int) -> bool:
    """What is added to the consumer is read by scales of further branches."""
    sums = [g for g in s.consumers_of(consumer) if s.only(g).op == "Add"]
    return any(s.kind[r] == "BatchNormalization" for g in sums for r in s.consumers_of(g))


def branches_together(s: FusionState, producer: int, consumer: int) -> bool:
    """The producer already adds a residual, and the consuming scale feeds the next addition."""
    readers = s.consumers_of(consumer)
    return "Add" in s.ops(producer) and bool(readers) and all("Add" in s.ops(r) for r in readers)


# ---- parts of Concats and of Splits: read or written in place, or copied ----


def is_in_place(s: FusionState, producer: int, consumer: int) -> bool:
    """The consumer copies a part of a Concat that its maker can write where it belongs.

    Convolutions can that neither add nor run as one with others, poolings, and element-wise
    kernels in front of convolutions. Nothing may read the part that needs it dense.
    """
    if not reads_one(s, producer, consumer):
        return False
    copy = s.only(consumer)
    (name,), own = copy.inputs, s.members[consumer][0]
    maker, readers = s.producers.get(name), s.consumers[name]
    if maker is None or maker in s.removed or name in s.network.outputs:
        return False
    ops = {reader: s.network.nodes[reader].op for reader in readers}
    if copy.attribute("axis") != 1 or not _READ_DENSE.isdisjoint(ops.values()):
        return False
    if any(op == "Concat" and reader < own for reader, op in ops.items()):
        return False  # it has its place in another one
    shape, held = s.network.type_of(name).shape, s.ops(s.group[maker])
    kind = s.kind[s.group[maker]]
    if kind in _CONVS:
        is_plain = _SUMS.isdisjoint(held) and held.count("Conv") < 2
        return is_plain and not (is_int8(s, producer, consumer) and shape[1] % _INT8_VECTOR)
    if kind == "Concat":
        return True
    is_pointwise = all(kind_of(op) == KINDS["pointwise"] for op in held)
    return kind in _POOLS or (is_pointwise and len(shape) == 4 and not shape[1] % _HALF_VECTOR)


def is_read_in_place(s: FusionState, producer: int, consumer: int) -> bool:
    """The consumer takes channels of maps, which are read where they lie, unless in a sum."""
    node = s.only(consumer)
    shape = s.network.type_of(node.inputs[0]).shape
    made = [s.network.types[out].shape for out in node.outputs if out]
    if len(shape) != 4 or any((m[0], *m[2:]) != (shape[0], *shape[2:]) for m in made):
        return False
    readers = [r for out in node.outputs for r in s.consumers.get(out, ())]
    sums = [s.group[r] for r in readers if s.network.nodes[r].op in _SUMS]
    return not any(s.kind.get(group) in _CONVS for group in sums)


# ---- what they ask ----


def _conv(s: FusionState, group: int) -> Node | None:
    nodes = (s.network.nodes[position] for position in s.members[group])
    return next((node for node in nodes if node.qualified_op == "Conv"), None)


def _read_alike(s: FusionState, *groups: int) -> bool:
    """Whether dense convolutions have the same windows and read the same tensor."""
    convs = [conv for group in groups if (conv := _conv(s, group))]
    names = ("group", "strides", "pads", "dilations")
    windows = {
        (conv.inputs[0], s.network.type_of(conv.inputs[1]).shape[1:], *map(conv.attribute, names))
        for conv in convs
    }
    return len(convs) == len(groups) and len(windows) == 1 and convs[0].attribute("group", 1) == 1


def _dense_weight(s: FusionState, group: int) -> tuple[int, ...]:
    """Shape of the weight of a group's convolution; empty unless it is dense, with stride 1."""
    conv = _conv(s, group)
    if conv is None or conv.attribute("group", 1) != 1:
        return ()
    is_strided = conv.attribute("strides") not in (None, (1,), (1, 1))
    return () if is_strided else s.network.type_of(conv.inputs[1]).shape


def _is_wide(s: FusionState, group: int) -> bool:
    """Whether the group's convolution is dense, 1x1, and wide enough for a matrix product."""
    weight = _dense_weight(s, group)
    wide = all(c >= _PRODUCT_CHANNELS and c % _CHANNEL_MULTIPLE == 0 for c in weight[:2])
    return bool(weight) and wide and all(size == 1 for size in weight[2:])


def _is_grouped(s: FusionState, group: int) -> bool:
    conv = _conv(s, group)
    if conv is None or conv.attribute("group", 1) == 1:
        return False
    weight = s.network.type_of(conv.inputs[1]).shape
    return weight[1] > 1 or weight[0] != conv.attribute("group")
