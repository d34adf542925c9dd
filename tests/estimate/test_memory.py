"""What a network needs of a device's memory, by hand and by what must always hold."""

from pathlib import Path

import pytest
from hypothesis import given

from hybridlat import predict
from hybridlat.engines import device_sheets
from hybridlat.estimate import memory
from hybridlat.estimate.memory import memory_of
from hybridlat.graph.builder import NetworkBuilder
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import read_network, to_onnx
from hybridlat.schema.target import Target
from tests.networks import ROOT
from tests.strategies import networks

ORT, TRT = Target("here", "onnxruntime", "fp32", 1), Target("l4", "tensorrt", "fp32")
MAP = 4 * 8 * 16 * 16  # bytes of a map of 8 channels
GB = 1 << 30


def footprint(network: Network, target: Target) -> tuple[int, int]:
    """Of a network that is its own lowering."""
    origins = tuple((i,) for i in range(len(network.nodes)))
    return memory.footprint(Lowered(network, origins, (), "itself"), target, network)


def chain() -> Network:
    """Input, three convolutions with a shortcut around the last, a view: 2, then 3 maps live."""
    b = NetworkBuilder()
    shape = (1, 8, 16, 16)
    first = b.conv(b.conv(b.input(shape), 8), 8)
    last = b.op("Relu", [b.op("Add", [b.conv(first, 8), first], shape, 14)], shape, 14)
    flat = b.op("Reshape", [last, b.numbers(1, -1)], (1, 2048), 14)
    return b.network(b.op("Gemm", [flat, b.constant((2048, 10))], (1, 10), 13))


def mapped(ops: str) -> Network:
    """Operators on maps of 32 x 64, the first and the last of three axes."""
    b = NetworkBuilder()
    shape: tuple[int, ...] = (1, 32, 64)
    x = b.input(shape)
    for op in ops.split():
        before, name = x, op.rstrip("+")
        if name == "View":
            shape = (32, 64) if len(shape) == 3 else (1, 32, 64)
            x = b.op("Reshape", [x, b.numbers(*shape)], shape, 14)
        elif name in ("MatMul", "Widen", "Widened", "Narrow"):
            out = 256 if name.startswith("Wide") else 64
            weight = b.constant((shape[-1], out))
            shape = (*shape[:-1], out)
            x = b.op("MatMul", [x, weight], shape, 13)
        else:
            x = b.op(name, [x], shape, 13)
        x = b.op("Add", [before, x], shape, 14) if op.endswith("+") else x
    return b.network(x)


def test_tensors_live_from_their_maker_to_their_last_reader() -> None:
    weights, activations = footprint(chain(), TRT)
    assert weights == 4 * (3 * 8 * 8 * 9 + 2048 * 10) + 2 * 8  # two int64 of the shape
    assert activations == MAP + 4 * 10 + 2 * MAP  # the caller's, and two: all else is in place
    assert footprint(chain(), ORT) == (weights, activations + MAP)  # no sum is in place


def test_weights_that_two_branches_share_are_held_once() -> None:
    """As those of a Siamese network are, and a mask that every block adds."""
    b = NetworkBuilder()
    weight, mask = b.constant((8, 3, 3, 3)), b.constant((1, 1, 16, 16))
    images = [b.input((1, 3, 16, 16)) for _ in range(2)]
    for place, image in enumerate(images):
        image = b.op("Conv", [image, weight], (1, 8, 16, 16), 11, {"pads": (1, 1, 1, 1)})
        images[place] = b.op("Add", [image, mask], (1, 8, 16, 16), 14)
    network = read_network(to_onnx(b.network(*images), seed=None))
    assert len(network.constants) == 4
    for target in (TRT, ORT):
        assert footprint(network, target)[0] == 4 * (8 * 3 * 9 + 16 * 16)


