"""The conditions in TensorRT's table of fusion rules that ask about convolutions and Concats."""

from __future__ import annotations

from hybridlat.engines.fusion.conditions import is_half, is_int8, pixels, reads_one
from hybridlat.engines.fusion.rules import Group
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


def is_a_classifier(producer: Group, consumer: Group) -> bool:
    """In single precision: a convolution of one pixel, as wide as a matrix product."""
    is_wide = pixels(consumer) == 1 and _is_wide(producer)
    return is_wide and not is_half(producer, consumer)


def is_fully_connected(producer: Group, consumer: Group) -> bool:
    """In half precision: a dense 1x1 convolution, wide enough to run as a matrix product."""
    return is_half(producer, consumer) and _is_wide(producer)


def is_winograd(producer: Group, consumer: Group) -> bool:
    """A dense 3x3 convolution with stride 1."""
    return _dense_weight(producer)[2:] == (3, 3)


def reads_pixels(producer: Group, consumer: Group) -> bool:
    """The producer is a dense convolution of an image's few channels."""
    return _is_dense(producer) and _weight(producer)[1] <= _PIXEL_CHANNELS


def has_a_twin(producer: Group, consumer: Group) -> bool:
    """Another convolution without an epilogue reads as the producer does: both run as one."""
    return any(g.ops == ("Conv",) and _read_alike(g, producer) for g in producer.beside)


def is_a_twin(producer: Group, consumer: Group) -> bool:
    """The consumer convolves what the producer does, in the same way, and does the same to it.

    In whole numbers other epilogues than a ReLU come before convolutions are put together.
    """
    whole, part = producer.op_counts, consumer.op_counts
    takes = {"Conv", "Relu"} if is_int8(producer, consumer) else {"Conv", "Relu", "Clip"}
    is_alike = whole == {op: whole["Conv"] * n for op, n in part.items()}
    return is_alike and takes.issuperset(part) and _read_alike(producer, consumer)


def is_depthwise(producer: Group, consumer: Group) -> bool:
    """The producer convolves each channel by itself."""
    return _groups(producer) not in (None, 1) and not _is_grouped(producer)


def makes_few_channels(producer: Group, consumer: Group) -> bool:
    """The producer makes fewer channels than lie together in whole numbers."""
    return is_int8(producer, consumer) and producer.output.shape[1] < _INT8_VECTOR


def is_added_first(producer: Group, consumer: Group) -> bool:
    """The consuming sum names the producer's result before the others."""
    return consumer.producers[:1] == [producer]


def made_by_grouped(producer: Group, consumer: Group) -> bool:
    """What the producer reads is made by a grouped convolution that is not depthwise."""
    return any(_is_grouped(maker) for maker in producer.producers)


def adds_a_grouped_branch(producer: Group, consumer: Group) -> bool:
    """The consuming Add adds two grouped convolutions that are not depthwise."""
    makers = consumer.producers
    return len(makers) == 2 and all(_is_grouped(maker) for maker in makers)


def adds_a_scaled_branch(producer: Group, consumer: Group) -> bool:
    """The consuming Add adds another convolution, which is scaled already."""
    others = [g for g in consumer.producers if g != producer]
    return any(g.kind == "Conv" and g.ops[-1] == "Mul" for g in others)


def adds_twice(producer: Group, consumer: Group) -> bool:
    """The producer holds two additions."""
    return producer.ops.count("Add") > 1


def before_scaled_branches(producer: Group, consumer: Group) -> bool:
    """What is added to the consumer is read by scales of further branches."""
    sums = [g for g in consumer.consumers if g.first.op == "Add"]
    return any(r.kind == "BatchNormalization" for g in sums for r in g.consumers)


def branches_together(producer: Group, consumer: Group) -> bool:
    """The producer already adds a residual, and the consuming scale feeds the next addition."""
    readers = consumer.consumers
    return "Add" in producer.ops and bool(readers) and all("Add" in r.ops for r in readers)


# ---- parts of Concats and of Splits: read or written in place, or copied ----


