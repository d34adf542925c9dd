"""What a user reads of the file at hand: which sizes it needs, what it is, what is in the way."""

from pathlib import Path

import onnx
import pytest

from hybridlat.engines import registry
from hybridlat.errors import NetworkError
from hybridlat.graph.network import TensorType
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
    assert "r" in [
        info.name for info in onnx.load_from_string(to_onnx(network, 1)).graph.value_info
    ]
    other = registry.lower(network, Target.parse("t4/tensorrt-8.6/fp16"))
    assert any("CDist" in warning for warning in other.warnings)


@pytest.mark.parametrize(
    "body",
    [
        DISTANCES.replace("OP", "NobodysDistance"),
        "g (float[8] x) => (float[a] y) { r, i, c = com.microsoft.Unique(x)  y = Relu(r) }",
    ],
)
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
