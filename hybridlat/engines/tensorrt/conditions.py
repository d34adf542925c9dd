"""The conditions of TensorRT's table of fusion rules, each of a producer and a consumer."""

import math
import operator

from hybridlat.engines.fusion.conditions import only_reader
from hybridlat.engines.fusion.rules import Group
from hybridlat.graph.network import Network, Node
from hybridlat.graph.operators import KINDS, kind_of
from hybridlat.schema.target import version_key

_CHANNEL_MULTIPLE = 8
_PRODUCT_CHANNELS = 256
_PIXEL_CHANNELS = 4
_INT8_VECTOR = 4  # channels that lie together at least, in whole numbers
_HALF_VECTOR = 8  # those in half precision: a part of a Concat begins at a multiple
_FEW_PIXELS = 6400
_LARGE_PIXELS = 1024  # maps of 20x20 are small, those of 40x40 are large
_CONVS, _POOLS = ("Conv", "ConvTranspose"), ("MaxPool", "AveragePool")
_PASS_ON = ("Add", "Mul", "Relu", "LeakyRelu", "Clip")
_MEANS = ("ReduceMean", "GlobalAveragePool")
_CAN_WRITE_ANYWHERE = ("Split", "Slice")
_SUMS = frozenset({"Add", "Sum"})
_READ_DENSE = frozenset({"Resize", "Upsample", "Slice", "Split", *_POOLS})  # no part of another


def is_half(producer: Group, consumer: Group) -> bool:
    """The network computes in half precision, or in whole numbers."""
    return producer.output.dtype in ("float16", "int8")


def is_int8(producer: Group, consumer: Group) -> bool:
    """The network computes in whole numbers."""
    return producer.output.dtype == "int8"


def same_shape(producer: Group, consumer: Group) -> bool:
    """Nothing is broadcast: both groups make tensors of one shape."""
    return producer.output.shape == consumer.output.shape


def spreads_one_axis(producer: Group, consumer: Group) -> bool:
    """What the producer makes is broadcast along one axis at most."""
    sizes = producer.output.shape, consumer.output.shape
    return len(sizes[0]) == len(sizes[1]) and sum(map(operator.ne, *sizes)) < 2


def large_maps(producer: Group, consumer: Group) -> bool:
    """What the consumer makes has many pixels, over the batch."""
    batch, _, *size = consumer.output.shape
    return batch * math.prod(size) >= _LARGE_PIXELS


def odd_maps(producer: Group, consumer: Group) -> bool:
    """The consumer reads feature maps of an odd number of pixels, which no vector divides."""
    return math.prod(_input_shape(consumer)[2:]) % 2 == 1


def few_pixels(producer: Group, consumer: Group) -> bool:
    """The consumer reads feature maps of few pixels."""
    return math.prod(_input_shape(consumer)[2:]) <= _FEW_PIXELS


def is_global(producer: Group, consumer: Group) -> bool:
    """The consuming reduction is over whole feature maps."""
    return consumer.first.op.startswith("Global") or math.prod(consumer.output.shape[2:]) == 1


def before_generated(producer: Group, consumer: Group) -> bool:
    """A generated kernel follows the consumer anyway: a global mean, or the way out."""
    passed_on = [g for g in consumer.consumers if g.kind in _PASS_ON and only_reader(consumer, g)]
    pairs = ((g, c) for g in (consumer, *passed_on) for c in g.consumers if c.kind in _MEANS)
    return consumer.gives_out or any(is_global(*pair) for pair in pairs)


def layout_unchanged(producer: Group, consumer: Group) -> bool:
    """The bytes stay as they are.

    A view that flattens the feature maps of a kernel that works with channels last, or hands them
    out, needs a copy.
    """
    source = consumer.network.type_of(consumer.first.inputs[0]).shape
    if not any(maker.kind in (*_CONVS, *_POOLS) for maker in consumer.producers):
        return True
    flattens = len(source) == 4 and math.prod(source[2:]) > 1 and len(consumer.output.shape) == 2
    return not (flattens or consumer.gives_out)


def is_for_products(producer: Group, consumer: Group) -> bool:
    """The consumer exchanges the last two axes of what products alone read."""
    rank, turned = len(consumer.output.shape), consumer.first.sizes("perm")
    exchanged = (*range(rank)[:-2], rank - 1, rank - 2)
    is_read = {group.kind for group in consumer.consumers} == {"MatMul"} and not consumer.gives_out
    return is_read and turned == exchanged


# ---- convolutions ----


def is_fully_connected(producer: Group, consumer: Group) -> bool:
    """In half precision: a dense 1x1 convolution, wide enough to run as a matrix product."""
    conv, weight = _conv(producer), _weight(producer)
    if conv is None or not is_half(producer, consumer):
        return False
    is_plain = _is_dense(producer) and conv.attribute("strides") in (None, (1,), (1, 1))
    wide = all(c >= _PRODUCT_CHANNELS and c % _CHANNEL_MULTIPLE == 0 for c in weight[:2])
    return is_plain and wide and set(weight[2:]) <= {1}


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