def is_in_place(producer: Group, consumer: Group) -> bool:
    """The consumer copies a part of a Concat that its maker can write where it belongs.

    So can convolutions that neither add nor run as one with others, poolings, and element-wise
    kernels in front of convolutions. No reader may need the part dense.
    """
    if not reads_one(producer, consumer):
        return False
    copy, network, grouping = consumer.first, consumer.network, consumer.grouping
    (name,), own = copy.inputs, consumer.positions[0]
    maker, readers = network.producers.get(name), network.consumers[name]
    if maker is None or maker in grouping.removed or name in network.outputs:
        return False
    ops = {reader: network.nodes[reader].op for reader in readers}
    if copy.attribute("axis") != 1 or not _READ_DENSE.isdisjoint(ops.values()):
        return False
    if any(op == "Concat" and reader < own for reader, op in ops.items()):
        return False  # it has its place in another one
    made_by = grouping.group_of[maker]
    shape, held, kind = network.type_of(name).shape, made_by.ops, made_by.kind
    if kind in _CONVS:
        is_plain = _SUMS.isdisjoint(held) and held.count("Conv") < 2
        return is_plain and not (is_int8(producer, consumer) and shape[1] % _INT8_VECTOR)
    if kind == "Concat":
        return True
    is_pointwise = all(kind_of(op) == KINDS["pointwise"] for op in held)
    return kind in _POOLS or (is_pointwise and len(shape) == 4 and not shape[1] % _HALF_VECTOR)


def is_read_in_place(producer: Group, consumer: Group) -> bool:
    """The consumer takes channels of maps, which are read where they lie, unless in a sum."""
    node, network = consumer.first, consumer.network
    shape = network.type_of(node.inputs[0]).shape
    made = [network.types[out].shape for out in node.outputs if out]
    if len(shape) != 4 or any((m[0], *m[2:]) != (shape[0], *shape[2:]) for m in made):
        return False
    readers = [r for out in node.outputs for r in network.consumers.get(out, ())]
    sums = [consumer.grouping.group_of[r] for r in readers if network.nodes[r].op in _SUMS]
    return not any(group.kind in _CONVS for group in sums)


# ---- what they ask ----


def _conv(group: Group) -> Node | None:
    return next((node for node in group.nodes if node.qualified_op == "Conv"), None)


def _weight(group: Group) -> tuple[int, ...]:
    """Shape of the weight of a group's convolution; empty without one."""
    conv = _conv(group)
    return group.network.type_of(conv.inputs[1]).shape if conv else ()


def _groups(group: Group) -> object:
    conv = _conv(group)
    return conv.attribute("group", 1) if conv else None


def _is_dense(group: Group) -> bool:
    return _groups(group) == 1


def _read_alike(*groups: Group) -> bool:
    """Whether dense convolutions have the same windows and read the same tensor."""
    convs = [conv for group in groups if (conv := _conv(group))]
    names = ("group", "strides", "pads", "dilations")
    windows = {
        (conv.inputs[0], _weight(group)[1:], *map(conv.attribute, names))
        for group, conv in zip(groups, convs, strict=False)
    }
    return len(convs) == len(groups) and len(windows) == 1 and _is_dense(groups[0])


def _dense_weight(group: Group) -> tuple[int, ...]:
    """Shape of the weight of a group's convolution; empty unless it is dense, with stride 1."""
    conv = _conv(group)
    is_plain = _is_dense(group) and conv and conv.attribute("strides") in (None, (1,), (1, 1))
    return _weight(group) if is_plain else ()


def _is_wide(group: Group) -> bool:
    """Whether the group's convolution is dense, 1x1, and wide enough for a matrix product."""
    weight = _dense_weight(group)
    wide = all(c >= _PRODUCT_CHANNELS and c % _CHANNEL_MULTIPLE == 0 for c in weight[:2])
    return bool(weight) and wide and all(size == 1 for size in weight[2:])


def _is_grouped(group: Group) -> bool:
    groups, weight = _groups(group), _weight(group)
    return groups not in (None, 1) and (weight[1] > 1 or weight[0] != groups)
