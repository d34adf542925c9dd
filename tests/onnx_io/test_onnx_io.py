"""Files as networks and back, for TensorRT too; every way in which a file can be wrong."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from hybridlat import predict
from hybridlat.board.plan import make_files
from hybridlat.engines.fusion.precision import in_precision
from hybridlat.errors import MeasurementError, NetworkError
from hybridlat.graph.network import Network, TensorType
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import load, read_network, tensorrt, to_onnx
from hybridlat.schema.plugins import shipped
from tests.networks import branches, classifier, conv_relu, residual_block
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


@pytest.mark.parametrize("seed", [None, 1])
def test_a_weight_of_several_operators_is_written_once(seed: int | None) -> None:
    text = """g (float[1,32,8,8] x) => (float[1,32,8,8] y)
      { a = Conv(x, w) b = Conv(a, w) y = BatchNormalization(b, v, v, v, v) }"""
    network = read_network(model(text, {"w": (1, [32, 32, 1, 1]), "v": (1, [32])}))
    made = onnx.load_from_string(to_onnx(network, seed))
    assert len(made.graph.initializer) == 2 and read_network(made).weight_bytes == 4 * (1024 + 32)
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.ones((1, 32, 8, 8), np.float32)})
    assert np.isfinite(result).all()


@pytest.mark.parametrize(("batch", "shapes"), [(None, {}), (3, {}), (None, {"x": (3, 5, 8)})])
def test_a_batch_that_has_a_name_is_the_same_behind_other_axes(
    batch: int | None, shapes: dict[str, tuple[int, ...]]
) -> None:
    """As in the states of a recurrent layer, and in keys and values of the past."""
    text = "g (float[N,5,8] x, float[2,N,8] h) => (y, z) { y = Relu(x) z = Relu(h) }"
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    network = read_network(made, batch=batch, shapes=shapes)
    size = 3 if batch or shapes else 1
    assert [network.types[name].shape for name in "xh"] == [(size, 5, 8), (2, size, 8)]


@pytest.mark.parametrize("sizes", ["10,1", "10,batch", "T,batch", "T,k"])
@pytest.mark.parametrize("name", ["x", "words"])
def test_a_batch_stands_behind_the_steps_of_a_recurrent_layer(
    name: str, sizes: str, tmp_path: Path
) -> None:
    source, first = f"float[{sizes},8] x", ""
    if name == "words":
        source, first = f"int64[{sizes}] words", "x = Gather(table, words)"
    made: onnx.ModelProto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g ({source}) => (y)
        <float[1,64,8] w, float[1,64,16] r, float[99,8] table> {{
            {first} y = LSTM<hidden_size=16>(x, w, r) }}"""
    )
    for weight, shape in {"w": (1, 64, 8), "r": (1, 64, 16), "table": (99, 8)}.items():
        values = np.zeros(shape, np.float32)
        made.graph.initializer.append(numpy_helper.from_array(values, weight))
    shapes = {name: (10, -1, *[8] * (name == "x"))} if "T" in sizes else {}
    how: Any = {"batch": 3, "shapes": shapes, "measure": "never", "store": f"{tmp_path}/s.db"}
    assert read_network(made, 3, shapes).types["x"].shape == (10, 3, 8)
    assert predict(made, "l4/tensorrt-10.3/fp16", **how).batch == 3
    with pytest.raises(NetworkError, match=r"batch 4 contradicts .* write --shape \w+:10xN"):
        read_network(made, batch=4, shapes={name: (10, 3, *[8] * (name == "x"))})


def test_a_batch_that_is_called_so_is_that_of_the_answer() -> None:
    text = "g (float[T,batch,8] x) => (y) { y = Softmax(x) }"
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    how: Any = {"shapes": {"x": (20, -1, 8)}, "measure": "never", "store": "sqlite://"}
    each = [predict(made, "l4/tensorrt-10.3/fp16", batch=batch, **how) for batch in (None, 4)]
    assert [estimate.batch for estimate in each] == [1, 4]


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


def test_nodes_are_sorted_with_names_of_their_own_and_results() -> None:
    made = conv_model()
    made.graph.node.reverse()
    for node in made.graph.node:
        node.name = "same"
    network = read_network(made)
    assert [n.op for n in network.nodes] == ["Conv", "Relu"]
    assert len({n.name for n in network.nodes}) == 2
    made.graph.node.add(op_type="Relu", input=["x"])
    with pytest.raises(NetworkError, match="'Relu' gives nothing out: the file is damaged"):
        read_network(made)


def test_a_batch_that_is_too_large_is_named() -> None:
    made = model("g (float[n,1024,1024] x) => (float[n,1024,1024] y) { y = Relu(x) }")
    with pytest.raises(NetworkError, match=r"absurdly large.* --batch of at most 65536$"):
        load(made).network(batch=100_000)
    assert load(made).network(batch=65_536).nodes


def test_shipped_names_stand_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = read_network("resnet18")
    assert known == replace(read_network(ROOT / "data/nets/resnet18.onnx"), name="resnet18")
    (tmp_path / "resnet34").mkdir()  # a folder is no network
    assert len(read_network("resnet34").nodes) > len(known.nodes)
    Path("resnet18").write_bytes(to_onnx(read_network(conv_model()), seed=1))
    assert len(read_network("resnet18").nodes) < len(known.nodes), "a file of the name wins"
    file = load("yolo_cross_stage", recall=lambda digest: None)  # tools get its file
    assert file.path == str(shipped("data", "nets", "yolo_cross_stage.onnx"))
    assert load(Path(file.path).read_bytes(), name="resnet18").path == "resnet18.onnx"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("resnt18", "resnt18 is no file.* did you mean resnet18"),
        ("resnet34.onnx", "the shipped network is called resnet34"),
        ("none/a.onnx", "none/a.onnx does not exist$"),
        ("/dev/null", "^./dev/null. cannot be read: it is no regular file: copy it to one$"),
        ("qqq", r"no network that is shipped \(`hybridlat examples` lists those"),
    ],
)
def test_a_name_that_is_no_network_is_answered_with_those_near(name: str, why: str) -> None:
    with pytest.raises(NetworkError, match=why):
        read_network(name)


def test_a_constant_node_may_hold_a_sparse_tensor() -> None:
    made = conv_model()
    values, sizes = made.graph.initializer.pop(0), made.graph.node.add(op_type="Constant")
    sparse = onnx.SparseTensorProto(dims=values.dims)
    sparse.values.data_type = values.data_type
    sizes.output.append(values.name)
    sizes.attribute.append(onnx.helper.make_attribute("sparse_value", sparse))
    assert sign(read_network(made)) == sign(read_network(conv_model()))


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
