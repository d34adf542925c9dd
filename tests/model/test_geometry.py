"""The scan of signature texts against signatures read the long way, formulas, a golden table."""

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.public_data.convolutions import Convolution, conv_cell
from hybridlat.engines import device_sheets
from hybridlat.graph.fused import fusion
from hybridlat.graph.network import Network
from hybridlat.graph.signature import read, sign
from hybridlat.model import features, geometry
from tests.strategies import networks


def columns(text: str) -> dict[str, np.ndarray]:
    cells = geometry.geometry([text])
    return {name: cells.column(name) for name in geometry.COLUMNS}


def conv_text(**changes: object) -> str:
    arguments: dict[str, Any] = {"activation": "Relu", **changes}
    around = {key: arguments.pop(key) for key in ("activation", "add") if key in arguments}
    shape: dict[str, Any] = {
        "batch": 2, "c_in": 12, "size": (28, 20), "c_out": 8, "kernel": (3, 5), "stride": 2,
        "pads": (1, 2, 1, 2), "bias": True,
    }  # fmt: skip
    signature = conv_cell(Convolution(**{**shape, **arguments}), **around)
    assert signature is not None
    return signature.text


HEADER_OF_FOREIGN = (
    "hybridlat-signature 2\ninput 0 float32:1x8x9x9\n"
    "node my.domain::Conv@1 (0 float32:8x8x3x3) -> (1:float32:1x8x7x7) {}\noutput 1\n"
)


@given(networks())
def test_the_scan_sees_what_the_signature_says(network: Network) -> None:
    text = sign(network).text
    truth = read(text)
    cells = geometry.geometry([text])
    assert len(cells.values) == len(truth.nodes)
    for row, node in enumerate(truth.nodes):
        assert cells.op(row) == node.qualified_op
        read_bytes = sum(truth.types[i].bytes for i in {*node.inputs} if i in truth.types)
        weights = [truth.constants[i].type.bytes for i in node.inputs if i in truth.constants]
        assert cells.column("in_bytes")[row] == read_bytes
        assert cells.column("weight_bytes")[row] == sum(weights)
        assert cells.column("out_bytes")[row] == sum(truth.types[o].bytes for o in node.outputs)


SHAPES = st.fixed_dictionaries({
    "batch": st.integers(1, 4), "groups": st.integers(1, 4), "stride": st.integers(1, 3),
    "size": st.tuples(st.integers(5, 40), st.integers(5, 40)),
    "kernel": st.tuples(st.integers(1, 5), st.integers(1, 5)),
})  # fmt: skip


