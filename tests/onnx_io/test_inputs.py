"""The sizes of a file's inputs: which of them are the batch, and which go by one name."""

import onnx
import pytest

from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, TensorType
from hybridlat.onnx_io import read_network
from tests.onnx_io.test_reading_shapes import model, ops

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
]


@pytest.mark.parametrize(("text", "batch", "shapes", "expected"), BOUND)
def test_the_sizes_of_inputs(
    text: str, batch: int | None, shapes: dict[str, Shape], expected: list[Shape]
) -> None:
    assert shapes_of(read_network(model(text), batch, shapes)) == expected


@pytest.mark.parametrize(
    ("text", "shapes"),
    [(NAMED, {"x": (2, 3, 4, 4)}), (NAMED, {"mask": (2, 1, 4, 4)}), (PAIR, {"x": (1, 3, 8, 8)}),
     (FREE, {"x": (1, 3, 8, 8)}), (MASK, {"x": (1, 3, 8, 8)})],
)  # fmt: skip
def test_a_batch_that_a_shape_contradicts_is_refused(text: str, shapes: dict[str, Shape]) -> None:
    with pytest.raises(NetworkError, match=r"the batch 8 contradicts .* write --shape x:8x3"):
        read_network(model(text), batch=8, shapes=shapes)
    whole = {name: (8, *shape[1:]) for name, shape in shapes.items()}
    assert shapes_of(read_network(model(text), batch=8, shapes=whole))[0][0] == 8


@pytest.mark.parametrize(("domain", "op"), [("TRT.", "EfficientNMS_TRT"), ("", "BatchedNMS_TRT")])
@pytest.mark.parametrize("batch", ["1", "N"])
def test_results_of_operators_unknown_to_onnx_are_stated(domain: str, op: str, batch: str) -> None:
    """An end-to-end detector states them as outputs alone; a name is the size of the input's."""
    made = model(f"""g (float[{batch},4,8,8] x)
        => (int32[{batch},1] count, float[{batch},9,4] boxes)
      {{ r = Relu(x)  count, boxes = {domain}{op}(r, r) }}""")
    network = read_network(made, batch=None if batch == "1" else 2)
    assert ops(network) == ["Relu", op]
    size = 1 if batch == "1" else 2
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
