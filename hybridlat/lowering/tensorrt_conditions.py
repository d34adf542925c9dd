"""The conditions in the table of TensorRT's fusion rules.

Each takes a scene, the upper group and the lower group; see :data:`hybridlat.lowering.rules`.
"""

from __future__ import annotations

import math

from hybridlat.core.network import Node
from hybridlat.lowering.rules import Condition, Scene

_MEANS = ("ReduceMean", "GlobalAveragePool")
_PASSES_ON = ("Add", "Mul", "Relu", "LeakyRelu", "Clip")
_CAN_WRITE_ANYWHERE = ("Split", "Slice")
_CHANNEL_MULTIPLE = 8
_PRODUCT_CHANNELS = 256
_SMALL_ELEMENTS = 16384


def all_of(*conditions: Condition) -> Condition:
    """Every condition holds."""
    return lambda s, u, low: all(condition(s, u, low) for condition in conditions)


def any_of(*conditions: Condition) -> Condition:
    """At least one condition holds."""
    return lambda s, u, low: any(condition(s, u, low) for condition in conditions)


def unless(condition: Condition) -> Condition:
    """The condition does not hold."""
    return lambda s, u, low: not condition(s, u, low)


def holds(*ops: str) -> Condition:
    """The upper group holds one of the operators."""
    return lambda s, u, low: any(op in ops for op in s.ops(u))


def holds_below(*ops: str) -> Condition:
    """The lower group holds one of the operators."""
    return lambda s, u, low: any(op in ops for op in s.ops(low))


def made_by(*kinds: str) -> Condition:
    """What the lower group reads is made by groups of these kinds."""
    return lambda s, u, low: all(s.kind[maker] in kinds for maker in s.uppers(low))


def read_by(*kinds: str) -> Condition:
    """A group of these kinds reads the lower group."""
    return lambda s, u, low: any(s.kind[reader] in kinds for reader in s.lowers(low))


def follows(kinds: str) -> Condition:
    """What the upper group reads is made by groups of these kinds."""
    return lambda s, u, low: all(s.kind[maker] in kinds.split() for maker in s.uppers(u))


def ends_in(op: str) -> Condition:
    """The last operator of the lower group is ``op``."""
    return lambda s, u, low: s.ops(low)[-1] == op


def maps_below(pixels: int) -> Condition:
    """The lower group reads feature maps of fewer than so many pixels."""
    return lambda s, u, low: _input_pixels(s, low) < pixels


def only_reader(s: Scene, upper: int, lower: int) -> bool:
    """What the lower group reads of the upper one is read by nothing else and not given out."""
    return s.between_only(upper, lower)


def by_constant(s: Scene, upper: int, lower: int) -> bool:
    """The lower operator's other operand is a constant."""
    inputs = s.only(lower).inputs
    return only_reader(s, upper, lower) and sum(i in s.network.types for i in inputs) == 1


def by_one_constant(s: Scene, upper: int, lower: int) -> bool:
    """The lower operator's other operand is a constant, whoever else reads the upper group."""
    return sum(i in s.network.types for i in s.only(lower).inputs) == 1


def is_scale(s: Scene, upper: int, lower: int) -> bool:
    """A multiplication by one constant number."""
    inputs = s.only(lower).inputs
    others = [i for i in inputs if i in s.network.constants]
    return len(others) == 1 and s.network.type_of(others[0]).elements == 1


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


def odd_maps(s: Scene, upper: int, lower: int) -> bool:
    """The lower group reads feature maps of an odd number of pixels, which no vector divides."""
    return _input_pixels(s, lower) % 2 == 1


def small_maps(s: Scene, upper: int, lower: int) -> bool:
    """What the lower group reads is small as a whole."""
    return _input_elements(s, lower) <= _SMALL_ELEMENTS


def before_odd_mean(s: Scene, upper: int, lower: int) -> bool:
    """A global mean over maps of an odd number of pixels reads the lower group."""
    return any(_is_global_mean(s, r) and odd_maps(s, lower, r) for r in s.lowers(lower))


