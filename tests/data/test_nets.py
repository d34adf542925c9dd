"""The networks that the project ships: complete, small, and free of weights and of traces."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, helper

from data.nets import architecture_only, recipes

FOLDER = Path(__file__).parents[2] / "data" / "nets"
FILES = sorted(FOLDER.glob("*.onnx"))
ROW = re.compile(r"^\| (\S+)\.onnx (?:\|[^|]*){3}\| (.*) \|$", re.MULTILINE)
TABLE = {name: rest.split(" | ") for name, rest in ROW.findall((FOLDER / "README.md").read_text())}
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
A_PATH = re.compile(r"^(file:)?/(work|root|home|usr|opt|tmp|mnt|Users)/|^[A-Za-z]:\\|\.py\b")


def texts(message: Message) -> Iterator[str]:
    """Every text anywhere in a message, bytes that are text included."""
    for field, value in message.ListFields():
        for item in value if field.is_repeated else [value]:
            if isinstance(item, Message):
                yield from texts(item)
            elif isinstance(item, str):
                yield item
            elif isinstance(item, bytes) and field.name != "raw_data":
                yield item.decode("latin-1")


each_network = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_files_recipes_and_table_name_the_same_networks() -> None:
    names = sorted(recipe.name for recipe in recipes.RECIPES)
    assert len(set(names)) == len(names) >= 30
    assert [path.stem for path in FILES] == names == list(TABLE)


@each_network
def test_network_is_valid_and_what_the_table_says(path: Path) -> None:
    model = onnx.load(path)
    assert model.ir_version >= 4
    facts = architecture_only.facts(model)  # refuses a value without a shape
    numbers = (f"{facts.parameters / 1e6:.2f}", f"{facts.flop / 1e9:.2f}")
    assert TABLE[path.stem] == [str(facts.opset), facts.inputs, str(facts.nodes), *numbers]
    sizes = model.graph.input[0].type.tensor_type.shape.dim
    for batch in (1, 3) if any(size.HasField("dim_param") for size in sizes) else (1,):
        known = architecture_only.shapes(architecture_only.bind(model, batch))
        assert all(extent > 0 for node in model.graph.node for extent in known[node.output[0]])
        assert {known[value.name][0] for value in model.graph.output} == {batch}


@each_network
def test_network_has_no_weights(path: Path) -> None:
    model = onnx.load(path)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    constants = [a.t for node in model.graph.node for a in node.attribute if a.HasField("t")]
    for tensor in (*tensors.values(), *constants):
        assert not tensor.external_data
        assert tensor.data_type not in FLOATS or math.prod(tensor.dims) <= 16, tensor.name
    weights = [node for node in model.graph.node if node.op_type == "ConstantOfShape"]
    assert weights
    for node in weights:
        assert tensors[node.input[0]].data_type == TensorProto.INT64
    inputs = {value.name for value in model.graph.input}
    assert inputs.isdisjoint(tensors)
    assert len(inputs) == 1


@each_network
def test_file_is_small_and_says_nothing_of_where_it_was_made(path: Path) -> None:
    assert path.stat().st_size < 300_000
    model = onnx.load(path)
    graph = model.graph
    assert not model.functions
    assert not graph.value_info
    for part in (model, graph, *graph.node):
        assert not part.metadata_props
        assert not part.doc_string
    assert [text for text in texts(model) if A_PATH.search(text)] == []


@pytest.mark.parametrize("name", ["mobilenetv3_small_100", "shufflenet", "shufflenet_v2"])
def test_network_runs(name: str) -> None:
    assert architecture_only.run(onnx.load(FOLDER / f"{name}.onnx")) > 0  # with the shapes stated


def small_model() -> ModelProto:
    """A convolution with everything that stripping must remove, and what it must keep."""
    model = onnx.parser.parse_model("""<ir_version: 3, opset_import: ["" : 9]>
      g (float[batch,3,8,8] image, float[4,3,3,3] weight) => (float[batch,4,6,6] result) {
        large = Constant()  map = Conv(image, weight, bias)  kept, mask = Dropout(map)
        picked = Gather<axis=0>(large, indices)  largest = ReduceMax<keepdims=0>(picked)
        result = Add(kept, largest) }""")
    values: dict[str, Any] = {"weight": np.random.default_rng(0).random((4, 3, 3, 3), np.float32)}
    values |= {"bias": np.array([1, 2, 3, 4], np.float32), "indices": np.arange(40)}
    values |= {"unused": np.ones(99, np.float32)}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in values.items()]
    model.graph.initializer.extend(tensors)
    large = onnx.numpy_helper.from_array(np.ones(50, np.float32))
    model.graph.node[0].attribute.append(helper.make_attribute("value", large))
    model.graph.node[1].doc_string = "/home/x.py"
    helper.set_model_props(model, {"path": "/home/someone"})
    return model


def test_strip_keeps_the_architecture_and_small_values_only() -> None:
    model = architecture_only.strip(small_model())
    onnx.checker.check_model(architecture_only.bind(model), full_check=True)
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    assert set(tensors) == {"weight__SHAPE", "bias", "indices", "large__SHAPE"}
    assert tensors["weight__SHAPE"].tolist() == [4, 3, 3, 3]
    assert tensors["bias"].tolist() == [1, 2, 3, 4]
    assert tensors["indices"].tolist() == list(range(40))
    assert [value.name for value in model.graph.input] == ["image"]
    assert not model.metadata_props
    assert [list(n.output) for n in model.graph.node if n.op_type == "Dropout"] == [["kept"]]
    assert [n.op_type for n in model.graph.node].count("Constant") == 0
    assert b"/home" not in model.SerializeToString()


def test_value_whose_shape_depends_on_data_is_an_error() -> None:
    model = small_model()
    model.graph.node.append(helper.make_node("NonZero", ["map"], ["positions"]))
    with pytest.raises(ValueError, match=r"no static shape for 1 values.*positions"):
        architecture_only.shapes(architecture_only.strip(model))
