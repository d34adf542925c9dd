"""Channels that depend on each other are scaled together, and the file still fits together."""

import pytest

from hybridlat.errors import NetworkError
from hybridlat.graph.builder import NetworkBuilder
from hybridlat.graph.network import Network
from hybridlat.graph.widths import scaled
from hybridlat.onnx_io import read_network, to_onnx
from tests.networks import normal_form

NETS = (
    "resnet18 densenet121 shufflenet_v2 resnext50_32x4d mixnet_s skresnet18 super_resolution unet "
    "res2net50_26w_4s yolo_cross_stage convnext_tiny"
)


def channels(network: Network) -> list[int]:
    return [network.types[n.outputs[0]].shape[1] for n in network.nodes if n.op == "Conv"]


@pytest.mark.parametrize("name", NETS.split())
def test_a_scaled_network_is_one_that_the_reader_works_out_alike(name: str) -> None:
    network = read_network(name)
    assert scaled(network, 1.0) == network
    half = scaled(network, 0.5)
    assert 0.2 < half.weight_bytes / network.weight_bytes < 0.45
    again = read_network(to_onnx(half, seed=None))
    made = [[one.types[o] for n in one.nodes for o in n.outputs if o] for one in (again, half)]
    ends = [[one.types[t] for t in (*one.inputs, *one.outputs)] for one in (half, network)]
    assert made[0] == made[1] and ends[0] == ends[1]


def test_channels_that_depend_on_each_other_stay_equal_and_are_rounded() -> None:
    b = NetworkBuilder()
    stem = b.conv(b.input((1, 3, 8, 8)), 40)
    deep = b.conv(stem, 40, group=40)  # depthwise: as many filters as channels
    total = b.op("Add", [stem, deep], (1, 40, 8, 8), 14)
    wide = b.op("Concat", [total, b.conv(total, 20)], (1, 60, 8, 8), 13, {"axis": 1})
    grouped = b.conv(wide, 30, group=5)
    made = scaled(b.network(b.conv(grouped, 10, bias=True)), 0.7)
    stem_width, depthwise, branch, by_group, out = channels(made)
    assert out == 10 and stem_width == depthwise and stem_width % 8 == 0
    assert made.nodes[1].attribute("group") == stem_width
    assert (stem_width + branch) % 5 == 0 and by_group % 5 == 0
    assert read_network(to_onnx(made, seed=None)).types[made.outputs[0]].shape == (1, 10, 8, 8)


def test_a_side_of_an_image_may_be_rolled_and_joined_with_channels() -> None:
    """As windows of Swin are."""
    b = NetworkBuilder()
    x = b.conv(b.input((1, 3, 8, 8)), 16)
    x = b.op("Transpose", [x], (1, 8, 8, 16), 13, {"perm": (0, 2, 3, 1)})
    for axis, half in ((1, (1, 4, 8, 16)), (2, (1, 8, 4, 16))):
        cuts = [[x, b.numbers(start), b.numbers(start + 4), b.numbers(axis)] for start in (4, 0)]
        parts = [b.op("Slice", cut, half, 13) for cut in cuts]
        x = b.op("Concat", parts, (1, 8, 8, 16), 13, {"axis": axis})
    for shape in ((8, 128), (1, 8, 8, 16)):
        x = b.op("Reshape", [x, b.numbers(*shape)], shape, 14)
    x = b.op("Transpose", [x], (1, 16, 8, 8), 13, {"perm": (0, 3, 1, 2)})
    assert channels(scaled(b.network(b.conv(x, 10)), 0.5)) == [8, 10]


def test_channels_that_are_shuffled_between_groups_are_scaled_in_parts() -> None:
    """Three groups of 32, shuffled, tie all 96 channels to one: they become less by parts."""
    b = NetworkBuilder()
    parted, swapped, whole = (1, 3, 32, 8, 8), (1, 32, 3, 8, 8), (1, 96, 8, 8)
    x = b.conv(b.conv(b.input((1, 3, 8, 8)), 96), 96, group=3)
    x = b.op("Reshape", [x, b.numbers(*parted)], parted, 14)
    x = b.op("Transpose", [x], swapped, 13, {"perm": (0, 2, 1, 3, 4)})
    x = b.op("Reshape", [x, b.numbers(*whole)], whole, 14)
    x = b.op("Mul", [b.constant(()), x], whole, 14)
    x = b.conv(b.conv(x, 96, group=96), 96, group=3)
    network = b.network(b.conv(x, 10))
    for factor, width in ((0.25, 24), (0.5, 48), (0.75, 72), (1.0, 96), (1.5, 144)):
        made = scaled(network, factor)
        assert channels(made) == [width] * 4 + [10]
        assert read_network(to_onnx(made, seed=None)).types[made.outputs[0]].shape == (1, 10, 8, 8)


