"""Conditions on convolutions in the table of TensorRT's fusion rules.

Each takes the state of a fusion, the producer and the consumer; see
:data:`hybridlat.engines.fusion.rewriter`.
"""

from __future__ import annotations

from hybridlat.engines.fusion.rewriter import FusionState
from hybridlat.engines.tensorrt.predicates import is_global_mean, is_half, odd_maps, pixels
from hybridlat.graph.network import AttributeValue, Node

_PASSES_ON = ("Add", "Mul", "Relu", "LeakyRelu", "Clip")
_CHANNEL_MULTIPLE = 8
_PRODUCT_CHANNELS = 256


def is_a_classifier(s: FusionState, producer: int, consumer: int) -> bool:
    """In single precision: a convolution of one pixel, as wide as a matrix product."""
    return pixels(s, consumer) == 1 and not is_half(s, producer, consumer) and _is_wide(s, producer)


def is_fully_connected(s: FusionState, producer: int, consumer: int) -> bool:
    """In half precision: a dense 1x1 convolution, wide enough to run as a matrix product."""
    return is_half(s, producer, consumer) and _is_wide(s, producer)


def consumer_is_fully_connected(s: FusionState, producer: int, consumer: int) -> bool:
    """In half precision: the consumer is a convolution that runs as a matrix product."""
    return is_fully_connected(s, consumer, consumer)


def is_winograd(s: FusionState, producer: int, consumer: int) -> bool:
    """A dense 3x3 convolution with stride 1."""
    conv = _conv(s, producer)
    if conv is None or _groups(conv) != 1 or _strides(conv):
        return False
    return s.network.type_of(conv.inputs[1]).shape[2:] == (3, 3)


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


def before_generated(s: FusionState, producer: int, consumer: int) -> bool:
    """A generated kernel follows the consumer anyway: a global mean, or the way out."""
    if s.gives_out(consumer):
        return True
    for below in s.consumers_of(consumer):
        if is_global_mean(s, below):
            return True
        passes = s.kind[below] in _PASSES_ON and s.between_only(consumer, below)
        if passes and any(is_global_mean(s, further) for further in s.consumers_of(below)):
            return True
    return False


def before_odd_mean(s: FusionState, producer: int, consumer: int) -> bool:
    """A global mean over maps of an odd number of pixels reads the consumer."""
    return any(is_global_mean(s, r) and odd_maps(s, consumer, r) for r in s.consumers_of(consumer))


def only_convolutions_read(s: FusionState, producer: int, consumer: int) -> bool:
    """Every reader of the consumer is a convolution, and it is not given out."""
    readers = s.consumers_of(consumer)
    return bool(readers) and not s.gives_out(consumer) and all(s.kind[r] == "Conv" for r in readers)


def pads_zeros(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming Pad adds zeros."""
    node = s.only(consumer)
    if node.attribute("mode", "constant") != "constant":
        return False
    value = s.network.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
    return value is None or not any(value.values or ())


def _conv(s: FusionState, group: int) -> Node | None:
    return next((node for node in s.nodes(group) if node.op == "Conv"), None)


def _is_wide(s: FusionState, group: int) -> bool:
    """Whether the group's convolution is dense, 1x1, and wide enough for a matrix product."""
    conv = _conv(s, group)
    if conv is None or _groups(conv) != 1 or _strides(conv):
        return False
    weight = s.network.type_of(conv.inputs[1]).shape
    wide = all(c >= _PRODUCT_CHANNELS and c % _CHANNEL_MULTIPLE == 0 for c in weight[:2])
    return wide and all(size == 1 for size in weight[2:])


def _is_grouped(s: FusionState, group: int) -> bool:
    conv = _conv(s, group)
    if conv is None or _groups(conv) == 1:
        return False
    weight = s.network.type_of(conv.inputs[1]).shape
    return weight[1] > 1 or weight[0] != _groups(conv)


def _groups(conv: Node) -> AttributeValue:
    return conv.attribute("group") or 1


def _strides(conv: Node) -> bool:
    return conv.attribute("strides") not in (None, (1,), (1, 1))