def only_linear_readers(s: Scene, upper: int, lower: int) -> bool:
    """Every reader of the lower group is a convolution or a mean over windows before one."""
    readers = s.lowers(lower)
    linear = all(s.kind[r] in ("Conv", "AveragePool") for r in readers)
    return bool(readers) and not s.gives_out(lower) and linear


def by_scalar(s: Scene, upper: int, lower: int) -> bool:
    """The lower operator's other operand is one constant number."""
    if not by_constant(s, upper, lower):
        return False
    others = [i for i in s.only(lower).inputs if i in s.network.constants]
    return all(s.network.type_of(i).elements == 1 for i in others)


def gates_itself(s: Scene, upper: int, lower: int) -> bool:
    """The lower Mul multiplies what the upper Sigmoid reads with what it gives."""
    source = s.only(upper).inputs[0]
    return only_reader(s, upper, lower) and source in s.only(lower).inputs


def reads_one(s: Scene, upper: int, lower: int) -> bool:
    """The lower operator has one input."""
    return len(s.only(lower).inputs) == 1


def reads_two(s: Scene, upper: int, lower: int) -> bool:
    """Both operands of the lower operator are activations."""
    return len({i for i in s.only(lower).inputs if i in s.network.types}) == 2


def same_shape(s: Scene, upper: int, lower: int) -> bool:
    """Nothing is broadcast: both groups make tensors of one shape."""
    return s.output(upper).shape == s.output(lower).shape


def is_global(s: Scene, upper: int, lower: int) -> bool:
    """The lower reduction is over whole feature maps."""
    return s.only(lower).op.startswith("Global") or _pixels(s, lower) == 1