def behind_a_relu(producer: Group, consumer: Group) -> bool:
    """The producer reads what a ReLU makes, be it an epilogue.

    Under 7.1 a pair of them in 1,000 networks of NAS-Bench-201 takes twice as long as one: there
    each convolution was written with a ReLU of its own.
    """
    return producer.network.maker(producer.data[0], "Relu") is not None


def is_depthwise(producer: Group, consumer: Group) -> bool:
    """The producer convolves each channel by itself."""
    conv, weight = _conv(producer), _weight(producer)
    groups = conv.attribute("group", 1) if conv else 1
    return groups != 1 and weight[:2] == (groups, 1)


def makes_few_channels(producer: Group, consumer: Group) -> bool:
    """The producer makes fewer channels than lie together in whole numbers."""
    return is_int8(producer, consumer) and producer.output.shape[1] < _INT8_VECTOR


def has_larger_windows(producer: Group, consumer: Group) -> bool:
    """The producer's windows are larger than those of what else the consuming sum reads."""
    others = [math.prod(_weight(g)[2:]) for g in consumer.producers if g is not producer]
    return math.prod(_weight(producer)[2:]) > max(others, default=math.inf)


def is_added_first(producer: Group, consumer: Group) -> bool:
    """The consuming sum names the producer's result before the others."""
    return consumer.producers[:1] == [producer]


def fixed_sums(network: Network, version: str) -> list[str]:
    """Sums of convolutions of a version in which the one that they name first adds."""
    is_named = version_key("8.4") <= version_key(version) < version_key("9")
    sums = [node for node in network.nodes if is_named and node.op in _SUMS]
    return [n.outputs[0] for n in sums if all(network.maker(i, *_CONVS) for i in n.inputs)]


# ---- parts of Concats and of Splits: read or written in place, or copied ----


def is_in_place(producer: Group, consumer: Group) -> bool:
    """The consumer copies a part of a Concat that its maker can write where it belongs.

    So can convolutions that neither add nor run as one with others, poolings, and element-wise
    kernels in front of convolutions. No reader may need the part dense.
    """
    if len(consumer.first.inputs) != 1:
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
    sums = [grouping.group_of[reader] for reader, op in ops.items() if op in _SUMS]
    if any(group.kind == "Elementwise" for group in sums):
        return False  # a chain reads what it adds dense
    made_by = grouping.group_of[maker]
    shape, held, kind = network.type_of(name).shape, made_by.ops, made_by.kind
    if kind in _CONVS:
        is_plain = _SUMS.isdisjoint(held) and held.count("Conv") < 2
        return is_plain and not (is_int8(producer, consumer) and shape[1] % _INT8_VECTOR)
    is_map = len(shape) == 4 and not shape[1] % _HALF_VECTOR
    is_pointwise = all(kind_of(op) == KINDS["pointwise"] for op in held)
    return kind in ("Concat", *_POOLS) or (is_pointwise and is_map)


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


def writes_in_place(producer: Group, consumer: Group) -> bool:
    """The consuming Concat's parts come from kernels that can write at an offset."""
    parts, grouping, network = consumer.first.inputs, consumer.grouping, consumer.network
    if consumer.kind != "Concat" or len(parts) == 1:
        return False
    readers = {i for part in parts for i in network.consumers.get(part, ())} - grouping.removed
    if any(network.nodes[i].op == "Concat" for i in readers.difference(consumer.positions)):
        return False
    return not any(maker.kind in _CAN_WRITE_ANYWHERE for maker in consumer.producers)


# ---- what they ask ----


def _input_shape(group: Group) -> tuple[int, ...]:
    """Shape of what a group reads; of no elements where it reads constants alone."""
    return group.network.types[group.data[0]].shape if group.data else (0, 0, 0)


def _conv(group: Group) -> Node | None:
    return next((node for node in group.nodes if node.qualified_op == "Conv"), None)


def _weight(group: Group) -> tuple[int, ...]:
    """Shape of the weight of a group's convolution; empty without one."""
    conv = _conv(group)
    return group.network.type_of(conv.inputs[1]).shape if conv else ()


def _is_dense(group: Group) -> bool:
    conv = _conv(group)
    return conv is not None and conv.attribute("group", 1) == 1


def _read_alike(*groups: Group) -> bool:
    """Whether dense convolutions have the same windows and read the same tensor."""
    convs = [_conv(group) for group in groups]
    names = ("group", "strides", "pads", "dilations")
    windows = {(c.inputs[0], *map(c.attribute, names)) if c else () for c in convs}
    filters = {_weight(group)[1:] for group in groups}
    return len(windows) == len(filters) == 1 and _is_dense(groups[0])
