"""The conditions that tables of fusion rules share.

Each takes the state of a fusion, the producer and the consumer; see
:mod:`hybridlat.engines.fusion.rules`.
"""

from __future__ import annotations

import math

from hybridlat.engines.fusion.rules import Condition, FusionState
from hybridlat.graph.network import Node

_CAN_WRITE_ANYWHERE = ("Split", "Slice")
_SMALL_ELEMENTS = 16384
_LARGE_PIXELS = 1024  # maps of 20x20 are small, those of 40x40 are large


def all_of(*conditions: Condition) -> Condition:
    """Every condition holds."""
    return lambda s, u, low: all(condition(s, u, low) for condition in conditions)


def any_of(*conditions: Condition) -> Condition:
    """At least one condition holds."""
    return lambda s, u, low: any(condition(s, u, low) for condition in conditions)


def unless(condition: Condition) -> Condition:
    """The condition does not hold."""
    return lambda s, u, low: not condition(s, u, low)


def of_producer(condition: Condition) -> Condition:
    """The condition, asked of the producer alone."""
    return lambda s, u, low: condition(s, u, u)


def of_consumer(condition: Condition) -> Condition:
    """The condition, asked of the consumer alone."""
    return lambda s, u, low: condition(s, low, low)


def holds(*ops: str) -> Condition:
    """The producer holds one of the operators."""
    return lambda s, u, low: any(op in ops for op in s.ops(u))


def made_by(*kinds: str) -> Condition:
    """What the consumer reads is made by groups of these kinds."""
    return lambda s, u, low: all(s.kind[maker] in kinds for maker in s.producers_of(low))


def before(condition: Condition) -> Condition:
    """The condition, asked of the consumer and a group that reads it."""
    return lambda s, u, low: any(condition(s, low, reader) for reader in s.consumers_of(low))


def is_a(*kinds: str) -> Condition:
    """The consumer is a group of these kinds."""
    return lambda s, u, low: s.kind[low] in kinds


def read_by(*kinds: str) -> Condition:
    """A group of these kinds reads the consumer."""
    return before(is_a(*kinds))


def ends_in(op: str) -> Condition:
    """The last operator of the consumer is ``op``."""
    return lambda s, u, low: s.ops(low)[-1] == op


def maps_smaller_than(pixels: int) -> Condition:
    """The consumer reads feature maps of fewer than so many pixels."""
    return lambda s, u, low: math.prod(_input_shape(s, low)[2:]) < pixels


def large_maps(s: FusionState, producer: int, consumer: int) -> bool:
    """What the consumer makes has many pixels, over the batch."""
    shape = s.output(consumer).shape
    return math.prod((*shape[:1], *shape[2:])) >= _LARGE_PIXELS


def only_reader(s: FusionState, producer: int, consumer: int) -> bool:
    """What the consumer reads of the producer is read by nothing else and not given out."""
    return s.between_only(producer, consumer)