@pytest.mark.parametrize("groups", [4, 8, 16])
def test_channels_are_followed_through_groups_that_are_normalised(groups: int) -> None:
    """GroupNorm, as PyTorch writes it; then attention over channels by a window along them."""
    b = NetworkBuilder()
    map_, grouped = (1, 64, 24, 24), (1, groups, 64 // groups * 576)
    x = b.conv(b.input((1, 3, 24, 24)), 64)
    x = b.op("Reshape", [x, b.numbers(*grouped)], grouped, 14)
    scales = [b.constant((groups,)), b.constant((groups,))]
    x = b.op("InstanceNormalization", [x, *scales], grouped, 6)
    x = b.op("Reshape", [x, b.numbers(*map_)], map_, 14)
    x = b.op("Mul", [x, b.constant((64, 1, 1))], map_, 14)
    mean = b.op("ReduceMean", [x], (1, 64), 13, {"axes": (2, 3), "keepdims": 0})
    mean = b.op("Reshape", [mean, b.numbers(1, 1, 64)], (1, 1, 64), 14)
    window = {"kernel_shape": (3,), "pads": (1, 1)}
    mean = b.op("Conv", [mean, b.constant((1, 1, 3))], (1, 1, 64), 11, window)
    mean = b.op("Reshape", [mean, b.numbers(1, 64, 1, 1)], (1, 64, 1, 1), 14)
    half = scaled(b.network(b.conv(b.op("Mul", [x, mean], map_, 14), 10)), 0.5)
    assert channels(half) == [32, 1, 10]
    assert read_network(to_onnx(half, seed=None)).types[half.outputs[0]].shape == (1, 10, 24, 24)


@pytest.mark.parametrize("factor", [0.3, 0.5])
def test_a_weight_of_several_layers_stays_one(factor: float) -> None:
    """As of a detector's head, which its levels share; one of them is joined of two parts."""
    b = NetworkBuilder()
    shape, weight, ends = (1, 64, 8, 8), b.constant((64, 64, 3, 3)), list[str]()
    x = b.conv(b.input((1, 3, 8, 8)), 64)
    parts = [b.conv(x, channels) for channels in (48, 16)]
    for level in (x, b.op("Concat", parts, shape, 13, {"axis": 1})):
        ends.append(b.conv(b.op("Conv", [level, weight], shape, 11, {"pads": (1, 1, 1, 1)}), 10))
    shared = scaled(normal_form(b.network(*ends)), factor)
    assert [*shared.held_as.values()].count(weight) == 2


def test_what_reads_nothing_and_what_tells_places_beside_hold_no_channels_back() -> None:
    b = NetworkBuilder()
    x = b.conv(b.input((1, 3, 8, 8)), 16)
    window = {"kernel_shape": (2, 2), "strides": (2, 2)}
    x, places = b.op_of_many("MaxPool", [x], [(1, 16, 4, 4)] * 2, 12, window)
    x = b.conv(x, 10)
    x = b.op(
        "Add", [x, b.op("RandomNormal", [], b.shape(x), 1, {"shape": b.shape(x)})], b.shape(x), 14
    )
    made = scaled(b.network(x), 0.5)
    assert channels(made) == [8, 10] and made.types[places].shape == (1, 8, 4, 4)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("TopK", "the channels that TopK"),
        ("Conv", "no channels to scale"),
        ("DequantizeLinear", "the channels that DequantizeLinear"),  # weights in blocks
        ("DynamicQuantizeLinear", "the channels that ConvInteger"),
    ],
)
def test_what_cannot_be_followed_is_refused(op: str, why: str) -> None:
    b = NetworkBuilder()
    x = b.conv(b.input((1, 3, 8, 8)), 16)
    if op == "TopK":
        attributes = {"axis": 1}
        x = b.op_of_many(op, [x, b.numbers(4)], [(1, 4, 8, 8)] * 2, 11, attributes)[0]
    elif op == "DequantizeLinear":
        blocks = [b.constant((16, 16, 3, 3)), b.constant((16, 4, 3, 3))]
        weight = b.op(op, blocks, (16, 16, 3, 3), 21, {"axis": 1, "block_size": 4})
        x = b.op("Conv", [x, weight], (1, 16, 6, 6), 11)
    elif op == "DynamicQuantizeLinear":
        whole, scale, zero = b.op_of_many(op, [x], [(1, 16, 8, 8), (), ()], 11)
        made = b.op("ConvInteger", [whole, b.constant((16, 16, 1, 1)), zero], (1, 16, 8, 8), 10)
        x = b.op("Mul", [made, scale], (1, 16, 8, 8), 14)
    with pytest.raises(NetworkError, match=why):
        scaled(b.network(x), 0.5)


def test_the_scales_of_a_quantised_network_follow_the_channels_that_they_are_of() -> None:
    """Its bias states its values: all are 0 in a file that no one has trained."""
    b = NetworkBuilder()
    x = b.input((1, 3, 8, 8))
    for size in (32, 16):
        weight = [b.constant((size, b.shape(x)[1], 3, 3)), b.constant((size,))]
        zeros = (0,) * size
        bias = [b.constant((size,), values) for values in (zeros, None, zeros)]
        read = b.op("DequantizeLinear", weight, (size, b.shape(x)[1], 3, 3), 13, {"axis": 0})
        added = b.op("DequantizeLinear", bias, (size,), 13)
        x = b.op("Conv", [x, read, added], (1, size, 8, 8), 11, {"pads": (1, 1, 1, 1)})
    network = b.network(b.conv(x, 10))
    assert scaled(network, 1.0) == network
    half = scaled(network, 0.5)
    assert channels(half) == [16, 8, 10]
    assert half.constants[bias[2]].values == (0,) * 8