@given(SHAPES, st.integers(1, 9), st.integers(1, 9))
def test_flop_of_a_convolution(shape: dict[str, Any], c_in: int, c_out: int) -> None:
    groups, sides = shape["groups"], zip(shape["size"], shape["kernel"], strict=True)
    wide = {"c_in": c_in * groups, "c_out": c_out * groups, "pads": (0, 0, 0, 0)}
    made = columns(conv_text(**shape, **wide))
    rows, width = ((side - kernel) // shape["stride"] + 1 for side, kernel in sides)
    outputs = shape["batch"] * rows * width * c_out * groups
    assert made["flop"][0] == 2 * outputs * c_in * math.prod(shape["kernel"])
    assert made["m"][0] * made["n"][0] * made["groups"][0] == outputs


def test_a_fused_kernel_costs_what_its_convolution_costs_and_says_what_is_fused() -> None:
    plain = columns(conv_text(activation=""))
    relu = columns(conv_text())
    added = columns(conv_text(add=True))
    assert geometry.geometry([conv_text(), conv_text(activation="")]).met_ops() == ("Conv",)
    assert plain["flop"][0] == relu["flop"][0] == added["flop"][0]
    assert (plain["activation"][0], relu["activation"][0]) == (0, 1)
    assert (relu["has_add"][0], added["has_add"][0]) == (0, 1)
    assert added["in_bytes"][0] == relu["in_bytes"][0] + relu["out_bytes"][0]
    assert columns(conv_text(activation="Clip"))["activation"][0] == 2
    assert columns(conv_text(activation="Tanh"))["activation"][0] == 3


@pytest.mark.parametrize(
    ("op", "main", "adds", "activation"),
    [
        ("fused::Conv+BatchNormalization+Relu", "Conv", False, 1),
        ("fused::Conv+Sigmoid+Mul", "Conv", False, 3),
        ("fused::Conv+Add+Relu", "Conv", True, 1),
        ("fused::Sigmoid+Mul", "Pointwise", False, 3),
        ("fused::Conv+Clip", "Conv", False, 2),
        ("fused::Conv+MaxPool", "Conv", False, 0),
        ("fused::Conv+Strange", "Conv+Strange", False, 0),
    ],
)
def test_fused_kernels_are_what_they_cost(op: str, main: str, adds: bool, activation: int) -> None:
    result = fusion(op)
    assert result is not None and (result.op, result.adds) == (main, adds)
    assert result.activation == activation or "Strange" in op


def one_node(op: str, shapes: list[str], result: str, attributes: str = "{}") -> dict[str, float]:
    """Columns of a kernel written as a signature's text, its inputs being activations."""
    lines = [f"input {i} float32:{shape}" for i, shape in enumerate(shapes)]
    wires = " ".join(str(i) for i in range(len(shapes)))
    node = f"node {op}@13 ({wires}) -> ({len(shapes)}:float32:{result}) {attributes}"
    text = "\n".join(["hybridlat-signature 2", *lines, node, f"output {len(shapes)}", ""])
    return {name: float(column[0]) for name, column in columns(text).items()}


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "run", "length"),
    [
        ("Add", ["1x8x5x7", "1x8x5x7"], "{}", 280, 1),
        ("Mul", ["1x8x5x7", "1x8x1x1"], "{}", 35, 1),
        ("Mul", ["1x8x5x7", "1"], "{}", 280, 1),
        ("Mul", ["1x8x1x1", "1"], "{}", 1, 1),
        ("Mul", ["1x8x5x7", "1x1x5x7"], "{}", 35, 1),
        ("Softmax", ["1x8x5x7"], '{"axis":1}', 35, 8),
        ("Softmax", ["1x8x5x7"], "{}", 1, 7),
        ("LRN", ["1x8x5x7"], '{"size":3}', 35, 3),
        ("Transpose", ["1x8x5x7"], '{"perm":[0,2,1,3]}', 7, 1),
        ("Transpose", ["1x8x5x7"], '{"perm":[0,2,3,1]}', 1, 1),
        ("Transpose", ["5x7"], '{"perm":[1,0]}', 1, 1),
        ("Split", ["1x8x5x7"], '{"axis":1}', 280, 1),
        ("com.microsoft::GroupNorm", ["1x5x7x0"], "{}", 0, 1),  # of no channel
    ],
)
def test_stretches_that_are_treated_alike(
    op: str, shapes: list[str], attributes: str, run: int, length: int
) -> None:
    made = shapes[0] if shapes[0] in ("1x8x1x1", "1x5x7x0") else "1x8x5x7"
    result = one_node(op, shapes, made, attributes)
    assert (result["run"], result["length"]) == (run, length)


@pytest.mark.parametrize("perm", [[0, 2, 1, 3], [0, 2, 3, 1], [0, 3, 1, 2], [2, 0, 1, 3], None])
def test_a_transpose_that_moves_one_axis_is_told_from_others(perm: list[int] | None) -> None:
    """ONNX Runtime moves several number by number, twenty times as slowly."""
    shape, attributes = ("2x3x5x7", json.dumps({"perm": perm})) if perm else ("5x7", "{}")
    assert one_node("Transpose", [shape], shape, attributes)["variant"] == 0
    for order in ([3, 2, 1, 0], [2, 3, 0, 1], [1, 0, 3, 2], [2, 1, 0, 3]):
        assert one_node("Transpose", ["2x3x5x7"], "2x3x5x7", json.dumps({"perm": order}))["variant"]


@pytest.mark.parametrize(
    "change",
    [
        ("hybridlat-signature", "something else"),
        ("float32", "float4"),
        ("output", "context lukewarm\noutput"),
        ("28x20", "28xwide"),
        ("2x12", "-2x12"),
        (' {"', " {"),
        ("(0", "(9"),
        ("-> (", "-> ((("),
        ("8x12x3x5", "8"),
        ("28x20", "28x20" + "0" * 400),
        ('"strides":[2,2]', '"strides":{"a":2}'),
        ('"strides":[2,2]', '"strides":[' + "[" * 100_000),
    ],
)
def test_a_foreign_text_is_read_or_is_a_value_error(change: tuple[str, str]) -> None:
    text = conv_text()
    foreign = text.replace(*change)
    assert foreign != text
    if geometry.problem_of(foreign):
        with pytest.raises(ValueError, match="a signature that cannot be read"):
            geometry.geometry([text, foreign])


def test_attributes_of_another_type_count_as_left_out() -> None:
    """Operators of other domains call by these names what they like."""
    odd = HEADER_OF_FOREIGN.format('{"kernel_shape":3,"strides":1.5,"group":0,"mode":[1]}')
    one, other = geometry.geometry([odd]), geometry.geometry([HEADER_OF_FOREIGN.format("{}")])
    assert np.array_equal(one.values, other.values)


