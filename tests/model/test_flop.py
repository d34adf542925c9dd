"""The work of fused kernels is that of their operators."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from experiments.public_data.kernel_tables import kernel_rows, unfused
from hybridlat.engines import registry
from hybridlat.engines.tensorrt import lowering as tensorrt
from hybridlat.graph.network import Network
from hybridlat.model.geometry import COLUMN
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.networks import NETS, Builder

PUBLIC = Path(__file__).resolve().parents[3] / "shared/data/gpu_networks/nets.tar.gz"
TARGETS = [
    Target.parse(name)
    for name in ("l4/tensorrt/fp16", "l4/torch-compile-2.9/amp", "l4/torch-2.4/fp32")
]
# A chain of pointwise operators counts once when it is fused: up to a twentieth of a small network.
TOLERANCE = 0.05


def _flop(network: Network) -> np.ndarray:
    """Of each operator of the file."""
    return kernel_rows(unfused(network)).column("flop")


def _ratio(network: Network, operators: np.ndarray, target: Target) -> float:
    """FLOP of the fused kernels over those of the operators that they hold."""
    lowered = registry.lower(network, target)
    held = sorted({i for origins in lowered.origins for i in origins})
    return float(kernel_rows(lowered).column("flop").sum() / operators[held].sum())


@pytest.fixture(scope="module")
def read() -> dict[str, tuple[Network, np.ndarray]]:
    """The shipped networks with the FLOP of their operators."""
    networks = {path.stem: read_network(path) for path in NETS.glob("*.onnx")}
    assert len(networks) >= 60
    return {name: (network, _flop(network)) for name, network in networks.items()}


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_networks_keep_their_work_when_they_are_fused(
    target: Target, read: dict[str, tuple[Network, np.ndarray]]
) -> None:
    ratios = {name: _ratio(*one, target) for name, one in read.items()}
    assert {name: r for name, r in ratios.items() if abs(r - 1) > TOLERANCE} == {}


@pytest.mark.skipif(not PUBLIC.exists(), reason="needs the public data in ../shared/data")
@pytest.mark.parametrize(
    "name", ["torchvision__efficientnet_b0__2144x3840", "torchvision__regnet_y_400mf__480x640",
             "sg_ppyoloe_s", "sg_regseg48", "convnext_tiny"],
)  # fmt: skip
def test_networks_of_others_keep_theirs(name: str) -> None:
    with tarfile.open(PUBLIC) as archive:
        member = archive.extractfile(f"nets/{name}.onnx")
        assert member is not None
        network = read_network(io.BytesIO(member.read()).getvalue())
    assert _ratio(network, _flop(network), TARGETS[0]) == pytest.approx(1, abs=TOLERANCE)


def test_a_pooling_beside_its_map_reads_each_element_once() -> None:
    net = Builder()
    x = net.input((1, 64, 112, 112))
    swish = net.op("Mul", [x, net.op("Sigmoid", [x], (1, 64, 112, 112), 13)], (1, 64, 112, 112), 14)
    mean = net.op("GlobalAveragePool", [swish], (1, 64, 1, 1), 1)
    network = net.network(net.op("Mul", [swish, mean], (1, 64, 112, 112), 14))
    kernels = kernel_rows(registry.lower(network, TARGETS[0]))
    pools = [i for i in range(kernels.cells) if "GlobalAveragePool" in kernels.op(i)]
    assert len(pools) == 1
    row = kernels.values[pools[0]]
    assert row[COLUMN["flop"]] == 64 * 112 * 112
    assert row[COLUMN["m"]] == 64
    assert row[COLUMN["k"]] == 112 * 112


def test_a_convolution_behind_a_transpose_is_a_convolution() -> None:
    net = Builder()
    x = net.input((1, 56, 56, 96))
    turned = net.op("Transpose", [x], (1, 96, 56, 56), 13, {"perm": (0, 3, 1, 2)})
    y = net.op(
        "Conv", [turned, net.weight((96, 1, 7, 7))], (1, 96, 56, 56), 11,
        {"kernel_shape": (7, 7), "pads": (3, 3, 3, 3), "group": 96},
    )  # fmt: skip
    network = net.network(y)
    kernels = kernel_rows(tensorrt.lower(network, Target.parse("l4/tensorrt-rtx/fp16")))
    assert kernels.cells == 1
    row = kernels.values[0]
    assert row[COLUMN["flop"]] == 2 * 49 * 96 * 56 * 56
    assert row[COLUMN["c_in"]] == row[COLUMN["groups"]] == 96


def test_convolutions_that_run_as_one_count_the_channels_of_both() -> None:
    b = Builder("twins")
    x = b.input((1, 64, 28, 28))
    net = b.network(b.conv(x, 96, 1), b.conv(x, 32, 1))
    lowered = registry.lower(net, Target.parse("l4/tensorrt/fp16"))
    rows = kernel_rows(lowered)
    assert len(rows.values) == 1
    assert [rows.column(c)[0] for c in ("c_out", "n", "flop")] == [128, 128, 2 * 784 * 64 * 128]


def test_a_scale_of_each_channel_is_no_second_convolution() -> None:
    b = Builder("scaled")
    made = b.conv(b.input((1, 64, 28, 28)), 64, 1)
    scaled = b.op("Mul", [made, b.weight((1, 64, 1, 1))], (1, 64, 28, 28), 14)
    net = b.network(b.conv(scaled, 32))
    lowered = tensorrt.lower(net, Target.parse("l4/tensorrt-rtx/int8"))
    assert [node.op for node in lowered.network.nodes] == ["Conv+Mul", "Conv"]
    assert [kernel_rows(lowered).column(c)[0] for c in ("c_out", "n")] == [64, 64]
