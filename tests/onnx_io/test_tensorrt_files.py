"""Files for TensorRT: set 17 gives the same numbers; weights lie in noise files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from hybridlat.board.plan import make_files
from hybridlat.engines.fusion.precision import in_precision
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Network
from hybridlat.onnx_io import read_network, tensorrt, to_onnx
from tests.networks import branches, classifier, conv_relu, residual_block
from tests.onnx_io.test_reading_shapes import model

X = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype("float32")


def normed() -> Network:
    """Weights of every class: scales and variances, shifts, a matrix."""
    vectors = {name: (1, [32]) for name in "sbmv"}
    weights = vectors | {"g": (1, [1, 32, 1, 1]), "w": (1, [6, 6])}
    body = "n = BatchNormalization(x, s, b, m, v)  t = Mul(n, g)  y = MatMul(t, w)"
    return read_network(model(f"g (float[1,32,6,6] x) => (y) {{ {body} }}", weights))


MAKERS = (conv_relu, residual_block, branches, classifier, normed)


def network_of(body: str, opset: int, inputs: str = "") -> Network:
    return read_network(model(f"g (float[1,4,6,6] x{inputs}) => (y) {body}", opset=opset))


def outputs_of(network: Network) -> list[NDArray[np.float32]]:
    session = ort.InferenceSession(to_onnx(network, 1), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": X}))


@pytest.mark.parametrize(
    ("body", "opset"),
    [
        ("<int64[2] a = {2, 3}> { y = ReduceMean(x, a) }", 18),
        ("<int64[1] a = {-1}> { y = ReduceMean<keepdims=0>(x, a) }", 18),
        ("{ y = ReduceMax(x) }", 18),
        ("{ y = ReduceMean<noop_with_empty_axes=1>(x) }", 18),
        ("{ a, b = Split<axis=1, num_outputs=2>(x)  y = Sub(a, b) }", 18),
        ("{ y = Gelu(x) }", 20),
        ('{ y = Gelu<approximate="tanh">(x) }', 20),
        ("{ y = Mish(x) }", 18),
        ("<int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}> { y = Pad(x, p) }", 19),
    ],
)
def test_the_numbers_stay(body: str, opset: int) -> None:
    network = network_of(body, opset)
    lowered = tensorrt.readable(network)
    assert max(node.version for node in lowered.nodes) <= 17
    assert onnx.load_model_from_string(to_onnx(lowered, 1)).opset_import[0].version <= 17
    for before, after in zip(outputs_of(network), outputs_of(lowered), strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "opset"),
    [
        ("RMSNormalization(m, s)", 23),
        ("Swish<alpha=2.0>(m)", 24),
        ("QuantizeLinear<output_dtype=2>(m, s)", 21),
    ],
)
def test_what_17_cannot_say_is_refused_by_name(op: str, opset: int) -> None:
    """A newer set would be read as 17: ReduceMean of 18 without its axes."""
    constants = "<int64[1] a = {2}, float[1] s = {1.0}>"
    network = network_of(f"{constants} {{ m = ReduceMean(x, a)  y = {op} }}", opset)
    name = op.partition("<")[0].partition("(")[0]
    words = f"{name} '.*' of operator set .* cannot be written in"
    with pytest.raises(MeasurementError, match=words):
        tensorrt.readable(network)


def test_swish_and_grid_samples_are_said_in_17() -> None:
    swish = tensorrt.readable(network_of("{ y = Swish(x) }", 24))
    assert [node.op for node in swish.nodes] == ["Sigmoid", "Mul"]
    body = '{ y = GridSample<mode="cubic">(x, places) }'
    (node,) = tensorrt.readable(network_of(body, 20, ", float[1,5,5,2] places")).nodes
    assert (node.version, node.attribute("mode")) == (16, "bicubic")


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_engines_read_noise_files(make: Callable[[], Network], half: bool, tmp_path: Path) -> None:
    network = in_precision(make(), "float16") if half else make()
    content, sizes = tensorrt.prepare(network)
    assert len(content) < 20_000
    places = []
    for tensor in onnx.load_model_from_string(content).graph.initializer:
        if entry := {e.key: e.value for e in tensor.external_data}:
            places.append((entry["location"], entry["offset"]))
            assert int(entry["offset"]) + int(entry["length"]) <= sizes[entry["location"]]
    assert places and len(set(places)) == len(places)  # no two start at one place
    for name in sizes:
        (tmp_path / "blocks").mkdir(exist_ok=True)
        (tmp_path / "blocks" / name).write_bytes(block := tensorrt.block(name))
        assert len(block) == tensorrt.BLOCK * (2 if half else 4) and block == tensorrt.block(name)
    make_files(str(tmp_path / "blocks"), str(tmp_path), sizes)
    (tmp_path / "model.onnx").write_bytes(content)
    session = ort.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    type_ = np.float16 if half else np.float32
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(network.types[n].shape).astype(type_) for n in network.inputs}
    for result in session.run(None, feeds):
        assert result.dtype == type_
        assert np.isfinite(result).all()
        assert result.std() > 0
