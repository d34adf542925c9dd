"""Reading files into networks and back; every way in which a file can be wrong."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from hybridlat.errors import NetworkError
from hybridlat.graph.network import TensorType
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import load, read_network, to_onnx
from hybridlat.schema.plugins import shipped
from tests.onnx_io.test_reading_shapes import model
from tests.pages import ROOT


def conv_model(batch: str = "1") -> onnx.ModelProto:
    made = model(
        f"g (float[{batch},3,8,8] x) => (float[{batch},4,8,8] y) "
        "{ c = Conv<pads=[1,1,1,1]>(x, w)  y = Relu(c) }"
    )
    weight = np.ones((4, 3, 3, 3), dtype=np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return made


def test_symbolic_batch_is_one_unless_given() -> None:
    network = read_network(conv_model())
    assert network.types["y"] == TensorType("float32", (1, 4, 8, 8))
    assert network.constants["w"].values is None and network.weight_bytes == 4 * 3 * 9 * 4
    assert read_network(conv_model("N")).types["x"].shape == (1, 3, 8, 8)
    assert read_network(conv_model("N"), batch=5).types["y"].shape == (5, 4, 8, 8)
    assert read_network(conv_model("2"), batch=5).types["y"].shape == (5, 4, 8, 8)
    shapes, made, before = {"x": (2, 3, 32, 16)}, conv_model("N"), conv_model("N")
    assert read_network(made, shapes=shapes).types["y"].shape == (2, 4, 32, 16)
    assert made == before  # it is not changed
    with pytest.raises(NetworkError, match="there is no input 'z': the inputs are 'x'"):
        read_network(conv_model("N"), shapes={"z": (1,)})
    with pytest.raises(NetworkError, match="has the size 0 at axis 1"):
        read_network(conv_model("N"), shapes={"x": (1, 0, 8, 8)})


def test_weights_made_by_constant_of_shape_are_weights() -> None:
    with_values = sign(read_network(conv_model())).hash
    bare = onnx.load_from_string(to_onnx(read_network(conv_model()), seed=None))
    assert {n.op_type for n in bare.graph.node} == {"ConstantOfShape", "Conv", "Relu"}
    assert sign(read_network(bare)).hash == with_values
    assert len(bare.SerializeToString()) < 1000


@pytest.mark.parametrize(
    "text",
    [
        'g (string[2] x) => (string[2] y) <string[2] w = {"a", "b"}> { y = StringConcat(x, w) }',
        "g (float[3,2] x) => (float[3,2] y) <int4[2] w = {1, 2}, float s = {0.5}> "
        "{ d = DequantizeLinear(w, s)  y = Mul(x, d) }",
    ],
)
def test_constants_of_text_and_of_four_bits_are_such_as_the_engine_takes(text: str) -> None:
    ort.InferenceSession(to_onnx(read_network(model(text, opset=21)), seed=1))


@pytest.mark.parametrize("opset", [9, 12, 13])
def test_an_operator_keeps_the_meaning_it_had_in_its_file(opset: int) -> None:
    made = model("g (float[1,10,1,1] x) => (float[1,10,1,1] y) { y = Softmax(x) }", opset=opset)
    session = ort.InferenceSession(to_onnx(read_network(made), seed=0))
    (result,) = session.run(None, {session.get_inputs()[0].name: np.zeros((1, 10, 1, 1), "f")})
    # Before opset 13 it was over all but the batch, from then on over the last axis alone.
    np.testing.assert_allclose(result, 1.0 if opset == 13 else 0.1, rtol=1e-6)


def test_external_weights_need_not_be_there(tmp_path: Path) -> None:
    made = conv_model()
    expected = sign(read_network(made)).hash
    path = tmp_path / "model.pb"  # as a TensorFlow graph is called
    onnx.save_model(made, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert sign(read_network(path)).hash == expected
    (tmp_path / "w.bin").unlink()
    assert sign(read_network(path)).hash == expected


def test_the_key_ignores_names_and_weights_only() -> None:
    first, second = conv_model(), conv_model()
    weight = np.full((4, 3, 3, 3), 7.0, dtype=np.float32)
    second.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    for node in second.graph.node:
        node.name = f"other_{node.name}"
    assert load(first).key() == load(second).key()
    assert load(first).key() != load(first).key(batch=2)
    second.graph.node[1].op_type = "Sigmoid"
    assert load(first).key() != load(second).key()
    clip = (
        "g (float[4] x) => (float[4] y) <float a = {{0.0}}, float b = {{6.0}}> {{ y = Clip({}) }}"
    )
    usual, turned = (load(model(clip.format(places))) for places in ("x, a, b", "x, b, a"))
    assert usual.key() != turned.key()


def test_random_weights_are_seeded_and_finite() -> None:
    network = read_network(conv_model())
    assert to_onnx(network, seed=3) == to_onnx(network, seed=3)
    assert to_onnx(network, seed=3) != to_onnx(network, seed=4)
    values = numpy_helper.to_array(onnx.load_from_string(to_onnx(network, 3)).graph.initializer[0])
    assert np.isfinite(values).all() and (np.abs(values) > 1e-12).all()


def test_nodes_out_of_order_are_sorted_and_names_made_unique() -> None:
    made = conv_model()
    made.graph.node.reverse()
    for node in made.graph.node:
        node.name = "same"
    network = read_network(made)
    assert [n.op for n in network.nodes] == ["Conv", "Relu"]
    assert len({n.name for n in network.nodes}) == 2


def test_a_batch_that_is_too_large_is_named() -> None:
    made = model("g (float[n,1024,1024] x) => (float[n,1024,1024] y) { y = Relu(x) }")
    with pytest.raises(NetworkError, match=r"absurdly large.* --batch of at most 65536$"):
        load(made).network(batch=100_000)
    assert load(made).network(batch=65_536).nodes


def test_shipped_names_stand_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = read_network("resnet18")
    assert shipped == replace(read_network(ROOT / "data/nets/resnet18.onnx"), name="resnet18")
    (tmp_path / "resnet34").mkdir()  # a folder is no network
    assert len(read_network("resnet34").nodes) > len(shipped.nodes)
    Path("resnet18").write_bytes(to_onnx(read_network(conv_model()), seed=1))
    assert len(read_network("resnet18").nodes) < len(shipped.nodes), "a file of the name wins"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("resnt18", "resnt18 is no file.* did you mean resnet18"),
        ("resnet34.onnx", "the shipped network is called resnet34"),
        ("none/a.onnx", "none/a.onnx does not exist$"),
        ("qqq", r"no network that is shipped \(`hybridlat examples` lists those"),
    ],
)
def test_a_name_that_is_no_network_is_answered_with_those_near(name: str, why: str) -> None:
    with pytest.raises(NetworkError, match=why):
        read_network(name)


def test_an_operator_without_results_is_refused() -> None:
    made = conv_model()
    made.graph.node.add(op_type="Relu", input=["x"])
    with pytest.raises(NetworkError, match="'Relu' gives nothing out: the file is damaged"):
        read_network(made)


def test_a_constant_node_may_hold_a_sparse_tensor() -> None:
    made = conv_model()
    values, sizes = made.graph.initializer.pop(0), made.graph.node.add(op_type="Constant")
    sparse = onnx.SparseTensorProto(dims=values.dims)
    sparse.values.data_type = values.data_type
    sizes.output.append(values.name)
    sizes.attribute.append(onnx.helper.make_attribute("sparse_value", sparse))
    assert sign(read_network(made)) == sign(read_network(conv_model()))


def test_a_tool_gets_the_file_of_a_shipped_network() -> None:
    file = load("yolo_cross_stage", recall=lambda digest: None)
    assert file.path == str(shipped("data", "nets", "yolo_cross_stage.onnx"))
    assert load(Path(file.path).read_bytes(), name="resnet18").path == "resnet18"
