"""Newer operator sets written in 17: the same numbers under ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hybridlat import onnx_io
from hybridlat.onnx_io import tensorrt

NETS = Path(__file__).resolve().parents[2] / "data" / "nets"
X = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype("float32")


def made(
    op: str,
    inputs: dict[str, list[int]],
    attributes: dict[str, Any],
    version: int,
    outputs: int = 1,
) -> bytes:
    names = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, ["x", *inputs], names, **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names],
        [numpy_helper.from_array(np.array(v, dtype="int64"), n) for n, v in inputs.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", version)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def outputs_of(data: bytes) -> list[NDArray[np.float32]]:
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
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
        ("Pad", {"pads": [0, 0, 1, 1, 0, 0, 1, 1]}, {}, 19, 1),
    ],
)
def test_the_numbers_stay(
    op: str, inputs: dict[str, list[int]], attributes: dict[str, Any], version: int, outputs: int
) -> None:
    data = made(op, inputs, attributes, version, outputs)
    lowered = tensorrt.readable(data)
    assert onnx.load_model_from_string(lowered).opset_import[0].version == 17
    for before, after in zip(outputs_of(data), outputs_of(lowered), strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "attributes", "version"),
    [("Mish", {}, 18), ("Gelu", {"approximate": "tanh"}, 20)],
)
def test_what_17_cannot_say_is_left_as_it_is(
    op: str, attributes: dict[str, Any], version: int
) -> None:
    data = made(op, {}, attributes, version)
    assert tensorrt.readable(data) == data
    assert not tensorrt.lower(onnx.load_model_from_string(data))


@pytest.mark.parametrize("path", sorted(NETS.glob("*.onnx")), ids=lambda p: p.stem)
def test_the_projects_networks_can_all_be_read_by_tensorrt_8_6(path: Path) -> None:
    content, _ = tensorrt.prepare(onnx_io.to_onnx(onnx_io.read_network(path), None))
    model = onnx.load_model_from_string(content)
    assert next(o.version for o in model.opset_import if not o.domain) <= 17
    assert model.ir_version <= 8
    for node in model.graph.node:
        assert not (node.op_type == "ReduceMean" and len(node.input) > 1), node.name
        assert node.op_type != "Gelu"
