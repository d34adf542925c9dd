"""The conditions that tables of fusion rules share, each of a producer and a consumer."""

from __future__ import annotations

import math

from hybridlat.engines.fusion.rules import Condition, Group

_CAN_WRITE_ANYWHERE = ("Split", "Slice")
_CHANNELS_LAST = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
_SMALL_ELEMENTS = 16384
_LARGE_PIXELS = 1024  # maps of 20x20 are small, those of 40x40 are large


def all_of(*conditions: Condition) -> Condition:
    """Every condition holds."""
    return lambda producer, consumer: all(condition(producer, consumer) for condition in conditions)


def any_of(*conditions: Condition) -> Condition:
    """At least one condition holds."""
    return lambda producer, consumer: any(condition(producer, consumer) for condition in conditions)


def unless(condition: Condition) -> Condition:
    """The condition does not hold."""
    return lambda producer, consumer: not condition(producer, consumer)


def of_producer(condition: Condition) -> Condition:
    """The condition of the producer alone."""
    return lambda producer, consumer: condition(producer, producer)


def of_consumer(condition: Condition) -> Condition:
    """The condition of the consumer alone."""
    return lambda producer, consumer: condition(consumer, consumer)


def holds(*ops: str) -> Condition:
    """The producer holds one of the operators."""
    return lambda producer, consumer: any(op in ops for op in producer.ops)


def made_by(*kinds: str) -> Condition:
    """What the consumer reads is made by groups of these kinds."""
    return lambda producer, consumer: all(maker.kind in kinds for maker in consumer.producers)


def before(condition: Condition) -> Condition:
    """The condition of the consumer and a group that reads it."""
    return lambda producer, consumer: any(
        condition(consumer, reader) for reader in consumer.consumers
    )


def is_a(*kinds: str) -> Condition:
    """The consumer is a group of these kinds."""
    return lambda producer, consumer: consumer.kind in kinds


def read_by(*kinds: str) -> Condition:
    """A group of these kinds reads the consumer."""
    return before(is_a(*kinds))


def ends_in(op: str) -> Condition:
    """The last operator of the consumer is ``op``."""
    return lambda producer, consumer: consumer.ops[-1] == op


def maps_smaller_than(pixels: int) -> Condition:
    """The consumer reads feature maps of fewer than so many pixels."""
    return lambda producer, consumer: math.prod(_input_shape(consumer)[2:]) < pixels


def large_maps(producer: Group, consumer: Group) -> bool:
    """What the consumer makes has many pixels, over the batch."""
    batch, _, *size = consumer.output.shape
    return batch * math.prod(size) >= _LARGE_PIXELS


def only_reader(producer: Group, consumer: Group) -> bool:
    """What the consumer reads of the producer is read by nothing else and not given out."""
    return producer.feeds_only(consumer)


def by_one_constant(producer: Group, consumer: Group) -> bool:
    """The consuming operator's other operand is a constant; others may read the producer too."""
    return len(_data(consumer)) == 1


by_constant = all_of(only_reader, by_one_constant)
"""The consuming operator's other operand is a constant, and it alone reads the producer."""


def odd_maps(producer: Group, consumer: Group) -> bool:
    """The consumer reads feature maps of an odd number of pixels, which no vector divides."""
    return math.prod(_input_shape(consumer)[2:]) % 2 == 1


def small_maps(producer: Group, consumer: Group) -> bool:
    """What the consumer reads is small as a whole."""
    return math.prod(_input_shape(consumer)) <= _SMALL_ELEMENTS


def by_scalar(producer: Group, consumer: Group) -> bool:
    """The consuming operator's other operand is one constant number."""
    known = map(consumer.network.constants.get, consumer.first.inputs)
    is_number = all(constant.type.elements == 1 for constant in known if constant)
    return is_number and by_constant(producer, consumer)


def gates_itself(producer: Group, consumer: Group) -> bool:
    """The consuming Mul multiplies what the producing Sigmoid reads with what it makes."""
    return only_reader(producer, consumer) and producer.first.inputs[0] in consumer.first.inputs


def reads_one(producer: Group, consumer: Group) -> bool:
    """The consuming operator has one input."""
    return len(consumer.first.inputs) == 1


def reads_two(producer: Group, consumer: Group) -> bool:
    """Both operands of the consuming operator are activations."""
    return len(set(_data(consumer))) == 2


def same_shape(producer: Group, consumer: Group) -> bool:
    """Nothing is broadcast: both groups make tensors of one shape."""
    return producer.output.shape == consumer.output.shape


def is_global(producer: Group, consumer: Group) -> bool:
    """The consuming reduction is over whole feature maps."""
    return consumer.first.op.startswith("Global") or pixels(consumer) == 1


def reduces_rows(producer: Group, consumer: Group) -> bool:
    """The consuming reduction is over the last axis alone, of more than one row."""
    shape = _input_shape(consumer)
    return _axes(consumer) in ((-1,), (len(shape) - 1,)) and math.prod(shape[:-1]) > 1


def reduces_groups(producer: Group, consumer: Group) -> bool:
    """The consuming reduction is over groups of channels with their feature maps."""
    return len(_input_shape(consumer)) == 5 and _axes(consumer) == (2, 3, 4)


feeds_a_group_mean = before(all_of(is_a("ReduceMean"), reduces_groups))
"""A mean over groups of channels reads the consumer."""


