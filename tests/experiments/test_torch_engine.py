"""The PyTorch engine's operators against ONNX Runtime, one tiny network each; skips without torch.

What is refused is refused by name, before anything runs.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hybridlat import board, onnx_io
from hybridlat.board import engines

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = ROOT / "experiments" / "torch_engine"
board.__path__.append(str(EXPERIMENT))  # a plan is sent with both in one folder
onnx_graph = importlib.import_module("hybridlat.board.onnx_graph")
torch_ops = importlib.import_module("hybridlat.board.torch_ops")
torch_shapes = importlib.import_module("hybridlat.board.torch_shapes")
NETS = Path(__file__).resolve().parents[2] / "data" / "nets"
IMAGE = (1, 4, 6, 6)
RNG = np.random.default_rng(0)


def test_it_is_offered_beside_the_others() -> None:
    assert engines.names() == ["onnxruntime", "tensorrt", "torch"]


@pytest.mark.parametrize("path", sorted(EXPERIMENT.glob("*.py")), ids=lambda p: p.name)
def test_syntax_is_that_of_python_3_6(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 6))


def w(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def i(*values: int) -> np.ndarray:
    return np.array(values, dtype="int64")


def f(*values: float) -> np.ndarray:
    return np.array(values, dtype="float32")


Case = tuple[str, tuple[int, ...], list[NDArray[Any]], dict[str, Any], int]
# operator, shape of its data, its other inputs, attributes, operator set
CASES: list[Case] = [
    ("Conv", IMAGE, [w(5, 4, 3, 3), w(5)], {"pads": [1, 0, 0, 1], "strides": [2, 2]}, 17),
    ("ConvTranspose", IMAGE, [w(4, 3, 2, 2), w(3)], {"strides": [2, 2]}, 17),
    ("ConvTranspose", IMAGE, [w(4, 2, 3, 3)],
     {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1], "group": 2}, 17),
    ("MaxPool", IMAGE, [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, 17),
    ("MaxPool", IMAGE, [], {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}, 17),
    ("AveragePool", IMAGE, [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 17),
    ("AveragePool", IMAGE, [], {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1]}, 17),
    ("AveragePool", IMAGE, [],
     {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1], "count_include_pad": 1}, 17),
    ("Gemm", (3, 4), [w(5, 4), w(5)], {"transB": 1, "alpha": 0.5, "beta": 2.0}, 17),
    ("InstanceNormalization", IMAGE, [w(4), w(4)], {"epsilon": 1e-3}, 17),
    ("LayerNormalization", (2, 5, 4), [w(4), w(4)], {"axis": -1}, 17),
    ("Gelu", IMAGE, [], {}, 20),
    ("Gelu", IMAGE, [], {"approximate": "tanh"}, 20),
    ("ReduceSum", IMAGE, [i(2, 3)], {"keepdims": 0}, 17),
    ("ReduceSum", IMAGE, [], {}, 17),
    ("ReduceMean", IMAGE, [], {"axes": [2, 3]}, 17),
    ("ReduceMax", IMAGE, [], {"axes": [1]}, 17),
    ("Clip", IMAGE, [f(-0.5).reshape(()), f(0.5).reshape(())], {}, 17),
    ("Slice", IMAGE, [i(1, -4), i(3, 9999), i(1, 3), i(1, 2)], {}, 17),
    ("Pad", IMAGE, [i(0, 0, 1, 2, 0, 0, 3, 0), f(0.5).reshape(())], {}, 17),
    ("Pad", IMAGE, [i(0, 0, 1, 2, 0, 0, 3, 0)], {"mode": "reflect"}, 17),
    ("Pad", IMAGE, [i(0, 0, 1, 2, 0, 0, 3, 0)], {"mode": "edge"}, 17),
    ("Resize", IMAGE, [f(), f(1, 1, 2, 2)],
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
     17),
    ("Resize", IMAGE, [f(), f(), i(1, 4, 9, 12)], {"mode": "linear"}, 17),
    ("Resize", IMAGE, [f(), f(), i(1, 4, 9, 12)],
     {"mode": "linear", "coordinate_transformation_mode": "align_corners"}, 17),
    ("Gather", IMAGE, [np.array(2)], {"axis": 1}, 17),
    ("Gather", IMAGE, [i(3, 0, -1)], {"axis": 1}, 17),
    ("Gather", (70,), [np.arange(70).reshape(1, 70, 1)[:, ::-1].copy()], {"axis": 0}, 17),
    ("DepthToSpace", IMAGE, [], {"blocksize": 2}, 17),
    ("DepthToSpace", IMAGE, [], {"blocksize": 2, "mode": "CRD"}, 17),
    ("SpaceToDepth", IMAGE, [], {"blocksize": 2}, 17),
    ("Unsqueeze", (4, 6), [i(0, 3)], {}, 17),
    ("Squeeze", (1, 4, 1), [i(0)], {}, 17),
    ("Expand", (4, 1), [i(2, 4, 3)], {}, 17),
    ("Tile", (4, 1), [i(2, 3)], {}, 17),
    ("Reshape", IMAGE, [i(0, -1, 12)], {}, 17),
    ("Flatten", IMAGE, [], {"axis": 2}, 17),
    ("Transpose", IMAGE, [], {"perm": [0, 2, 3, 1]}, 17),
    ("Shape", IMAGE, [], {"start": 1}, 17),
    ("Softmax", IMAGE, [], {"axis": 1}, 17),
    ("LRN", IMAGE, [], {"size": 3, "alpha": 0.1, "beta": 0.7, "bias": 1.5}, 17),
    ("PRelu", IMAGE, [w(4, 1, 1)], {}, 17),
    ("HardSwish", IMAGE, [], {}, 17),
    ("HardSigmoid", IMAGE, [], {"alpha": 0.3}, 17),
    ("Mish", IMAGE, [], {}, 18),
    ("Elu", IMAGE, [], {"alpha": 0.5}, 17),
    ("Softplus", IMAGE, [], {}, 17),
    ("Max", IMAGE, [w(*IMAGE)], {}, 17),
    ("Cast", IMAGE, [], {"to": TensorProto.INT32}, 17),
]  # fmt: skip


def model(
    op: str,
    shape: tuple[int, ...],
    others: list[NDArray[Any]],
    attributes: dict[str, Any],
    opset: int,
) -> bytes:
    names = [f"w{place}" for place in range(len(others))]
    weights = [numpy_helper.from_array(v, n) for n, v in zip(names, others, strict=True)]
    if op == "Resize":  # an empty tensor stands for an input that is left out
        names = ["" if not v.size else n for n, v in zip(names, others, strict=True)]
    node = helper.make_node(op, ["x", *names], ["y"], **attributes)
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    kind = {"Cast": TensorProto.INT32, "Shape": TensorProto.INT64}.get(op, TensorProto.FLOAT)
    graph = helper.make_graph(
        [node], "g", [data], [helper.make_tensor_value_info("y", kind, None)],
        [t for t in weights if t.name in names],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(made.SerializeToString())


def values_of(read: Any, torch: Any, x: NDArray[Any]) -> dict[str, Any]:
    engine = engines.open_engine("torch", {})
    here = torch_shapes.parameters(read.nodes)
    result = {
        name: engine._tensor(fields, "", False, name in here)  # type: ignore[attr-defined]
        for name, fields in read.initializers.items()
    }
    return {**result, "x": torch.from_numpy(x)}


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{sorted(c[3])}")
def test_an_operator_gives_what_onnx_runtime_gives(case: Case) -> None:
    torch = pytest.importorskip("torch")
    ort = pytest.importorskip("onnxruntime")
    data = model(*case)
    x = RNG.standard_normal(case[1]).astype("float32")
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})[0]
    read = onnx_graph.Model(data)
    got = torch_ops.run(torch, read.nodes, values_of(read, torch, x))["y"].numpy()
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_what_is_missing_is_named_before_anything_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "m.onnx").write_bytes(model("Einsum", (2, 3), [], {"equation": "ij->ji"}, 17))
    engine = engines.open_engine("torch", {})
    with pytest.raises(board.EngineError, match="the PyTorch engine has no Einsum"):
        engine.build(engines.Request("k", str(tmp_path / "m.onnx"), "", "fp32", 1, False))


def test_attributes_that_are_not_there_are_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for op, others, attributes, words in (
        ("Conv", [w(5, 4, 3, 3)], {"auto_pad": "SAME_UPPER"}, "no Conv with auto_pad"),
        ("Slice", [i(3), i(0), i(1), i(-1)], {}, "no Slice with a step below 1"),
        ("Resize", [f(), f(1, 1, 1.5, 1.5)], {"mode": "cubic"}, "no Resize with mode cubic"),
    ):
        read = onnx_graph.Model(model(op, IMAGE, others, attributes, 17))
        with pytest.raises(board.EngineError, match=words):
            torch_ops.run(torch, read.nodes, values_of(read, torch, w(*IMAGE)))


@pytest.mark.parametrize("path", sorted(NETS.glob("*.onnx")), ids=lambda p: p.stem)
def test_every_operator_of_the_networks_is_there(path: Path) -> None:
    network = onnx_io.read_network(path)
    read = onnx_graph.Model(onnx_io.to_onnx(network, None))
    lacks = [op for op in torch_ops.missing(read.nodes) if op != "ConstantOfShape"]
    assert lacks == []
