"""The conditions in the table of TensorRT's fusion rules.

Each takes a scene, the upper group and the lower group; see
:mod:`hybridlat.engines.fusion.rewriter`.
"""

from __future__ import annotations

import math

from hybridlat.engines.fusion.rewriter import Condition, Scene
from hybridlat.graph.network import Node

_MEANS = ("ReduceMean", "GlobalAveragePool")
_PASSES_ON = ("Add", "Mul", "Relu", "LeakyRelu", "Clip")
_CAN_WRITE_ANYWHERE = ("Split", "Slice")
_CHANNEL_MULTIPLE = 8
_PRODUCT_CHANNELS = 256
_LARGE_MAP_BYTES = 512  # of one channel


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


def reads_two(s: Scene, upper: int, lower: int) -> bool:
    """Both operands of the lower operator are activations."""
    return len({i for i in s.only(lower).inputs if i in s.network.types}) == 2


def same_shape(s: Scene, upper: int, lower: int) -> bool:
    """Nothing is broadcast: both groups make tensors of one shape."""
    return s.output(upper).shape == s.output(lower).shape


def is_global(s: Scene, upper: int, lower: int) -> bool:
    """The lower reduction is over whole feature maps."""
    return s.only(lower).op.startswith("Global") or _pixels(s, lower) == 1


def is_half(s: Scene, upper: int, lower: int) -> bool:
    """The network computes in half precision."""
    return s.output(upper).dtype == "float16"


def makes_one_pixel(s: Scene, upper: int, lower: int) -> bool:
    """The maps have one pixel, and no matrix product with an epilogue of its own is used."""
    return _pixels(s, lower) == 1 and not is_fully_connected(s, upper, lower)


def is_fully_connected(s: Scene, upper: int, lower: int) -> bool:
    """In half precision: a dense 1x1 convolution, wide enough to run as a matrix product."""
    conv = _conv(s, upper)
    if conv is None or not is_half(s, upper, lower):
        return False
    if conv.attribute("strides") or conv.attribute("group"):
        return False
    weight = s.network.type_of(conv.inputs[1]).shape
    wide = all(c >= _PRODUCT_CHANNELS and c % _CHANNEL_MULTIPLE == 0 for c in weight[:2])
    return wide and all(size == 1 for size in weight[2:])


def few_input_channels(s: Scene, upper: int, lower: int) -> bool:
    """In half precision: the first convolution, which reads fewer channels than a vector holds."""
    conv = _conv(s, upper)
    if conv is None or not is_half(s, upper, lower) or conv.attribute("group"):
        return False
    return s.network.type_of(conv.inputs[1]).shape[1] < _CHANNEL_MULTIPLE


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


def branches_together(s: Scene, upper: int, lower: int) -> bool:
    """The upper group already adds a residual, and the lower scale feeds the next addition."""
    readers = s.lowers(lower)
    return "Add" in s.ops(upper) and bool(readers) and all("Add" in s.ops(r) for r in readers)


def adds_a_large_gated_map(s: Scene, upper: int, lower: int) -> bool:
    """The lower group adds what the upper Mul scales by channel, and the maps are large."""
    if s.kind[upper] != "Mul" or s.only(lower).op != "Add":
        return False
    inputs = s.only(upper).inputs
    gates = [s.network.types[name] for name in inputs if name in s.network.types]
    made = s.output(upper)
    is_gate = any(math.prod(g.shape[2:]) == 1 and g.elements > 1 for g in gates)
    return is_gate and made.bytes >= _LARGE_MAP_BYTES * math.prod(made.shape[:2])


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


def _pixels(s: Scene, group: int) -> int:
    return math.prod(s.output(group).shape[2:])


def _input_pixels(s: Scene, group: int) -> int:
    name = next((i for i in s.only(group).inputs if i in s.network.types), "")
    return math.prod(s.network.types[name].shape[2:]) if name else 0


def _is_global_mean(s: Scene, group: int) -> bool:
    return s.kind[group] in _MEANS and is_global(s, group, group)