def of_small_groups(producer: Group, consumer: Group) -> bool:
    """The producer's mean is over so few numbers that one block of threads holds them."""
    mean = next((node for node in producer.nodes if node.op == "ReduceMean"), None)
    if mean is None:
        return False
    read, made = map(producer.network.type_of, (mean.inputs[0], mean.outputs[0]))
    return read.elements <= _SMALL_ELEMENTS * made.elements


def squares(producer: Group, consumer: Group) -> bool:
    """The producer multiplies a tensor with itself."""
    return any(n.op == "Mul" and n.inputs[0] == n.inputs[1] for n in producer.nodes)


def keeps_type(producer: Group, consumer: Group) -> bool:
    """The consuming Cast gives out the type that it reads."""
    return consumer.network.types.get(consumer.first.inputs[0]) == consumer.output


def is_half(producer: Group, consumer: Group) -> bool:
    """The network computes in half precision, or in whole numbers."""
    return producer.output.dtype in ("float16", "int8")


def is_int8(producer: Group, consumer: Group) -> bool:
    """The network computes in whole numbers."""
    return producer.output.dtype == "int8"


def other_readers_are_concats(producer: Group, consumer: Group) -> bool:
    """All other readers only copy what the producer makes into a longer one."""
    return all(r is consumer or r.ops[0] == "Concat" for r in producer.consumers)


def keeps_all(producer: Group, consumer: Group) -> bool:
    """The operator gives out as much as it reads."""
    source = consumer.network.types.get(consumer.first.inputs[0])
    return source is not None and source.shape == consumer.output.shape


def pools_one_by_one(producer: Group, consumer: Group) -> bool:
    """The windows of the consuming pooling hold one position each."""
    return consumer.first.attribute("kernel_shape") in ((1,), (1, 1))


def writes_in_place(producer: Group, consumer: Group) -> bool:
    """The consuming Concat's parts come from kernels that can write at an offset."""
    if consumer.kind != "Concat" or reads_one(producer, consumer):
        return False
    if any(_is_part_of_another(part, consumer) for part in consumer.first.inputs):
        return False
    return not any(maker.kind in _CAN_WRITE_ANYWHERE for maker in consumer.producers)


def layout_unchanged(producer: Group, consumer: Group) -> bool:
    """The bytes stay as they are.

    A Transpose may move axes of size 1. A view that flattens the feature maps of a kernel that
    works with channels last, or hands them out, needs a copy.
    """
    node = consumer.first
    source = consumer.network.type_of(node.inputs[0]).shape
    if node.op == "Transpose":
        order = node.attribute("perm")
        axes = order if isinstance(order, tuple) else tuple(range(len(source)))[::-1]
        kept = [axis for axis in axes if isinstance(axis, int) and source[axis] != 1]
        return kept == sorted(kept)
    if not any(maker.kind in _CHANNELS_LAST for maker in consumer.producers):
        return True
    flattens = len(source) == 4 and math.prod(source[2:]) > 1 and len(consumer.output.shape) == 2
    return not (flattens or consumer.gives_out)


_is_global_mean = all_of(is_a("ReduceMean", "GlobalAveragePool"), is_global)
_before_mean = before(_is_global_mean)
_passes_on = is_a("Add", "Mul", "Relu", "LeakyRelu", "Clip")
before_generated = any_of(
    lambda producer, consumer: consumer.gives_out,
    _before_mean,
    before(all_of(_passes_on, only_reader, _before_mean)),
)
"""A generated kernel follows the consumer anyway: a global mean, or the way out."""
before_odd_mean = before(all_of(_is_global_mean, odd_maps))
"""A global mean over maps of an odd number of pixels reads the consumer."""


def only_convolutions_read(producer: Group, consumer: Group) -> bool:
    """Every reader of the consumer is a convolution, and it is not given out."""
    readers = consumer.consumers
    return bool(readers) and not consumer.gives_out and all(r.kind == "Conv" for r in readers)


def pads_zeros(producer: Group, consumer: Group) -> bool:
    """The consuming Pad adds zeros."""
    node = consumer.first
    value = consumer.network.constants.get("".join(node.inputs[2:3]))
    is_zero = value is None or not any(value.values or ())
    return is_zero and node.attribute("mode", "constant") == "constant"


# ---- what they ask ----


def _axes(group: Group) -> object:
    node = group.first
    stated = group.network.constants.get("".join(node.inputs[1:2]))
    return node.attribute("axes", stated.values if stated else None)


def _is_part_of_another(part: str, group: Group) -> bool:
    grouping, nodes = group.grouping, group.network.nodes
    readers = [i for i in group.network.consumers.get(part, ()) if i not in grouping.removed]
    return any(nodes[i].op == "Concat" and grouping.group_of[i] is not group for i in readers)


def _data(group: Group) -> list[str]:
    """The operands of a group's first operator that are no constants."""
    return [name for name in group.first.inputs if name in group.network.types]


def pixels(group: Group) -> int:
    """Pixels of the feature maps that a group makes."""
    return math.prod(group.output.shape[2:])


def _input_shape(group: Group) -> tuple[int, ...]:
    """Shape of what a group reads; of no elements where it reads constants alone."""
    data = _data(group)
    return group.network.types[data[0]].shape if data else (0, 0, 0)
