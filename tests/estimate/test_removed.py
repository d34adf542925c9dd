"""Every operator of a file is in exactly one cell or named as removed; constants are a count."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from hybridlat import onnx_io, predict

NETS = Path(__file__).resolve().parents[2] / "data" / "nets"
L4 = "l4/tensorrt/fp16"


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "mobilenetv2_100"])
@pytest.mark.parametrize("target", [L4, "l4/torch-compile-2.9/amp"])
def test_every_operator_is_somewhere_exactly_once(name: str, target: str, tmp_path: Path) -> None:
    path = NETS / f"{name}.onnx"
    estimate = predict(path, target, store=str(tmp_path / "s.db"), measure="never")
    named = [node for cell in estimate.cells for node in cell.nodes]
    assert sorted([*named, *estimate.removed]) == sorted(onnx_io.load(path).facts.node_names)
    assert 40 < estimate.constants <= len(estimate.removed)
    assert not any("ConstantOfShape" in w or "constants" in w for w in estimate.warnings)
    # Constants come last, so that the others can be named first.
    file = onnx_io.load(path)
    constants = {file.facts.node_names[i] for i in file.facts.constant_nodes}
    others = estimate.removed[: len(estimate.removed) - estimate.constants]
    assert not constants.intersection(others)
    assert constants.issuperset(estimate.removed[len(others) :])


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> {text}')


def test_weights_what_makes_them_and_shapes_are_constants() -> None:
    model = model_of("""g (float[1,8] x) => (float[1,8] y)
        <float one = {1.0}, int64[2] size = {8, 8}>
    {
        made = ConstantOfShape(size)
        w = Mul(made, one)
        s = Shape(x)
        same = Identity(x)
        flat = Reshape(same, s)
        p = MatMul(flat, w)
        y = Relu(p)
    }""")
    facts = onnx_io.load(model).facts
    assert {facts.op_types[i] for i in facts.constant_nodes} == {"ConstantOfShape", "Mul", "Shape"}


def test_what_is_removed_and_no_constant_is_no_warning(tmp_path: Path) -> None:
    chain = " ".join(f"x{i + 1} = Identity(x{i})" for i in range(9))
    model = model_of(
        "g (float[1,8,16,16] x0) => (float[1,8,16,16] y) { " + chain + " y = Relu(x9) }"
    )
    estimate = predict(model, L4, store=str(tmp_path / "s.db"), measure="never")
    assert len(estimate.removed) == 9 and estimate.constants == 0
    assert not any("Identity" in warning for warning in estimate.warnings)
