"""What is remembered of files, operators and tensors is what they say, and changes nothing."""

import hashlib
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import hybridlat.onnx_io.walk as walk
from experiments import nasbench201
from experiments.block_spaces import SPACES
from hybridlat.graph.network import Network
from hybridlat.onnx_io import OnnxFile, load, nodes, read_network
from hybridlat.onnx_io.facts import FACTS_FORMAT, FileFacts
from hybridlat.onnx_io.nodes import read_tensor
from tests.networks import NETS
from tests.onnx_io.test_reading_shapes import model

FILES = sorted(NETS.glob("*.onnx"))


def facts_of(file: OnnxFile) -> FileFacts:
    return FileFacts.of(file.facts)


def known(path: Path) -> OnnxFile:
    """The file as it is opened when it was met before."""
    text = facts_of(load(path)).to_text()
    return load(path, recall=lambda _: FileFacts.from_text(text))


@pytest.mark.parametrize("path", FILES[::6], ids=lambda path: path.stem)
def test_a_known_file_says_the_same_unparsed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, again = load(path), known(path)
    name = next(iter(file.parsed.input_sizes))
    with monkeypatch.context() as patched:
        patched.setattr(OnnxFile, "parsed", property(lambda _: pytest.fail("it was parsed")))
        facts = facts_of(again)
        keys = [again.key(), again.key(2), again.key(None, {name: (1, 3, 64, 64)})]
    assert facts == facts_of(file) and again.label == file.label
    assert again.parsed.model.SerializeToString() == file.parsed.model.SerializeToString()
    assert keys == [file.key(), file.key(2), file.key(None, {name: (1, 3, 64, 64)})]


def test_files_are_told_apart_by_their_bytes(tmp_path: Path) -> None:
    asked: list[str] = []

    def recall(digest: str) -> FileFacts | None:
        asked.append(digest)
        return None

    copy = tmp_path / "copy.onnx"
    copy.write_bytes((NETS / "squeezenet.onnx").read_bytes())
    for path in (NETS / "squeezenet.onnx", copy, NETS / "resnet18.onnx"):
        assert load(path, recall=recall).digest == asked[-1]
    assert asked[0] == asked[1] != asked[2]
    assert load(copy).digest == ""  # nobody asked
    assert load(copy.read_bytes(), recall=recall).digest == "" and len(asked) == 3


def test_how_facts_are_found_has_a_number() -> None:
    """Fails when facts of the same files change; the keys of caches hold the code's hash."""
    texts = [facts_of(load(path)).to_text() for path in FILES]
    found = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    assert (FACTS_FORMAT, found) == (4, "f260a9f8292f5b67")
    assert texts[0].startswith(f"[{FACTS_FORMAT},")
    assert FileFacts.from_text(texts[0].replace(f"[{FACTS_FORMAT},", "[99,", 1)) is None


ARCH = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|skip_connect~2|"


def fields(network: Network) -> list[Any]:
    """All of a network, in the order in which it lists things."""
    return [
        network.name, network.nodes, network.inputs, network.outputs, list(network.types.items()),
        list(network.constants.items()), network.folded, network.left_out,
    ]  # fmt: skip


def test_what_is_remembered_of_operators_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "remembered", {})
    rng = random.Random(2)
    models = [space.build(space.sample(rng)) for space in SPACES.values()]
    models.append(nasbench201.build(ARCH, cells_per_stage=1))
    files = [load(model) for model in models] + [load(NETS / "mobilenetv3_small_100.onnx")]
    for batch in (None, 4):
        first = [fields(file.network(batch)) for file in files]
        assert [fields(file.network(batch)) for file in files] == first
    known = len(walk.remembered)
    [file.network(4) for file in files]
    assert len(walk.remembered) == known > 100


def test_constants_that_are_passed_on_are_constants() -> None:
    """PyTorch's older exporter writes a weight that two modules share once, behind Identity."""
    model = nasbench201.build(ARCH, cells_per_stage=1)
    convs = [node for node in model.graph.node if node.op_type == "Conv"]
    bias = convs[1].input[2]
    convs[0].input[2] = convs[1].input[2] = "shared"
    model.graph.node.append(onnx.helper.make_node("Identity", ["b"], ["shared"]))
    model.graph.node.append(onnx.helper.make_node("Identity", [bias], ["b"]))
    network = read_network(model)
    assert len(network.folded) > 2 and not any(node.op == "Identity" for node in network.nodes)
    assert network.constants["shared"].values is None


def test_an_output_left_out_of_one_file_is_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "remembered", {})
    text = """g (float[1,3,8,8] x) => (float[1,3,4,4] y)
      {{ p, {} = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)  y = Relu(p)  {} }}"""
    for place, rest in (('""', ""), ("q", "z = Cast<to=1>(q)")):
        network = read_network(model(text.format(place, rest)))
        assert network.types["y"].shape == (1, 3, 4, 4), place
    assert network.types["q"].dtype == "int64"


def test_operators_and_constants_of_any_size_are_not_kept() -> None:
    large = onnx.helper.make_tensor("", 7, [4096], range(4096))
    made = model("g (float[4096] x) => (float[4096] y) { y = Relu(x) }")
    for name in ("", "named"):
        made.graph.node.add().CopyFrom(onnx.helper.make_node("Constant", [], [f"c{name}"], name))
        made.graph.node[-1].attribute.append(onnx.helper.make_attribute("value", large))
    nodes._small_node.cache_clear()
    assert len(load(made).parsed.nodes) == 3
    assert nodes._small_node.cache_info().currsize == 1  # the Relu


class _Uncounted:
    """A tensor whose bytes nobody may count: protobuf would copy its weights to do so."""

    def __init__(self, tensor: TensorProto) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> object:
        assert name not in ("ByteSize", "SerializeToString", "raw_data")
        return getattr(self._tensor, name)


def test_weights_are_not_copied_to_learn_their_size() -> None:
    weights = numpy_helper.from_array(np.ones((64, 64, 3, 3), np.float32), "w")
    name, value = read_tensor(cast(TensorProto, _Uncounted(weights)))
    assert (name, value.array) == ("w", None)
    assert (name, value) == read_tensor(TensorProto(name="w", dims=weights.dims, data_type=1))