def by_one_constant(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming operator's other operand is a constant; others may read the producer too."""
    return sum(i in s.network.types for i in s.only(consumer).inputs) == 1


by_constant = all_of(only_reader, by_one_constant)
"""The consuming operator's other operand is a constant, and it alone reads the producer."""


def odd_maps(s: FusionState, producer: int, consumer: int) -> bool:
    """The consumer reads feature maps of an odd number of pixels, which no vector divides."""
    return math.prod(_input_shape(s, consumer)[2:]) % 2 == 1


def small_maps(s: FusionState, producer: int, consumer: int) -> bool:
    """What the consumer reads is small as a whole."""
    return math.prod(_input_shape(s, consumer)) <= _SMALL_ELEMENTS


def by_scalar(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming operator's other operand is one constant number."""
    others = [i for i in s.only(consumer).inputs if i in s.network.constants]
    is_number = all(s.network.type_of(i).elements == 1 for i in others)
    return is_number and by_constant(s, producer, consumer)


def gates_itself(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming Mul multiplies what the upper Sigmoid reads with what it gives."""
    source = s.only(producer).inputs[0]
    return only_reader(s, producer, consumer) and source in s.only(consumer).inputs


def reads_one(s: FusionState, producer: int, consumer: int) -> bool:
    """The consuming operator has one input."""
    return len(s.only(consumer).inputs) == 1


def reads_two(s: FusionState, producer: int, consumer: int) -> bool:
    """Both operands of the lower operator are activations."""
    return len({i for i in s.only(consumer).inputs if i in s.network.types}) == 2


def same_shape(s: FusionState, producer: int, consumer: int) -> bool:
    """Nothing is broadcast: both groups make tensors of one shape."""
    return s.output(producer).shape == s.output(consumer).shape


def is_global(s: FusionState, producer: int, consumer: int) -> bool:
    """The lower reduction is over whole feature maps."""
    return s.only(consumer).op.startswith("Global") or pixels(s, consumer) == 1


def reduces_rows(s: FusionState, producer: int, consumer: int) -> bool:
    """The lower reduction is over the last axis alone, of more than one row."""
    node = s.only(consumer)
    shape = s.network.type_of(node.inputs[0]).shape
    return _axes(s, node) in ((-1,), (len(shape) - 1,)) and math.prod(shape[:-1]) > 1


def reduces_groups(s: FusionState, producer: int, consumer: int) -> bool:
    """The lower reduction is over groups of channels with their feature maps."""
    node = s.only(consumer)
    return len(s.network.type_of(node.inputs[0]).shape) == 5 and _axes(s, node) == (2, 3, 4)


feeds_a_group_mean = before(all_of(is_a("ReduceMean"), reduces_groups))
"""A mean over groups of channels reads the consumer."""


def of_small_groups(s: FusionState, producer: int, consumer: int) -> bool:
    """The producer's mean is over so few numbers that one block of threads holds them."""
    mean = next((node for node in s.nodes(producer) if node.op == "ReduceMean"), None)
    if mean is None:
        return False
    read, made = map(s.network.type_of, (mean.inputs[0], mean.outputs[0]))
    return read.elements <= _SMALL_ELEMENTS * made.elements


def squares(s: FusionState, producer: int, consumer: int) -> bool:
    """The producer multiplies a tensor with itself."""
    return any(n.op == "Mul" and n.inputs[0] == n.inputs[1] for n in s.nodes(producer))


def keeps_type(s: FusionState, producer: int, consumer: int) -> bool:
    """The lower Cast gives out the type that it reads."""
    return s.network.types.get(s.only(consumer).inputs[0]) == s.output(consumer)


def is_half(s: FusionState, producer: int, consumer: int) -> bool:
    """The network computes in half precision, or in whole numbers."""
    return s.output(producer).dtype in ("float16", "int8")


def is_int8(s: FusionState, producer: int, consumer: int) -> bool:
    """The network computes in whole numbers."""
    return s.output(producer).dtype == "int8"


def other_readers_are_concats(s: FusionState, producer: int, consumer: int) -> bool:
    """All other readers only copy what the producer makes into a longer one."""
    return all(r == consumer or s.ops(r)[0] == "Concat" for r in s.consumers_of(producer))


def keeps_all(s: FusionState, producer: int, consumer: int) -> bool:
    """The operator gives out as much as it reads."""
    source = s.only(consumer).inputs[0]
    return source in s.network.types and s.network.types[source].shape == s.output(consumer).shape


def pools_one_by_one(s: FusionState, producer: int, consumer: int) -> bool:
    """The windows of the consuming pooling hold one position each."""
    return s.only(consumer).attribute("kernel_shape") in ((1,), (1, 1))


def writes_in_place(s: FusionState, producer: int, consumer: int) -> bool:
    """The lower Concat's parts come from kernels that can write at an offset."""
    if s.kind[consumer] != "Concat" or reads_one(s, producer, consumer):
        return False
    if any(_is_part_of_another(s, part, consumer) for part in s.only(consumer).inputs):
        return False
    return not any(s.kind[maker] in _CAN_WRITE_ANYWHERE for maker in s.producers_of(consumer))


def layout_unchanged(s: FusionState, producer: int, consumer: int) -> bool:
    """The bytes stay as they are.

    A Transpose may move axes of size 1. A view that flattens the feature maps of a kernel that
    works with channels last, or hands them out, needs a copy.
    """
    node = s.only(consumer)
    source = s.network.type_of(node.inputs[0]).shape
    if node.op == "Transpose":
        order = node.attribute("perm")
        axes = order if isinstance(order, tuple) else tuple(range(len(source)))[::-1]
        kept = [axis for axis in axes if isinstance(axis, int) and source[axis] != 1]
        return kept == sorted(kept)
    channels_last = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
    if not any(s.kind[maker] in channels_last for maker in s.producers_of(consumer)):
        return True
    flattens = len(source) == 4 and math.prod(source[2:]) > 1 and len(s.output(consumer).shape) == 2
    return not (flattens or s.gives_out(consumer))


_is_global_mean = all_of(is_a("ReduceMean", "GlobalAveragePool"), is_global)
_before_mean = before(_is_global_mean)
_passes_on = is_a("Add", "Mul", "Relu", "LeakyRelu", "Clip")
before_generated = any_of(
    lambda s, u, low: s.gives_out(low),
    _before_mean,
    before(all_of(_passes_on, only_reader, _before_mean)),
)
"""A generated kernel follows the consumer anyway: a global mean, or the way out."""
before_odd_mean = before(all_of(_is_global_mean, odd_maps))
"""A global mean over maps of an odd number of pixels reads the consumer."""


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


# ---- what they ask ----


def _axes(s: FusionState, node: Node) -> object:
    axes = node.attribute("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1] in s.network.constants:
        return s.network.constants[node.inputs[1]].values
    return axes


def _is_part_of_another(s: FusionState, part: str, group: int) -> bool:
    readers = (i for i in s.consumers.get(part, ()) if i not in s.removed)
    return any(s.network.nodes[i].op == "Concat" and s.group[i] != group for i in readers)


def pixels(s: FusionState, group: int) -> int:
    """Pixels of the feature maps that a group makes."""
    return math.prod(s.output(group).shape[2:])


def _input_shape(s: FusionState, group: int) -> tuple[int, ...]:
    """Shape of what a group reads; of no elements where it reads constants alone."""
    name = next((i for i in s.only(group).inputs if i in s.network.types), "")
    return s.network.type_of(name).shape if name else (0, 0, 0)
