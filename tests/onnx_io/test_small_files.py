"""A file of some hundred bytes takes no more memory and time than other files do."""

import onnx
import pytest
from onnx import parser

from hybridlat.errors import NetworkError
from hybridlat.onnx_io import load, read_network
from tests.onnx_io.test_reading_shapes import model, ops

ENDLESS = {
    "Expand": "s = Add(sides, none)  e = Expand(one, s)",
    "Tile": "s = Mul(sides, sides)  n = ReduceProd<keepdims=0>(sides)  u = Unsqueeze(n, axis) "
    "e = Tile(ones, u)",
    "Range": "n = ReduceProd<keepdims=0>(sides)  i = Range(zero, n, step)  e = Cast<to=1>(i)",
    "Pad": "s = Mul(sides, sides)  e = Pad(ones, s)",
    "OneHot": "n = ReduceProd<keepdims=0>(sides)  e = OneHot(none, n, values)",
    "Resize": 's = Add(sides, none)  e = Resize<mode="linear">(image, , , s)',
    "HannWindow": "n = ReduceProd<keepdims=0>(sides)  e = HannWindow(n)",
    "ConstantOfShape": "s = Add(sides, none)  c = ConstantOfShape(s)  e = Relu(c)",
    "Conv": "e = Conv<pads=[200000,200000,200000,200000], strides=[200000,200000]>"
    "(picture, filter)",
    "MaxPool": "e = MaxPool<kernel_shape=[200000,200000], pads=[199999,199999,199999,199999]>"
    "(picture)",
}
CONSTANTS = """int64[2] sides = {200000, 200000}, int64[2] none = {0, 0}, int64[1] axis = {0},
  int64 zero = {0}, int64 step = {1}, float one = {1.0}, float[1] ones = {1.0},
  float[2] values = {0.0, 1.0}, float[2,2] image = {1.0, 1.0, 1.0, 1.0},
  float[1,1,2,2] picture = {1.0, 1.0, 1.0, 1.0}, float[1,1,2,2] filter = {1.0, 1.0, 1.0, 1.0}"""


@pytest.mark.parametrize("name", ENDLESS)
def test_a_constant_of_any_size_is_a_weight_and_not_computed(name: str) -> None:
    made = model(
        f"g (float[1,4] x) => (float[1,4] y) <{CONSTANTS}> "
        f"{{ {ENDLESS[name]}  r = ReduceSum<keepdims=0>(e)  y = Add(x, r) }}"
    )
    assert len(made.SerializeToString()) < 800
    assert ops(read_network(made)) == ["Add"]


def with_functions(*bodies: str) -> onnx.ModelProto:
    """A network that calls ``f0`` of these functions."""
    text = '<ir_version: 8, opset_import: ["" : 17, "f" : 1]>\n'
    text += "g (float[1,4] x) => (float[1,4] y) { y = f.f0(x) }\n"
    for body in bodies:
        text += f'<opset_import: ["" : 17, "f" : 1], domain: "f">\n{body}\n'
    return parser.parse_model(text)


def test_functions_that_double_thirty_times_are_refused() -> None:
    doubling = [f"f{i} (x) => (y) {{ t = f.f{i + 1}(x)  y = f.f{i + 1}(t) }}" for i in range(30)]
    with pytest.raises(NetworkError, match=r"functions that stand for 3.*e\+09 operators: at most"):
        load(with_functions(*doubling, "f30 (x) => (y) { y = Relu(x) }"))
    few = load(with_functions(*doubling[:3], "f3 (x) => (y) { y = Relu(x) }"))
    assert ops(few.network()) == ["Relu"] * 8


def test_functions_that_call_each_other_in_a_circle_are_refused() -> None:
    bodies = "f0 (x) => (y) { y = f.f1(x) }", "f1 (x) => (y) { y = f.f0(x) }"
    with pytest.raises(NetworkError, match="functions that call each other in a circle"):
        load(with_functions(*bodies))


@pytest.mark.parametrize(
    ("scopes", "path"),
    [
        ("['', 'stem', 'stem.act', 'relu_1']", "stem.act"),
        ("-" * 100_000 + "1", ""),
        ("[" * 100_000, ""),
        ("['a', 'b'", ""),
        ("__import__('os')", ""),
    ],
)
def test_scopes_are_names_and_nothing_evaluates_them(scopes: str, path: str) -> None:
    made = model("g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }")
    entry = made.graph.node[0].metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", scopes
    assert load(made).facts.module_paths == (path,)
