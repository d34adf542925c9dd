"""ONNX Runtime: what it makes of networks, and the sessions that are measured."""

import platform
import random
import subprocess
import sys
from dataclasses import replace

import onnx
import pytest

from hybridlat.engines import registry
from hybridlat.engines.fusion.precision import in_precision
from hybridlat.engines.ort.lowering import context_of
from hybridlat.engines.ort.session import OnnxRuntimeBackend
from hybridlat.errors import MeasurementError
from hybridlat.graph.cells import cut
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import read, sign
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.engines.test_backends import assert_accounted
from tests.networks import NETS, Builder, normal_form, residual_block

NAMES = ("squeezenet", "mobilenetv3_small_100", "shufflenet", "resnet18", "inception_v1", "unet")

HERE = Target("here", "onnxruntime", "fp32", 1)


def lower(network: Network) -> Lowered:
    return registry.lower(network, HERE)


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_is_in_one_kernel_or_removed(name: str) -> None:
    network = read_network(NETS / f"{name}.onnx")
    lowered = lower(network)
    assert_accounted(network, lowered)
    cells = cut(lowered, network)
    assert sorted(p for c in cells for p in c.positions) == list(range(len(lowered.network.nodes)))
    # A cell hands one tensor on; only the last may hand on more, to the outside.
    assert all(len(c.network.outputs) == 1 for c in cells[:-1])


def test_kernels_behind_conversions_of_the_engine_hold_their_operators() -> None:
    """On a CPU it computes a file of half precision in FP32, under names of its own."""
    network = in_precision(residual_block(32, 32), "float16")
    lowered = lower(network)
    assert_accounted(network, lowered)
    labels = [label for cell in cut(lowered, network) for label in cell.ops]
    assert {"Conv+Relu", "Conv", "Add", "Relu"} <= {*labels}


def test_cells_are_signed_alike_whatever_the_order_of_the_file() -> None:
    model = onnx.load(NETS / "inception_v1.onnx")
    expected = sorted(sign(c.network).hash for c in cut(lower(read_network(model))))
    places = random.Random(5)
    model.graph.node.sort(key=lambda _: places.random())
    assert sorted(sign(c.network).hash for c in cut(lower(read_network(model)))) == expected


def test_a_cell_is_rebuilt_and_run_from_its_signature_alone() -> None:
    network = read_network(NETS / "squeezenet.onnx")
    backend = OnnxRuntimeBackend()
    for cell in cut(lower(network))[:6]:
        rebuilt = read(sign(cell.network).text)
        with backend.build(rebuilt, seed=1, lowered=True) as session:
            assert all(sample > 0 for sample in session.run_us(3))


def test_the_context_says_how_large_the_network_is() -> None:
    def network(channels: int) -> Builder:
        net = Builder("n")
        net.conv(net.input((1, channels, 4, 4)), channels)
        return net

    small, medium, large = (network(c).network("v0") for c in (64, 512, 1024))
    assert [context_of(n) for n in (small, medium, large)] == ["small", "medium", ""]
    heads, shape = Builder("heads"), (1, 256, 4, 4)
    x, weight = heads.input(shape), heads.weight((256, 256, 1, 1))
    for _ in range(20):  # it is in the file once
        x = heads.op("Conv", [x, weight], shape, 11)
    assert context_of(normal_form(heads.network())) == "small"
    cells = [cut(lower(n))[0].network for n in (small, large)]
    assert [c.context for c in cells] == ["small", ""]
    assert read(sign(cells[0]).text).context == "small"
    other = sign(replace(cells[0], context="")).hash
    assert other != sign(cells[0]).hash


def test_a_refusal_is_in_the_engine_s_words() -> None:
    net = Builder("odd")
    refused = net.network(net.op("NoSuchOp", [net.input((1, 4))], (1, 4)))
    with pytest.raises(MeasurementError, match="NoSuchOp"):
        lower(refused)


CHILD = """
import numpy as np
from hybridlat.engines.ort.session import OnnxRuntimeBackend
from tests.networks import classifier

def product():
    return float((np.full(64, 1e-30, np.float32) * np.float32(1e-10))[0])

before = product()
backend = OnnxRuntimeBackend(threads=1)
backend.build(classifier(8), seed=1, lowered=False).run_us(1)
print(before > 0, product() == 0)
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="ONNX Runtime does so on x86 alone"
)
def test_sessions_that_are_measured_take_denormals_for_zero() -> None:
    """Made-up weights may produce denormals, which would slow a measurement down.

    Arithmetic of a thread that has such a session takes them for zero, on CPUs that can.
    """
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")