def test_geometry_says_itself_what_its_operators_are() -> None:
    """Another process numbers them otherwise: what it is sent must mean the same."""
    cells = geometry.geometry([conv_text(), conv_text(add=True)])
    again = pickle.loads(pickle.dumps(cells))
    values = again.values.copy()
    values[:, geometry.COLUMN["op"]] = 1
    other = geometry.Geometry(values, again.cell, again.cells, ("Gemm", "Conv"))
    assert other.met_ops() == cells.met_ops() == ("Conv",)
    ops = ("MaxPool", "Conv")
    assert other.codes(ops).tolist() == cells.codes(ops).tolist() == [1, 1]
    assert other.codes(("Gemm",)).tolist() == [-1, -1]
    assert other.op(0) == cells.op(0) == "Conv"


def test_a_reorder_to_channels_last_reads_channels_first() -> None:
    op, attributes = "com.microsoft.nchwc::ReorderOutput", '{"channels":416,"channels_last":1}'
    row = one_node(op, ["1x416x38x20"], "1x38x20x416", attributes)
    assert [row[name] for name in ("c_in", "h_in", "w_in")] == [416, 38, 20]


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_types_of_8_bits_are_told_apart(types: tuple[str, str]) -> None:
    activation, weight = types
    variant = 4 + 8 * (activation == "int8") + 16 * (weight == "uint8")
    scale, zero = "float32:", f"{activation}:"
    text = (
        f"hybridlat-signature 2\ninput 0 {activation}:1x16x16x4\n"
        f"node com.microsoft::QLinearConv@1 (0 {scale} {zero} {weight}:8x4x3x3 {scale} {weight}: "
        f"{scale} {zero}) -> (1:{activation}:1x16x16x8) "
        '{"channels_last":1,"pads":[1,1,1,1]}\noutput 1\n'
    )
    assert columns(text)["variant"].tolist() == [variant]
    assert columns(text)["flop"].tolist() == [2.0 * 16 * 16 * 8 * 4 * 9]


def test_a_gather_behind_a_view_reads_no_more_than_it_gives() -> None:
    text = (
        "hybridlat-signature 2\ninput 0 float32:1x1000x91\n"
        "node fused::Gather@1 (0 int64:=0 int64:2=900,100) -> (1:float32:100x91) "
        '{"fused":["Gather"],"wires":["[\\"Split\\",13,[\\"i0\\",\\"i2\\"],'
        '[\\"float32[1x900x91]\\",\\"float32[1x100x91]\\"],{\\"axis\\":1}]",'
        '"[\\"Gather\\",13,[\\"0.1\\",\\"i1\\"],[\\"float32[100x91]\\"],{}]","[\\"1.0\\"]"]}\n'
        "output 1\n"
    )
    row = columns(text)
    assert row["out_bytes"].tolist() == [36400]
    assert 36400 <= row["in_bytes"][0] <= 36400 + 64  # the index, and the sizes of the Split


def test_a_tensor_that_a_kernel_names_twice_is_read_once() -> None:
    row = one_node("Mul", ["1x8x4x4"], "1x8x4x4")
    text = "hybridlat-signature 2\ninput 0 float32:1x8x4x4\n"
    text += "node Mul@14 (0 0) -> (1:float32:1x8x4x4) {}\noutput 1\n"
    square = columns(text)
    assert [square[n][0] for n in ("in_bytes", "inputs")] == [row["in_bytes"], 2]


GOLDEN = Path(__file__).parents[1] / "golden" / "features.json"
CELLS = {
    "resnet 3x3": {"batch": 1, "c_in": 64, "size": (56, 56), "c_out": 64, "kernel": (3, 3),
                   "stride": 1, "pads": (1, 1, 1, 1)},
    "depthwise": {"batch": 1, "c_in": 144, "size": (28, 28), "c_out": 144, "kernel": (3, 3),
                  "stride": 2, "pads": (1, 1, 1, 1), "groups": 144},
    "odd channels": {"batch": 8, "c_in": 30, "size": (14, 14), "c_out": 50, "kernel": (1, 1),
                     "stride": 1, "pads": (0, 0, 0, 0), "add": True},
}  # fmt: skip


def rows_of(texts: list[str], device: str, precision: str) -> np.ndarray:
    cells = geometry.geometry(texts)
    return features.matrix(geometry.View(cells.values, device_sheets.load(device), precision))


def test_golden_table() -> None:
    """Values as they were; a changed formula needs a new model format and a new table."""
    for name, known in json.loads(GOLDEN.read_text()).items():
        (row,) = rows_of([conv_text(**CELLS[name])], "v100", "fp16").tolist()
        made = zip(features.NAMES, row, strict=True)
        assert {k: round(v, 4) for k, v in made} == known


def test_shares_are_shares() -> None:
    texts = [conv_text(**{**CELLS["odd channels"], "c_out": c}) for c in range(1, 300)]
    rows = rows_of(texts, "t4", "fp32")
    for place, (name, unit, _) in enumerate(features.FEATURES):
        if unit.startswith("share"):
            assert 0 <= rows[:, place].min() <= rows[:, place].max() <= 1, name
    assert np.isfinite(rows).all()
