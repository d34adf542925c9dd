"""What the cells of a network are made of: places in order, paths, kernels, and their work."""

import dataclasses
from pathlib import Path
from typing import Any

import onnx
import pytest

from hybridlat import Predictor, onnx_io, predict
from hybridlat.estimate.structure import _kernels, common_path
from hybridlat.model.geometry import geometry
from hybridlat.report.cell_texts import what_text
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.structure import CellStructure
from hybridlat.schema.target import Device
from tests.engines.test_quantised import FLOATS, PLAIN, QDQ, WEIGHTS
from tests.estimate.known import make_known
from tests.networks import NETS
from tests.onnx_io.test_reading_shapes import model

EPYC, L4 = "epyc-26-2/onnxruntime-1.31/fp32/1t", "l4/tensorrt/fp16"


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Estimate:
    store = str(tmp_path_factory.mktemp("store") / "s.db")
    with Predictor(EPYC, store=store, measure="never") as predictor:
        first = predictor.predict(NETS / "resnet18.onnx", describe=True)
        again = predictor.predict(NETS / "resnet18.onnx", describe=True)
    assert first.structure == again.structure
    with Predictor(EPYC, store=store, measure="never") as predictor:  # from the cached partition
        assert predictor.predict(NETS / "resnet18.onnx", describe=True).structure == first.structure
        assert predictor.predict(NETS / "resnet18.onnx").structure is None
    return first


def test_places_are_the_network_in_order_and_hold_every_operator_once(resnet: Estimate) -> None:
    structure = resnet.structure
    assert structure is not None
    paths = [place.path for place in structure.places]
    assert paths[:6] == ["conv1", "maxpool", "layer1.0", "layer1.1", "layer2.0", "layer2.1"]
    assert [p.reads for p in structure.places] == [(i - 1,) for i in range(len(structure.places))]
    names = [n for place in structure.places for kernel in place.names for n in kernel]
    assert sorted(names) == sorted(n for cell in resnet.cells for n in cell.nodes)
    counts = [len(structure.paths(i)) for i in range(len(resnet.cells))]
    assert counts == [cell.uses for cell in resnet.cells]
    for place in structure.places:
        assert len(place.names) == len(structure.cells[place.cell].kernels)


def test_kernels_know_what_they_read_and_compute(resnet: Estimate) -> None:
    assert resnet.structure is not None
    (place,) = [p for p in resnet.structure.places if p.path == "layer2.0"]
    cell = resnet.structure.cells[place.cell]
    assert sorted(kernel.op for kernel in cell.kernels) == ["Conv", "Conv+Add+Relu", "Conv+Relu"]
    # What a kernel is called and the names behind it belong together in every use.
    for kernel, names in zip(cell.kernels, place.names, strict=True):
        assert len(kernel.op.split("+")) == len(names)
    last = next(k for k in cell.kernels if "Add" in k.op)
    assert set(last.reads) == {0, 1} and last.output_shape == (1, 128, 28, 28)
    assert cell.flop == 2 * 28 * 28 * 128 * (64 * 9 + 128 * 9 + 64)


def test_limits_come_from_what_the_target_knows_of_its_device(resnet: Estimate) -> None:
    assert resnet.structure is not None and resnet.structure.roofs is not None
    body = resnet.to_json()
    (cell,) = [c for c in body["cells"] if "layer1.0" in c["paths"]]
    assert cell["limit"] == "compute" and 0.9 < cell["limit_share"] < 1.15
    assert "structure" not in body
    assert "limit" not in dataclasses.replace(resnet, structure=None).to_json()["cells"][0]