def reduces_rows(s: Scene, upper: int, lower: int) -> bool:
    """The lower reduction is over the last axis alone, of more than one row."""
    node = s.only(lower)
    axes = node.attribute("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1] in s.network.constants:
        axes = s.network.constants[node.inputs[1]].values
    shape = s.network.types[node.inputs[0]].shape
    return axes in ((-1,), (len(shape) - 1,)) and math.prod(shape[:-1]) > 1


def upper_reduces_rows(s: Scene, upper: int, lower: int) -> bool:
    """The upper reduction is over the last axis alone, of more than one row."""
    return reduces_rows(s, upper, upper)


def is_half(s: Scene, upper: int, lower: int) -> bool:
    """The network computes in half precision."""
    return s.output(upper).dtype == "float16"


def is_a_classifier(s: Scene, upper: int, lower: int) -> bool:
    """In single precision: a convolution of one pixel, as wide as a matrix product."""
    return _pixels(s, lower) == 1 and not is_half(s, upper, lower) and _is_wide(s, upper)


def is_fully_connected(s: Scene, upper: int, lower: int) -> bool:
    """In half precision: a dense 1x1 convolution, wide enough to run as a matrix product."""
    return is_half(s, upper, lower) and _is_wide(s, upper)


def lower_is_fully_connected(s: Scene, upper: int, lower: int) -> bool:
    """In half precision: the lower group is a convolution that runs as a matrix product."""
    return is_fully_connected(s, lower, lower)


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


def is_winograd(s: Scene, upper: int, lower: int) -> bool:
    """A dense 3x3 convolution with stride 1."""
    conv = _conv(s, upper)
    if conv is None or conv.attribute("strides") or conv.attribute("group"):
        return False
    return s.network.type_of(conv.inputs[1]).shape[2:] == (3, 3)


def before_generated(s: Scene, upper: int, lower: int) -> bool:
    """A generated kernel follows the lower group anyway: a global mean, or the way out."""
    if s.gives_out(lower):
        return True
    for below in s.lowers(lower):
        if _is_global_mean(s, below):
            return True
        passes = s.kind[below] in _PASSES_ON and s.between_only(lower, below)
        if passes and any(_is_global_mean(s, further) for further in s.lowers(below)):
            return True
    return False


def before_scaled_branches(s: Scene, upper: int, lower: int) -> bool:
    """What is added to the lower group is read by scales of further branches."""
    sums = [g for g in s.lowers(lower) if s.only(g).op == "Add"]
    return any(s.kind[r] == "BatchNormalization" for g in sums for r in s.lowers(g))


def branches_together(s: Scene, upper: int, lower: int) -> bool:
    """The upper group already adds a residual, and the lower scale feeds the next addition."""
    readers = s.lowers(lower)
    return "Add" in s.ops(upper) and bool(readers) and all("Add" in s.ops(r) for r in readers)


def other_readers_are_concats(s: Scene, upper: int, lower: int) -> bool:
    """All other readers only copy what the upper group makes into a longer one."""
    return all(r == lower or s.ops(r)[0] == "Concat" for r in s.lowers(upper))


def reads_layer_norm(s: Scene, upper: int, lower: int) -> bool:
    """A layer normalisation reads the lower group."""
    return any(s.kind[below] == "LayerNormalization" for below in s.lowers(lower))


def sums_channels(s: Scene, upper: int, lower: int) -> bool:
    """The lower view splits channels for a sum over the parts."""
    return any(s.kind[below] == "ReduceSum" for below in s.lowers(lower))


def keeps_all(s: Scene, upper: int, lower: int) -> bool:
    """The operator gives out as much as it reads."""
    source = s.only(lower).inputs[0]
    return source in s.network.types and s.network.types[source].shape == s.output(lower).shape


def writes_in_place(s: Scene, upper: int, lower: int) -> bool:
    """The lower Concat's parts come from kernels that can write at an offset."""
    if s.kind[lower] != "Concat":
        return False
    if any(_is_part_of_another(s, part, lower) for part in s.only(lower).inputs):
        return False
    return not any(s.kind[maker] in _CAN_WRITE_ANYWHERE for maker in s.uppers(lower))


def layout_unchanged(s: Scene, upper: int, lower: int) -> bool:
    """The bytes stay as they are.

    A Transpose may move axes of size 1. A view that flattens the feature maps of a kernel that
    works with channels last, or hands them out, needs a copy.
    """
    node = s.only(lower)
    source = s.network.types[node.inputs[0]].shape
    if node.op == "Transpose":
        order = node.attribute("perm")
        axes = order if isinstance(order, tuple) else tuple(range(len(source)))[::-1]
        kept = [axis for axis in axes if isinstance(axis, int) and source[axis] != 1]
        return kept == sorted(kept)
    channels_last = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
    if not any(s.kind[maker] in channels_last for maker in s.uppers(lower)):
        return True
    flattens = len(source) == 4 and math.prod(source[2:]) > 1 and len(s.output(lower).shape) == 2
    return not (flattens or s.gives_out(lower))


def _conv(s: Scene, group: int) -> Node | None:
    return next((node for node in s.nodes(group) if node.op == "Conv"), None)


def _is_wide(s: Scene, group: int) -> bool:
    """Whether the group's convolution is dense, 1x1, and wide enough for a matrix product."""
    conv = _conv(s, group)
    if conv is None or conv.attribute("strides") or conv.attribute("group"):
        return False
    weight = s.network.type_of(conv.inputs[1]).shape
    wide = all(c >= _PRODUCT_CHANNELS and c % _CHANNEL_MULTIPLE == 0 for c in weight[:2])
    return wide and all(size == 1 for size in weight[2:])


def _is_grouped(s: Scene, group: int) -> bool:
    conv = _conv(s, group)
    if conv is None or not conv.attribute("group"):
        return False
    weight = s.network.type_of(conv.inputs[1]).shape
    return weight[1] > 1 or weight[0] != conv.attribute("group")


def _is_part_of_another(s: Scene, part: str, group: int) -> bool:
    readers = (i for i in s.consumers.get(part, ()) if i not in s.removed)
    return any(s.network.nodes[i].op == "Concat" and s.group[i] != group for i in readers)


def _pixels(s: Scene, group: int) -> int:
    return math.prod(s.output(group).shape[2:])


def _input_pixels(s: Scene, group: int) -> int:
    name = next((i for i in s.only(group).inputs if i in s.network.types), "")
    return math.prod(s.network.types[name].shape[2:]) if name else 0


def _input_elements(s: Scene, group: int) -> int:
    name = next((i for i in s.only(group).inputs if i in s.network.types), "")
    return s.network.types[name].elements if name else 0


def _is_global_mean(s: Scene, group: int) -> bool:
    return s.kind[group] in _MEANS and is_global(s, group, group)
