"""Files for TensorRT: set 17 gives the same numbers; weights lie in noise files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hybridlat.board.plan import make_files
from hybridlat.engines.tensorrt.lowering import in_half_precision
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Network
from hybridlat.onnx_io import read_network, tensorrt, to_onnx
from tests.networks import NETS, branches, classifier, conv_relu, residual_block

X = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype("float32")
MAKERS = (conv_relu, residual_block, branches, classifier)


def network_of(
    op: str, inputs: dict[str, list[int]], attributes: dict[str, Any], version: int, outputs: int
) -> Network:
    names = [f"y{place}" for place in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *inputs], names, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names],
        [numpy_helper.from_array(np.array(v, dtype="int64"), n) for n, v in inputs.items()],
    )
    return read_network(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)]))


def outputs_of(network: Network) -> list[NDArray[np.float32]]:
    session = ort.InferenceSession(to_onnx(network, 1), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": X}))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "version", "outputs"),
    [
        ("ReduceMean", {"axes": [2, 3]}, {}, 18, 1),
        ("ReduceMean", {"axes": [-1]}, {"keepdims": 0}, 18, 1),
        ("ReduceMax", {}, {}, 18, 1),
        ("ReduceMean", {}, {"noop_with_empty_axes": 1}, 18, 1),
        ("Split", {}, {"axis": 1, "num_outputs": 2}, 18, 2),
        ("Gelu", {}, {}, 20, 1),
        ("Gelu", {}, {"approximate": "tanh"}, 20, 1),
        ("Mish", {}, {}, 18, 1),
        ("Pad", {"pads": [0, 0, 1, 1, 0, 0, 1, 1]}, {}, 19, 1),
    ],
)
def test_the_numbers_stay(
    op: str, inputs: dict[str, list[int]], attributes: dict[str, Any], version: int, outputs: int
) -> None:
    network = network_of(op, inputs, attributes, version, outputs)
    lowered = tensorrt.readable(network)
    assert max(node.version for node in lowered.nodes) <= 17
    assert onnx.load_model_from_string(to_onnx(lowered, 1)).opset_import[0].version <= 17
    for before, after in zip(outputs_of(network), outputs_of(lowered), strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "attributes", "version"),
    [
        ("RMSNormalization", {"scale": [1, 1, 1, 1, 1, 1]}, 23),
        ("Swish", {"alpha": 2.0}, 24),
        ("QuantizeLinear", {"scale": [1], "output_dtype": 2}, 21),
    ],
)
def test_what_17_cannot_say_is_refused_by_name(
    op: str, attributes: dict[str, Any], version: int
) -> None:
    """A newer set would be read as 17: ReduceMean of 18 without its axes."""
    inputs = ["x", *[name for name in attributes if name == "scale"]]
    scale = attributes.pop("scale", [])
    made = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["x", "axes"], ["m"]),
            helper.make_node(op, inputs, ["y"], **attributes),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in "my"],
        [
            numpy_helper.from_array(np.array([2], dtype="int64"), "axes"),
            numpy_helper.from_array(np.array(scale, dtype="float32"), "scale"),
        ],
    )
    opsets = [helper.make_opsetid("", version)]
    network = read_network(helper.make_model(made, opset_imports=opsets))
    with pytest.raises(
        MeasurementError, match=f"{op} '.*' of operator set .* cannot be written in"
    ):
        tensorrt.readable(network)


def test_swish_and_grid_samples_are_said_in_17() -> None:
    swish = tensorrt.readable(network_of("Swish", {}, {}, 24, 1))
    assert [node.op for node in swish.nodes] == ["Sigmoid", "Mul"]
    made = helper.make_graph(
        [helper.make_node("GridSample", ["x", "g"], ["y"], mode="cubic")],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape),
            helper.make_tensor_value_info("g", TensorProto.FLOAT, (1, 5, 5, 2)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)])
    (node,) = tensorrt.readable(read_network(model)).nodes
    assert (node.version, node.attribute("mode")) == (16, "bicubic")


@pytest.mark.parametrize("path", sorted(NETS.glob("*.onnx"))[::3], ids=lambda p: p.stem)
def test_the_projects_networks_can_all_be_read_by_tensorrt_8_6(path: Path) -> None:
    content, _ = tensorrt.prepare(read_network(path))
    model = onnx.load_model_from_string(content)
    assert next(o.version for o in model.opset_import if not o.domain) <= 17
    assert model.ir_version <= 8
    for node in model.graph.node:
        assert not (node.op_type == "ReduceMean" and len(node.input) > 1), node.name
        assert node.op_type != "Gelu"


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_an_engine_reads_noise_files(
    make: Callable[[], Network], half: bool, tmp_path: Path
) -> None:
    network = in_half_precision(make()) if half else make()
    content, sizes = tensorrt.prepare(network)
    assert len(content) < 20_000
    for name in sizes:
        (tmp_path / "blocks").mkdir(exist_ok=True)
        (tmp_path / "blocks" / name).write_bytes(tensorrt.block(name))
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


@pytest.mark.parametrize("make", MAKERS)
def test_no_two_weights_of_a_file_start_at_one_place(make: Callable[[], Network]) -> None:
    content, sizes = tensorrt.prepare(make())
    starts = []
    for tensor in onnx.load_model_from_string(content).graph.initializer:
        entry = {e.key: e.value for e in tensor.external_data}
        if entry:
            starts.append((entry["location"], entry["offset"]))
            assert int(entry["offset"]) + int(entry["length"]) <= sizes[entry["location"]]
    assert starts and len(set(starts)) == len(starts)


def test_blocks_of_noise_are_the_same_each_time() -> None:
    assert tensorrt.block("f32_b.bin") == tensorrt.block("f32_b.bin")
    assert len(tensorrt.block("f16_w3.bin")) == 2 * tensorrt.BLOCK