def test_nothing_is_said_of_a_device_that_nobody_described(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    make_known("nobody", store)
    with Predictor("nobody/onnxruntime-1.31/fp32/1t", store=store, measure="never") as predictor:
        structure = predictor.predict(NETS / "squeezenet.onnx", describe=True).structure
    assert structure is not None and structure.roofs is None
    assert all(cell.limit(100.0) is None for cell in structure.cells)
    assert sum(cell.flop for cell in structure.cells) > 1e8


def test_a_sheet_given_for_the_device_is_its_roof(tmp_path: Path) -> None:
    sheet = Device("mine", "gpu", {"fp32": 1e13, "fp16": 4e13}, 1e12, 40, 1e9, launch_us=3.0)
    store = str(tmp_path / "s.db")
    with Predictor("mine/tensorrt/fp16", store=store, measure="never", device=sheet) as predictor:
        structure = predictor.predict(NETS / "resnet18.onnx", describe=True).structure
    assert structure is not None and structure.roofs is not None
    assert structure.roofs.peak_flop_per_s == 4e13
    pool = next(c for c in structure.cells if len(c.kernels) == 1 and "Pool" in c.kernels[0].op)
    assert pool.kernels[0].work.launch_us == 3.0
    assert pool.limit(4.0) == ("launch", 0.75)


@pytest.mark.parametrize(
    ("text", "weights", "is_known"), [(QDQ, WEIGHTS, False), (PLAIN, FLOATS, True)]
)
def test_a_cpu_has_no_roof_for_narrow_numbers(
    text: str, weights: Any, is_known: bool, tmp_path: Path
) -> None:
    with Predictor(EPYC, store=str(tmp_path / "s.db"), measure="never") as predictor:
        estimate = predictor.predict(model(text, weights), describe=True)
    assert estimate.structure is not None
    assert (estimate.structure.roofs is not None) == is_known
    assert (estimate.peak_flops is not None) == is_known
    estimate.to_html(tmp_path / "page.html")
    assert ("Roofs: " in (tmp_path / "page.html").read_text()) == is_known


@pytest.mark.parametrize(
    ("paths", "shared"),
    [
        ([], ""), (["", ""], ""), (["layer3.0.conv1", "", "layer3.0.conv2"], "layer3.0"),
        (["conv1", "conv1"], "conv1"), (["conv1", "maxpool"], "conv1…maxpool"),
        (["res4_1_branch2a", "res4_1_branch2c"], "res4_1"), (["conv_1", "conv_2"], "conv_1…conv_2"),
    ],
)  # fmt: skip
def test_the_path_of_a_cell_is_what_its_kernels_share(paths: list[str], shared: str) -> None:
    assert common_path(paths) == shared


def model_of(body: str) -> onnx.ModelProto:
    return model(
        "g (float[1,1,8,8] x) => (float[1,1,8,8] y) "
        f"<float[1,1,1,1] head_conv_weight = {{1.0}}, float[1,1,1,1] v_7 = {{1.0}}, "
        f"int64[4] size = {{1, 1, 1, 1}}> {{ {body} }}"
    )


def test_module_paths_are_read_from_scopes_names_and_weights() -> None:
    made = model_of("a = Relu(x)  b = Conv(a, head_conv_weight)  c = Conv(b, v_7)  y = Relu(c)")
    nodes = made.graph.node
    entry = nodes[0].metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", "['', 'stem', 'stem.act', 'relu_1']"
    nodes[3].name = "/stages/stages.1/blocks/blocks.0/act/Relu"
    nodes[2].name = "net/act/Relu6;net/block_pad/Pad;net/block/Conv2D__27"  # TFLite's
    file = onnx_io.load(made)
    assert file.facts.module_paths == ("stem.act", "head_conv", "net.act", "stages.1.blocks.0.act")
    for body, path in (  # weights that are made lend their names
        ("layer1_w_0 = ConstantOfShape(size)  y = Conv(x, layer1_w_0)", "layer1"),
        ("w = Transpose(head_conv_weight)  y = Conv(x, w)", "head_conv"),
    ):
        assert onnx_io.load(model_of(body)).facts.module_paths[1] == path


QUANTISED = """g (float[1,4,16,16] x) => (float[1,8,16,16] y)
    <int8[8,4,1,1] q = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},
     float one = {0.5}, int8 zero = {0}, uint8 none = {0}>
  { small = QuantizeLinear(x, one, none)  back = DequantizeLinear(small, one, none)
    w = DequantizeLinear(q, one, zero)  wide = Conv(back, w)
    out = QuantizeLinear(wide, one, none)  y = DequantizeLinear(out, one, none) }"""


@pytest.mark.parametrize("target", ["l4/tensorrt/int8", "epyc-26-2/onnxruntime-1.31/int8/1t"])
def test_what_makes_a_weight_from_whole_numbers_is_not_named(target: str, tmp_path: Path) -> None:
    made = model(QUANTISED)
    for node in made.graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    estimate = predict(made, target, store=str(tmp_path / "s.db"), measure="never")
    structure = estimate.structure
    assert structure is not None
    named = [name for place in structure.places for kernel in place.names for name in kernel]
    assert "Conv_wide" in named and "DequantizeLinear_w" not in named
    # The JSON has all of them, in cells or among what is removed.
    every = {*estimate.removed, *(name for cell in estimate.cells for name in cell.nodes)}
    assert every == {node.name for node in made.graph.node}


@pytest.mark.parametrize("target", [L4, "l4/torch-compile-2.9/amp"])
def test_every_operator_is_somewhere_exactly_once(target: str, tmp_path: Path) -> None:
    path = NETS / "mobilenetv2_100.onnx"
    estimate = predict(path, target, store=str(tmp_path / "s.db"), measure="never")
    named = [node for cell in estimate.cells for node in cell.nodes]
    assert sorted([*named, *estimate.removed]) == sorted(onnx_io.load(path).facts.node_names)
    assert 40 < estimate.constants <= len(estimate.removed)
    assert not any("ConstantOfShape" in w or "constants" in w for w in map(str, estimate.warnings))
    # Constants come last, so that the others can be named first.
    file = onnx_io.load(path)
    constants = {file.facts.node_names[i] for i in file.facts.constant_nodes}
    others = estimate.removed[: len(estimate.removed) - estimate.constants]
    assert not constants.intersection(others)
    assert constants.issuperset(estimate.removed[len(others) :])


def test_weights_what_makes_them_and_shapes_are_constants() -> None:
    made = model("""g (float[1,8] x) => (float[1,8] y) <float one = {1.0}, int64[2] size = {8, 8}>
      { made = ConstantOfShape(size)  w = Mul(made, one)  s = Shape(x)  same = Identity(x)
        flat = Reshape(same, s)  p = MatMul(flat, w)  y = Relu(p) }""")
    facts = onnx_io.load(made).facts
    constants = {facts.op_types[i] for i in facts.constant_nodes}
    assert constants == {"ConstantOfShape", "Mul", "Shape"}


# Turned round for an operator that has no quantised kernel, and back.
TURNED = """hybridlat-signature 2
input 0 uint8:1x56x48x32
node com.microsoft::QLinearConv@1 \
(0 float32: uint8: int8:32x32x3x3 float32: int8: float32: uint8:) -> (1:uint8:1x56x48x32) \
{"auto_pad":"NOTSET","channels_last":1,"group":1,"kernel_shape":[3,3],"pads":[1,1,1,1]}
node Transpose@13 (1) -> (2:uint8:1x32x56x48) {"perm":[0,3,1,2]}
node Celu@12 (2) -> (3:uint8:1x32x56x48) {}
node Transpose@13 (3) -> (4:uint8:1x56x48x32) {"perm":[0,2,3,1]}
output 4
context small
"""


# A blocked result whose channels a reorder puts last, as the grid of a map with its channels first.
SAMPLED = """hybridlat-signature 2
input 0 float32:1x32x160x120
node com.microsoft.nchwc::ReorderOutput@1 (0) -> (1:float32:1x32x160x120) \
{"channels":32,"channels_last":0}
node com.microsoft.nchwc::Conv@1 (0 float32:16x32x3x3 float32:16) -> (2:float32:1x16x160x120) \
{"activation":"Tanh","pads":[1,1,1,1]}
node com.microsoft.nchwc::ReorderOutput@1 (2) -> (3:float32:1x160x120x2) \
{"channels":2,"channels_last":1}
node GridSample@16 (1 3) -> (4:float32:1x32x160x120) {}
output 4
context small
"""


@pytest.mark.parametrize(
    ("text", "channels", "shown"),
    [
        (TURNED, [32, 32, 32, 32], "32, 3×3, 56×48 int8"),
        (SAMPLED, [32, 16, 2, 32], "32, 3×3, 160×120"),
    ],
)
def test_channels_are_first_in_what_is_said(text: str, channels: list[int], shown: str) -> None:
    kernels = _kernels(text)
    assert [kernel.output_shape[1] for kernel in kernels] == channels
    assert what_text(CellStructure(kernels)) == shown


def test_scales_are_no_sum_and_no_bias_of_a_quantised_convolution() -> None:
    plain = geometry([TURNED])
    assert plain.column("has_add")[0] == plain.column("has_bias")[0] == 0
    assert geometry([TURNED.replace("float32:", "float32:32")]).column("has_bias")[0] == 0
    biased = TURNED.replace("uint8:) ->", "uint8: int32:32) ->")
    assert geometry([biased]).column("has_bias")[0] == 1
    sizes = [int(plain.column(name)[0]) for name in ("c_in", "h_in", "w_in", "c_out", "h_out")]
    assert sizes == [32, 56, 48, 32, 56]