@pytest.mark.parametrize(
    ("precision", "weights", "activations"),
    [("fp16", 0.5, 0.5), ("int8", 0.25, 0.25), ("tf32", 1, 1), ("amp", 1.5, 0.5)],
)
def test_floats_count_by_the_precision(precision: str, weights: float, activations: float) -> None:
    whole = footprint(chain(), TRT)
    found = footprint(chain(), Target("l4", "tensorrt", precision))
    assert found[0] == pytest.approx(weights * whole[0], rel=2e-3)
    assert found[1] == activations * whole[1]
    kept = footprint(chain(), Target("here", "onnxruntime", precision, 1))
    assert kept == footprint(chain(), ORT)


def test_autocast_copies_no_whole_numbers() -> None:
    b = NetworkBuilder()
    packed, scales = b.constant((64, 2, 16), dtype="uint8"), b.constant((128,))
    attributes = {"K": 64, "N": 64, "bits": 4, "block_size": 32}
    read = [b.input((4, 64)), packed, scales]
    network = b.network(b.op("MatMulNBits", read, (4, 64), 1, attributes, "com.microsoft"))
    assert footprint(network, Target("l4", "torch", "amp"))[0] == 64 * 64 / 2 + 128 * 6


@pytest.mark.parametrize(
    ("ops", "maps"),
    [
        ("MatMul Softmax Relu MatMul", 1),  # in place
        ("MatMul Exp MatMul", 2),
        ("MatMul MatMul+ MatMul", 3),  # + adds what was read: no sum is in place
        ("MatMul View Softmax View MatMul", 1),
        ("MatMul View Softmax+ View MatMul", 3),
        ("Widen Narrow View MatMul", 5),
        ("Widen Narrow View Widen Widened Narrow View MatMul", 8),
        ("Widen Narrow View Widen Widened Narrow View MatMul MatMul", 9),  # its block lives on
    ],
)
def test_onnx_runtime_plans_as_many_maps(ops: str, maps: int) -> None:
    """Each figure is what the arena of ONNX Runtime 1.32 grew by for these operators."""
    assert footprint(mapped(ops), ORT)[1] - 2 * MAP == maps * MAP


@given(networks())
def test_no_plan_is_below_what_lives_or_above_all_tensors(network: Network) -> None:
    live, planned = (footprint(network, target)[1] for target in (TRT, ORT))
    each = [network.type_of(name).bytes for name in network.types]
    assert max(each) <= live <= planned <= sum(each)


@pytest.mark.parametrize(
    ("device", "megabytes", "verdict"),
    [("l4", 100, "fits"), ("jetson-nano", 100, "fits"), ("jetson-nano", 3500, "tight"),
     ("jetson-nano", 4500, "too large"), ("l4", 23_000, "tight"), ("epyc-26-2", 100, None)],
)  # fmt: skip
def test_what_is_too_large_says_so(device: str, megabytes: int, verdict: str | None) -> None:
    sheet = device_sheets.load(device) if device in device_sheets.names() else None
    target = Target(device, "tensorrt", "fp16")
    assert memory_of((0, megabytes << 20), target, sheet).verdict == verdict


def test_jetsons_share_their_memory_and_only_they() -> None:
    for sheet in map(device_sheets.load, device_sheets.names()):
        assert sheet.shares_memory == ("Jetson" in sheet.title or sheet.name == "gb10"), sheet.name


def test_an_estimate_has_it_also_where_the_partition_is_cached(tmp_path: Path) -> None:
    path, target = ROOT / "data/nets/squeezenet.onnx", "epyc-26-2/onnxruntime-1.31/fp32/1t"
    first, again = (
        predict(path, target, store=f"{tmp_path}/s.db", measure="never").memory for _ in range(2)
    )
    assert first == again and first is not None
    assert first.weights_bytes == pytest.approx(4_958_400, rel=0.02)
    assert first.activations_bytes > 3_928_576  # planned by ONNX Runtime, without the caller's
