"""The file at hand: which sizes it needs and has, what it is, what is in the way."""

from pathlib import Path

import onnx
import pytest

from hybridlat import predict
from hybridlat.engines import registry
from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, TensorType
from hybridlat.onnx_io import load, read_network, to_onnx
from hybridlat.schema.target import Target
from tests.onnx_io.test_reading_shapes import model, ops

OPEN = (
    ("1,1,64,W", "1x1x64x256"),
    ("N,3,H,W", "1x3x224x224"),
    ("N,C,H,W", "1x3x224x224"),
    ("1,3,416,W", "1x3x416x416"),
    ("N,H,W,3", "1x224x224x3"),
    ("N,L", "1x128"),
    ("N,L,80", "1x128x80"),
    ("N,3,T,112,112", "1x3x256x112x112"),
)


@pytest.mark.parametrize(("written", "asked"), OPEN)
def test_an_open_size_is_asked_for_with_the_inputs_own_sizes(written: str, asked: str) -> None:
    made = model(f"g (float[{written}] input1) => (float[{written}] y) {{ y = Relu(input1) }}")
    with pytest.raises(NetworkError) as caught:
        read_network(made)
    shape = tuple(map(int, asked.split("x")))
    in_python = f"(in Python shapes={{'input1': {shape}}})"
    assert f"is open: give it with --shape input1:{asked} {in_python}" in str(caught.value)
    assert read_network(made, shapes={"input1": shape}).types["y"].shape == shape


def test_a_batch_stands_in_the_shape_that_is_asked_for() -> None:
    made = model("g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }")
    with pytest.raises(NetworkError, match="--shape x:4x3x224x224 "):
        read_network(made, batch=4)
    with pytest.raises(
        NetworkError, match=r"of rank 4, but .* of rank 2: .*--shape x:1x3x224x224 "
    ):
        read_network(made, shapes={"x": (3, 3)})
    made.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(NetworkError, match="has no shape: give it with --shape x:1x3x224x224 "):
        read_network(made)


DISTANCES = """g (float[3,4] x, float[5,4] z) => (float[a,b] y) <int64[1] flat = {-1}>
  { t = Relu(x)  r = com.microsoft.OP<metric="euclidean">(t, z)  y = Reshape(r, flat) }"""


def test_an_operator_whose_shape_only_a_run_tells_is_run_once() -> None:
    network = read_network(model(DISTANCES.replace("OP", "CDist")))
    assert ops(network) == ["Relu", "CDist", "Reshape"]
    assert network.types["r"] == TensorType("float32", (3, 5))
    assert network.types["y"] == TensorType("float32", (15,))
    lowered = registry.lower(network, Target.parse("here/onnxruntime-1.31/fp32/1t")).network
    assert lowered.types[lowered.nodes[1].outputs[0]] == TensorType("float32", (3, 5))
    written = onnx.load_from_string(to_onnx(network, 1)).graph
    assert "r" in [info.name for info in written.value_info]
    other = registry.lower(network, Target.parse("t4/tensorrt-8.6/fp16"))
    assert any("CDist" in warning for warning in other.warnings)


UNIQUE = "g (float[8] x) => (float[a] y) { r, i, c = com.microsoft.Unique(x)  y = Relu(r) }"


@pytest.mark.parametrize("body", [DISTANCES.replace("OP", "NobodysDistance"), UNIQUE])
def test_one_that_cannot_be_run_or_depends_on_data_is_named(body: str) -> None:
    with pytest.raises(NetworkError) as caught:
        read_network(model(body))
    assert "'r', made by" in str(caught.value) and "'com.microsoft'" in str(caught.value)
    assert "value_info" in str(caught.value) and "elements" not in str(caught.value)


