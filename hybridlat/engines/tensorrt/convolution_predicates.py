"""Conditions on convolutions in the table of TensorRT's fusion rules.

Each takes a scene, the upper group and the lower group; see
:data:`hybridlat.engines.fusion.rewriter`.
"""

from __future__ import annotations

from hybridlat.engines.fusion.rewriter import Scene
from hybridlat.engines.tensorrt.predicates import is_global_mean, is_half, odd_maps, pixels
from hybridlat.graph.network import AttributeValue, Node

_PASSES_ON = ("Add", "Mul", "Relu", "LeakyRelu", "Clip")
_CHANNEL_MULTIPLE = 8
_PRODUCT_CHANNELS = 256


def is_a_classifier(s: Scene, upper: int, lower: int) -> bool:
    """In single precision: a convolution of one pixel, as wide as a matrix product."""
    return pixels(s, lower) == 1 and not is_half(s, upper, lower) and _is_wide(s, upper)


def is_fully_connected(s: Scene, upper: int, lower: int) -> bool:
    """In half precision: a dense 1x1 convolution, wide enough to run as a matrix product."""
    return is_half(s, upper, lower) and _is_wide(s, upper)


def lower_is_fully_connected(s: Scene, upper: int, lower: int) -> bool:
    """In half precision: the lower group is a convolution that runs as a matrix product."""
    return is_fully_connected(s, lower, lower)


def is_winograd(s: Scene, upper: int, lower: int) -> bool:
    """A dense 3x3 convolution with stride 1."""
    conv = _conv(s, upper)
    if conv is None or _groups(conv) != 1 or _strides(conv):
        return False
    return s.network.type_of(conv.inputs[1]).shape[2:] == (3, 3)


def made_by_grouped(s: Scene, upper: int, lower: int) -> bool:
    """What the upper group reads is made by a grouped convolution that is not depthwise."""
    return any(_is_grouped(s, maker) for maker in s.uppers(upper))


def adds_a_grouped_branch(s: Scene, upper: int, lower: int) -> bool:
    """The lower Add adds two grouped convolutions that are not depthwise."""
    makers = s.uppers(lower)
    return len(makers) == 2 and all(_is_grouped(s, maker) for maker in makers)


def adds_a_scaled_branch(s: Scene, upper: int, lower: int) -> bool:
    """The lower Add adds another convolution, which is scaled already."""
    others = [g for g in s.uppers(lower) if g != upper]
    return any(s.kind[g] == "Conv" and s.ops(g)[-1] == "Mul" for g in others)


def adds_twice(s: Scene, upper: int, lower: int) -> bool:
    """The upper group holds two additions."""
    return s.ops(upper).count("Add") > 1


def before_scaled_branches(s: Scene, upper: int, lower: int) -> bool:
    """What is added to the lower group is read by scales of further branches."""
    sums = [g for g in s.lowers(lower) if s.only(g).op == "Add"]
    return any(s.kind[r] == "BatchNormalization" for g in sums for r in s.lowers(g))


def branches_together(s: Scene, upper: int, lower: int) -> bool:
    """The upper group already adds a residual, and the lower scale feeds the next addition."""
    readers = s.lowers(lower)
    return "Add" in s.ops(upper) and bool(readers) and all("Add" in s.ops(r) for r in readers)


def before_generated(s: Scene, upper: int, lower: int) -> bool:
    """A generated kernel follows the lower group anyway: a global mean, or the way out."""
    if s.gives_out(lower):
        return True
    for below in s.lowers(lower):
        if is_global_mean(s, below):
            return True
        passes = s.kind[below] in _PASSES_ON and s.between_only(lower, below)
        if passes and any(is_global_mean(s, further) for further in s.lowers(below)):
            return True
    return False


def before_odd_mean(s: Scene, upper: int, lower: int) -> bool:
    """A global mean over maps of an odd number of pixels reads the lower group."""
    return any(is_global_mean(s, r) and odd_maps(s, lower, r) for r in s.lowers(lower))


def only_convolutions_read(s: Scene, upper: int, lower: int) -> bool:
    """Every reader of the lower group is a convolution, and it is not given out."""
    readers = s.lowers(lower)
    return bool(readers) and not s.gives_out(lower) and all(s.kind[r] == "Conv" for r in readers)


def pads_zeros(s: Scene, upper: int, lower: int) -> bool:
    """The lower Pad adds zeros."""
    node = s.only(lower)
    if node.attribute("mode", "constant") != "constant":
        return False
    value = s.network.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
    return value is None or not any(value.values or ())


def _conv(s: Scene, group: int) -> Node | None:
    return next((node for node in s.nodes(group) if node.op == "Conv"), None)


def _is_wide(s: Scene, group: int) -> bool:
    """Whether the group's convolution is dense, 1x1, and wide enough for a matrix product."""
    conv = _conv(s, group)
    if conv is None or _groups(conv) != 1 or _strides(conv):
        return False
    weight = s.network.type_of(conv.inputs[1]).shape
    wide = all(c >= _PRODUCT_CHANNELS and c % _CHANNEL_MULTIPLE == 0 for c in weight[:2])
    return wide and all(size == 1 for size in weight[2:])


def _is_grouped(s: Scene, group: int) -> bool:
    conv = _conv(s, group)
    if conv is None or _groups(conv) == 1:
        return False
    weight = s.network.type_of(conv.inputs[1]).shape
    return weight[1] > 1 or weight[0] != _groups(conv)


def _groups(conv: Node) -> AttributeValue:
    return conv.attribute("group") or 1


def _strides(conv: Node) -> bool:
    return conv.attribute("strides") not in (None, (1,), (1, 1))