BY_ENDING = {
    "pt": "a PyTorch file: export it with torch.onnx.export, or pass the module to hybridlat.pred",
    "pth": "a PyTorch file", "h5": "a Keras file: convert it with tf2onnx", "keras": "a Keras file",
    "tflite": "a TensorFlow Lite file", "pb": "a TensorFlow graph: convert it with tf2onnx",
    "engine": "a TensorRT engine: give the ONNX file that it was made from", "xml": "an OpenVINO",
    "plan": "a TensorRT engine", "safetensors": "a file of weights: load them into their module",
    "mlmodel": "a Core ML model", "ort": "in ONNX Runtime's own format", "gz": "an archive: unpack",
}  # fmt: skip
BY_BYTES = {
    b"PK\3\4 archive/data.pkl": "a PyTorch file",
    b"PK\3\4 net.onnx": "an archive",
    b"\x89HDF\r\n": "a Keras file",
    b"\x1c\0\0\0TFL3": "a TensorFlow Lite file",
    b"ftrt\0\0": "a TensorRT engine",
    b"version https://git-lfs.github.com/spec/v1": "a Git LFS pointer: fetch the file itself with",
    b"<!DOCTYPE html>": "a web page: download the file itself",
    b"hello, text\n": "a text file",
    b"\xff\xfe\0\1": "cut off, damaged or of another format",
    b"": "is empty: give a file with",
}


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [(f"net.{ending}", b"\xff\0", kind) for ending, kind in BY_ENDING.items()]
    + [("net.onnx", data, kind) for data, kind in BY_BYTES.items()],
)
def test_another_format_is_named(name: str, data: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(NetworkError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ") and expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_names_the_file_in_it(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"is a directory: name the .onnx file in it$"):
        load(tmp_path)
    (tmp_path / "net.onnx").touch()
    with pytest.raises(NetworkError, match=r"the .onnx file in it, as in .*net.onnx$"):
        load(tmp_path)
    package = tmp_path / "net.mlpackage"
    package.mkdir()
    with pytest.raises(NetworkError, match="a Core ML model: give the ONNX file"):
        load(package)


Shape = tuple[int, ...]
ROI = """g (float[1,8,50,50] x, float[100,4] rois, int64[100] of) => (float[100,8,7,7] y)
  { r = Relu(x)  c = RoiAlign<output_height=7, output_width=7, spatial_scale=0.5>(r, rois, of)
    y = Relu(c) }"""
FED = """g (float[1,1,3,3] w, float[1,1,9,9] x, float[1] b) => (float[n,1,7,7] y)
  { y = Conv(x, w, b) }"""
MASK = """g (float[N,3,8,8] x, float[1,1,8,8] mask) => (float[N,3,8,8] y) { y = Mul(x, mask) }"""
PAIR = """g (float[1,3,8,8] x, float[1,3,8,8] z) => (float[1,3,8,8] y) { y = Mul(x, z) }"""
NAMED = """g (float[N,3,H,W] x, float[N,1,H,W] mask) => (float[N,4,H,W] y)
  { y = Concat<axis=1>(x, mask) }"""


def shapes_of(network: Network) -> list[Shape]:
    return [network.types[name].shape for name in network.inputs]


FREE = """g (float[N,3,8,8] x, float[R,4] r) => (float[N,3,8,8] y, float[R,4] s)
  { y = Relu(x)  s = Relu(r) }"""


X, ROIS = "float[1,8,50,50] x", "float[100,4] rois"
TURNED = ROI.replace(f"{X}, {ROIS}", f"{ROIS}, {X}")
OTHER = PAIR.replace("1,3,8,8] x", "4,3,4,4] x").replace("1,3,8,8] z", "4,3,H,4] z")
SOUND = """g (float{} x) => (float y) <float[4,1,3] w = {{}}, int64[3] one = {{1,1,800}}>
  {{ r = Reshape(x, one)  y = Conv(r, w) }}"""
VECTOR = "g ({}) => (float y) <float[800,4] w = {{}}> {{ y = MatMul(x, w) }}"
BOUND = [
    # The batch is that of the data.
    (ROI, 4, {}, [(4, 8, 50, 50), (100, 4), (100,)]),
    (ROI.replace("[1,8,50,50]", "[N,8,50,50]"), 4, {}, [(4, 8, 50, 50), (100, 4), (100,)]),
    (TURNED, 4, {}, [(100, 4), (4, 8, 50, 50), (100,)]),
    (FED, 4, {}, [(1, 1, 3, 3), (4, 1, 9, 9), (1,)]),
    (MASK, 4, {}, [(4, 3, 8, 8), (1, 1, 8, 8)]),
    (PAIR, 4, {}, [(4, 3, 8, 8), (4, 3, 8, 8)]),
    # A size that has a name is given once.
    (NAMED, None, {"x": (2, 3, 32, 24)}, [(2, 3, 32, 24), (2, 1, 32, 24)]),
    (NAMED, None, {"mask": (2, 1, 32, 24)}, [(2, 3, 32, 24), (2, 1, 32, 24)]),
    (NAMED, 2, {"x": (2, 3, 4, 4)}, [(2, 3, 4, 4), (2, 1, 4, 4)]),
    # An equal size under another name is no reason to leave an input's batch alone.
    (OTHER, 2, {"z": (2, 3, 4, 4)}, [(2, 3, 4, 4), (2, 3, 4, 4)]),
    (FREE, 8, {"r": (100, 4)}, [(8, 3, 8, 8), (100, 4)]),
    (FREE, None, {"r": (100, 4)}, [(1, 3, 8, 8), (100, 4)]),
    # The shape of the data has the batch of what stays open.
    (FREE, None, {"x": (8, 3, 8, 8)}, [(8, 3, 8, 8), (8, 4)]),
]


@pytest.mark.parametrize(("text", "batch", "shapes", "expected"), BOUND)
def test_the_sizes_of_inputs(
    text: str, batch: int | None, shapes: dict[str, Shape], expected: list[Shape]
) -> None:
    assert shapes_of(read_network(model(text), batch, shapes)) == expected


@pytest.mark.parametrize(
    ("text", "batch", "expected"),
    [
        (TURNED, None, 1), (TURNED, 4, 4), (ROI, 4, 4), (FED, 4, 4), (PAIR, None, 1),
        (SOUND.format("[800]"), None, 1), (SOUND.format("[20,40]"), None, 1),
        (VECTOR.format("float[800] x"), None, 1), (VECTOR.format("float[2,800] x"), None, 2),
        ("g (int64[6] x) => (float y) <float[9,4] t = {}> { y = Gather(t, x) }", None, 6),
    ],
)  # fmt: skip
def test_an_answer_has_the_batch_of_the_data(text: str, batch: int | None, expected: int) -> None:
    estimate = predict(model(text), "l4/tensorrt/fp16", batch=batch)
    assert estimate.batch == expected


@pytest.mark.parametrize(
    ("text", "shapes"),
    [(NAMED, {"x": (2, 3, 4, 4)}), (NAMED, {"mask": (2, 1, 4, 4)}), (PAIR, {"x": (1, 3, 8, 8)}),
     (FREE, {"x": (1, 3, 8, 8)}), (MASK, {"x": (1, 3, 8, 8)})],
)  # fmt: skip
def test_a_batch_that_a_shape_contradicts_is_refused(text: str, shapes: dict[str, Shape]) -> None:
    with pytest.raises(NetworkError, match=r"the batch 8 contradicts .* write --shape x:Nx3"):
        read_network(model(text), batch=8, shapes=shapes)
    for first in (8, -1):
        whole = {name: (first, *shape[1:]) for name, shape in shapes.items()}
        assert shapes_of(read_network(model(text), batch=8, shapes=whole))[0][0] == 8


def test_inputs_of_two_batches_are_named() -> None:
    free = PAIR.replace("1,3,8,8] x", "N,3,8,8] x").replace("1,3,8,8] z", "M,3,8,8] z")
    with pytest.raises(NetworkError, match="have the batches 2 and 4, which do not fit together"):
        read_network(model(free), shapes={"x": (2, 3, 8, 8), "z": (4, 3, 8, 8)})


@pytest.mark.parametrize(("domain", "op"), [("TRT.", "EfficientNMS_TRT"), ("", "BatchedNMS_TRT")])
@pytest.mark.parametrize(("batch", "size"), [("1", 1), ("N", 2)])
def test_foreign_operators_state_their_results(domain: str, op: str, batch: str, size: int) -> None:
    """An end-to-end detector states them as outputs alone; a name is the size of the input's."""
    made = model(f"""g (float[{batch},4,8,8] x)
        => (int32[{batch},1] count, float[{batch},9,4] boxes)
      {{ r = Relu(x)  count, boxes = {domain}{op}(r, r) }}""")
    network = read_network(made, batch=size)
    assert ops(network) == ["Relu", op]
    assert network.types["count"] == TensorType("int32", (size, 1))
    assert network.types["boxes"] == TensorType("float32", (size, 9, 4))


FLAT = """g (float[{2},3,{0},{0}] images) => (float[1,n] y) <int64[2] flat = {{1, {1}}}>
  {{ r = Relu(images)  f = Reshape(r, flat)  y = Relu(f) }}"""


@pytest.mark.parametrize("batch", ["1", "N"])
def test_a_file_that_was_made_for_other_sizes_says_for_which(batch: str) -> None:
    with pytest.raises(
        NetworkError,
        match=r"made for images of float32\[1x3x8x8\], not float32\[1x3x4x4\] "
        r"\(Reshape 'Reshape_1'\): export it again with these sizes or dynamic axes",
    ):
        read_network(model(FLAT.format(8, 192, batch)), shapes={"images": (1, 3, 4, 4)})


@pytest.mark.parametrize(
    "step", ["Reshape(x, sizes)", "Expand(x, sizes)", "ConstantOfShape(sizes)"]
)
def test_sizes_in_external_data_are_named_with_their_file(step: str) -> None:
    made = model(f"g (float[1,16] x) => (float[4,4] y) {{ s = {step}  y = Relu(s) }}")
    sizes = onnx.TensorProto(name="sizes", data_type=7, dims=[2], data_location="EXTERNAL")
    sizes.external_data.add(key="location", value="weights.data")
    made.graph.initializer.append(sizes)
    with pytest.raises(NetworkError, match=r"sizes 'sizes' lie in 'weights.data'.*size_threshold"):
        read_network(made)
