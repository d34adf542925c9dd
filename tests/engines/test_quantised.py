"""Quantised networks: what each engine makes of them, and in which target they end up."""

from dataclasses import replace

import onnx
import onnx.parser
import pytest

from hybridlat.engines import registry
from hybridlat.engines.registry import precision_notes, resolve
from hybridlat.errors import MeasurementError, NetworkError
from hybridlat.estimate.partition import partition_network
from hybridlat.graph.cells import cut
from hybridlat.graph.signature import sign
from hybridlat.model.geometry import View, geometry
from hybridlat.onnx_io import load, read_network
from hybridlat.schema.target import Device, Target
from tests.engines.test_backends import assert_accounted
from tests.onnx_io.test_precision import BF16, FLOAT, HALF, INT8
from tests.onnx_io.test_reading_shapes import model

HERE = Target.parse("here/onnxruntime-1.31/int8/1t")
TENSORRT = Target.parse("h100/tensorrt-8.6/int8")
CONV = "Conv<pads=[1,1,1,1]>"
WEIGHTS = {"w": (INT8, [16, 8, 3, 3]), "v": (INT8, [16, 16, 3, 3])}
WEIGHTS |= {"ws": (FLOAT, [16]), "wz": (INT8, [16]), "k": (INT8, [1, 16, 1, 1])}
FLOATS = {"k": (FLOAT, [1, 16, 1, 1]), "w": (FLOAT, [16, 8, 3, 3]), "v": (FLOAT, [16, 16, 3, 3])}
SCALES = "float s = {0.02}, uint8 z = {0}"
QDQ = f"""g (float[1,8,9,9] x) => (float[1,16,9,9] y) <{SCALES}>
  {{ xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
    wd = DequantizeLinear<axis=0>(w, ws, wz)  c = {CONV}(xd, wd)  r = Relu(c)
    rq = QuantizeLinear(r, s, z)  rd = DequantizeLinear(rq, s, z)
    vd = DequantizeLinear<axis=0>(v, ws, wz)  d = {CONV}(rd, vd)
    dq = QuantizeLinear(d, s, z)  dd = DequantizeLinear(dq, s, z)
    a = Add(dd, rd)  aq = QuantizeLinear(a, s, z)  y = DequantizeLinear(aq, s, z) }}"""
QOPERATOR = f"""g (float[1,8,9,9] x) => (float[1,16,9,9] y) <{SCALES}>
  {{ xq = QuantizeLinear(x, s, z)  r = QLinear{CONV}(xq, s, z, w, ws, wz, s, z)
    d = QLinear{CONV}(r, s, z, v, ws, wz, s, z)
    a = com.microsoft.QLinearAdd(d, s, z, r, s, z, s, z)  y = DequantizeLinear(a, s, z) }}"""
PLAIN = f"""g (float[1,8,9,9] x) => (float[1,16,9,9] y)
  {{ c = {CONV}(x, w)  r = Relu(c)  d = {CONV}(r, v)  y = Add(d, r) }}"""


def cells_of(made: onnx.ModelProto, target: Target) -> list[str]:
    network = read_network(made)
    lowered = registry.lower(network, target)
    return [sign(cell.network).text for cell in cut(lowered, network)]


TWICE = "pq = QuantizeLinear(r, s, z)  pd = DequantizeLinear(pq, s, z)  a = Add(dd, pd)"


@pytest.mark.parametrize("other", [QOPERATOR, QDQ.replace("a = Add(dd, rd)", TWICE)])
def test_the_ways_to_write_a_quantised_network_are_the_same_cells(other: str) -> None:
    """As operators, or with a tensor quantised anew, by the same numbers, for each reader."""
    assert cells_of(model(QDQ, WEIGHTS), HERE) == cells_of(model(other, WEIGHTS), HERE)


def test_a_kernel_goes_by_what_it_computes_and_holds_what_it_rounds() -> None:
    file = load(model(QDQ, WEIGHTS))
    network = file.network()
    lowered = registry.lower(network, HERE)
    labels = [label for cell in cut(lowered, network) for label in cell.ops]
    assert "int8 Conv+Relu" in labels and "int8 Add" in labels
    assert not any("Linear+" in label or "+Quant" in label for label in labels)
    assert_accounted(network, lowered)
    partition = partition_network(network, lowered, file.facts.node_names)
    assert not partition.removed


def test_a_kernel_holds_its_operator_not_the_one_that_prepares_its_bias() -> None:
    """ONNX Runtime quantises a bias of floats, by an operator named after the convolution."""
    text = f"""g (float[1,8,9,9] x) => (float[1,16,9,9] y) <{SCALES}, int8 o = {{0}}>
      {{ xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
        wd = DequantizeLinear(w, s, o)  c = ConvTranspose<pads=[1,1,1,1]>(xd, wd, b)
        cq = QuantizeLinear(c, s, z)  y = DequantizeLinear(cq, s, z) }}"""
    network = read_network(model(text, {"w": (INT8, [8, 16, 3, 3]), "b": (FLOAT, [16])}))
    lowered = registry.lower(network, HERE)
    assert_accounted(network, lowered)
    each = dict(zip([n.op for n in lowered.network.nodes], lowered.origins, strict=True))
    assert [network.nodes[i].op for i in each["ConvTranspose"]] == ["ConvTranspose"]


SYMMETRIC = QDQ.replace("uint8 z = {0}", "int8 z = {0}")
WITHOUT_RELU = SYMMETRIC.replace("r = Relu(c)", "").replace("(r, s, z)", "(c, s, l)")
WITHOUT_RELU = WITHOUT_RELU.replace("(rq, s, z)", "(rq, s, l)")
SKEWED = QOPERATOR.replace("z = {0}", "z = {0}, uint8 o = {128}")
SKEWED = SKEWED.replace("v, ws, wz, s, z)", "v, ws, wz, s, o)").replace("(a, s, z)", "(a, s, o)")
SKEWED = SKEWED.replace("(d, s, z, r, s, z, s, z)", "(d, s, o, r, s, z, s, o)")
KEPT_RELU = "cq = QuantizeLinear(c, s, l)  cd = DequantizeLinear(cq, s, l)  r = Relu(cd)"
KEPT_RELU = SYMMETRIC.replace("r = Relu(c)", KEPT_RELU).replace(
    "z = {0}", "z = {0}, int8 l = {-128}"
)
NARROW_RANGE = SYMMETRIC.replace(
    "z = {0}", "z = {0}, int8 least = {-127}, int8 most = {127}"
).replace("xd = DequantizeLinear(xq,", "xc = Clip(xq, least, most)  xd = DequantizeLinear(xc,")
OWN_RANGE = """{0}, {0}s, {0}z = DynamicQuantizeLinear({1})
    {2}i = ConvInteger<pads=[1,1,1,1]>({0}, {3}, {0}z)  {2}f = Cast<to=1>({2}i)
    {2}n = Mul({0}s, s)  {2} = Mul({2}f, {2}n)"""
OF_ITS_RANGE = f"""g (float[1,8,9,9] x) => (float[1,16,9,9] y) <{SCALES}>
  {{ {OWN_RANGE.format("xq", "x", "c", "w")}  r = Relu(c)
    {OWN_RANGE.format("rq", "r", "d", "v")}  y = Add(d, r) }}"""
UP_TO_6 = WITHOUT_RELU.replace("(c, s, l)", "(c, t, l)")
RELU6 = PLAIN.replace("y)\n", "y) <float lo = {0}, float hi = {6}>\n")
RELU6 = RELU6.replace("Relu(c)", "Clip(c, lo, hi)")
FED = SYMMETRIC.replace("float[1,8,9,9] x", "int8[1,9,9,8] t").replace(
    "xq = QuantizeLinear(x, s, z)", "xq = Transpose<perm=[0,3,1,2]>(t)"
)
TURNED = PLAIN.replace("float[1,8,9,9] x", "float[1,9,9,8] t").replace(
    "{ c", "{ x = Transpose<perm=[0,3,1,2]>(t)  c"
)
DYNAMIC = SYMMETRIC.replace(
    "xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)",
    "xq, xs, xz = DynamicQuantizeLinear(x)  xd = DequantizeLinear(xq, xs, xz)",
)
KEPT = SYMMETRIC.replace("(r, s, z)", "(r, s, l)").replace("(d, s, z)", "(d, s, l)")
CHAIN = "g (float[1,16,9,9] d0) => (float[1,16,9,9] y)"
POSITIVE = f"{CHAIN} <float s = {{0.02}}, int8 z = {{0}}, int8 l = {{-128}}>" + " ".join(
    ["{ vd = DequantizeLinear<axis=0>(v, ws, wz)  kd = DequantizeLinear(k, s, z)"]
    + [
        f"c{i} = {CONV}(d{i}, vd)  q{i} = QuantizeLinear(c{i}, s, {zero})"
        f"  d{i + 1} = DequantizeLinear(q{i}, s, {zero})"
        for i, zero in enumerate("zzzzzlzzzzz")
    ]
    + ["y = Mul(kd, d11) }"]
)
CHAIN += " ".join(["{", *[f"d{i + 1} = {CONV}(d{i}, v)" for i in range(11)], "y = Mul(k, d11) }"])


@pytest.mark.parametrize("target", ["h100/tensorrt-8.6/int8", "h100/torch-2.4/fp16"])
@pytest.mark.parametrize(
    ("quantised", "plain"),
    [
        (SYMMETRIC, PLAIN),
        (WITHOUT_RELU.replace("z = {0}", "z = {0}, int8 l = {-128}"), PLAIN),
        (WITHOUT_RELU.replace("z = {0}", "z = {0}, uint8 l = {0}"), PLAIN),
        (SKEWED, PLAIN),
        (SKEWED.replace("pads=[1,1,1,1]", 'auto_pad="SAME_UPPER"'), PLAIN),
        (KEPT_RELU, PLAIN),
        (POSITIVE, CHAIN),
        (NARROW_RANGE, PLAIN),
        (FED, TURNED),
        (DYNAMIC, PLAIN),
        (OF_ITS_RANGE, PLAIN),
        (KEPT.replace("z = {0}", "z = {0}, int8 l = {-128}"), PLAIN),
        (UP_TO_6.replace("z = {0}", "z = {0}, int8 l = {-128}, float t = {0.0235294}"), RELU6),
    ],
)
def test_quantised_files_have_cells_of_floats(quantised: str, plain: str, target: str) -> None:
    """Where the target says the precision; tools leave activations to the zero points."""
    at = Target.parse(target)
    assert cells_of(model(quantised, WEIGHTS), at) == cells_of(model(plain, FLOATS), at)


@pytest.mark.parametrize("target", ["b200/tensorrt/fp16", "rtx-4090/tensorrt/int8"])
@pytest.mark.parametrize(
    "dtype", ["float8e4m3fn", "float8e5m2", "float4e2m1", "int4", "uint4", "int16"]
)
def test_tensorrt_refuses_what_is_quantised_to_no_8_bits(dtype: str, target: str) -> None:
    number = onnx.TensorProto.DataType.Value(dtype.upper())
    text = f"""g (float[1,64] x) => (float[1,64] y) <float s = {{0.02}}> {{
      q = QuantizeLinear<output_dtype={number}>(x, s)  d = DequantizeLinear(q, s)  y = Relu(d) }}"""
    network = read_network(model(text, opset=23))
    with pytest.raises(NetworkError, match=f"quantised to {dtype}, in which no .* to int8"):
        registry.lower(network, Target.parse(target))
    assert registry.lower(network, Target.parse("h100/torch-2.4/fp16"))


def test_tensorrt_refuses_what_finds_its_scale_on_the_way() -> None:
    """TensorFlow Lite's products with weights in int8 are written so."""
    (warning,) = registry.lower(read_network(model(DYNAMIC, WEIGHTS)), TENSORRT).warnings
    assert warning.startswith("TensorRT reads no DynamicQuantizeLinear, one of 1 such")


@pytest.mark.parametrize("dtype", ["int4", "int8"])
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_tensorrt_says_what_it_answers_where_weights_alone_are_narrow(
    dtype: str, precision: str
) -> None:
    text = f"""g (float[1,8,9,9] x) => (float[1,16,9,9] y) <float s = {{0.02}}> {{
      wd = DequantizeLinear(w, s)  y = {CONV}(x, wd) }}"""
    weight = onnx.TensorProto.DataType.Value(dtype.upper()), [16, 8, 3, 3]
    made, target = model(text, {"w": weight}, opset=23), Target.parse(f"h100/tensorrt/{precision}")
    warnings = registry.lower(read_network(made), target).warnings
    assert any(f"weights are stored in {dtype}: the latency is" in each for each in warnings)
    assert any("in floats" in each for each in warnings) == (precision == "int8")
    whole = registry.lower(read_network(model(SYMMETRIC, WEIGHTS)), target)
    assert not any("stored" in each for each in whole.warnings)


def test_packed_weights_are_read_as_they_are_stored_at_every_precision() -> None:
    text = """g (float[16,64] x) => (float[16,32] y) { y = com.microsoft.MatMulNBits
      <K=64, N=32, bits=BITS, block_size=32, accuracy_level=0>(x, w, s) }"""
    device, read = Device("d", "gpu", {"fp32": 1e12}, 1e11, 1, 1e9), dict[int, list[float]]()
    for bits in (4, 8):
        weights = {"w": (onnx.TensorProto.UINT8, [32, 2, 4 * bits]), "s": (FLOAT, [64])}
        made = model(text.replace("BITS", str(bits)), weights)
        cells = geometry(cells_of(made, Target.parse("h100/tensorrt/fp16")))
        views = [View(cells.values, device, precision) for precision in ("fp32", "fp16", "int8")]
        read[bits] = [float(view.moved_weight_bytes[0]) for view in views]
    assert read == {bits: [64 * 32 * bits / 8 + 64 * 4] * 3 for bits in (4, 8)}


def test_the_geometry_of_a_quantised_convolution_is_that_of_its_weight() -> None:
    text = cells_of(model(QOPERATOR, WEIGHTS), HERE)
    cells = geometry(text)
    rows = [i for i in range(len(cells.values)) if cells.op(i).endswith("QLinearConv")]
    names = ("m", "n", "k", "c_in", "c_out", "h_out", "w_out", "k_h")
    read = [[int(cells.column(name)[row]) for name in names] for row in rows]
    assert read == [[81, 16, 72, 8, 16, 9, 9, 3], [81, 16, 144, 16, 16, 9, 9, 3]]
    narrow = Device("d", "cpu", {"fp32": 1e12, "int8": 4e12}, 1e11, 1, 1e9)
    view = View(cells.values, narrow, "fp32")
    assert view.compute_us[rows[0]] == pytest.approx(2 * 81 * 16 * 72 / 4e12 * 1e6)


def test_an_engine_that_keeps_the_precision_of_files_answers_under_it() -> None:
    single, half = map(Target.parse, ("here/onnxruntime-1.31/fp32/1t", "h100/tensorrt/fp16"))
    assert registry.at_precision(single, "int8") == HERE
    assert registry.at_precision(half, "int8").precision == "fp16"
    assert single in registry.same_cell_targets(HERE)
    assert HERE not in registry.same_cell_targets(HERE)
    assert registry.same_cell_targets(TENSORRT) == ()
    (note,) = precision_notes(single, "int8", "int8")
    assert "here/onnxruntime-1.31/int8/1t, not here/onnxruntime-1.31/fp32/1t" in note
    assert precision_notes(single, "fp32", "fp32") == []
    (note,) = precision_notes(half, "int8", "int8")
    assert note.endswith("the target is h100/tensorrt/int8")
    (note,) = precision_notes(replace(half, precision="fp32"), "fp16", "fp16")
    assert note.endswith(f"in fp16, and this is its latency in fp32: for fp16 the target is {half}")
    (note,) = precision_notes(Target.parse("h100/torch-2.4/fp16"), "int8", "int8")
    assert note.endswith("is quantised, and this is its latency in fp16")  # PyTorch has no int8
    assert precision_notes(TENSORRT, "fp16", "fp16") == []
    mixed = precision_notes(TENSORRT, "int8", "mixed: 2 of 3")
    latency = "this is its latency with all of it in int8"
    assert mixed == [f"the network computes in mixed: 2 of 3; {latency}"]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_an_engine_that_computes_half_precision_in_fp32_answers_under_that(precision: str) -> None:
    single = Target.parse("here/openvino-2026.4/fp32/1t")
    assert registry.at_precision(single, precision) == single
    assert registry.at_precision(single, "int8").precision == "int8"
    half = replace(single, precision=precision)
    assert not registry.can_measure(half) and half not in registry.same_cell_targets(single)
    (note,) = precision_notes(half, precision, precision)
    assert note == f"OpenVINO computes a file in {precision} in fp32: this is {single}, not {half}"


LINEAR = "{ xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z) STEPS y = MatMul(xd, t) }"
HEAD = f"g (float[1,6,8] x) => (float[1,6,16] y) <{SCALES}, int64[2] to = {{8, 16}}>"
ARRANGED = {
    "transposed": "t = Transpose<perm=[1,0]>(wd)",
    "reshaped": "t = Reshape(wd, to)",
    "scaled": "u = Transpose(wd)  t = Mul(u, ws)",
    "rounded": "q = QuantizeLinear(wd, s, z)  d = DequantizeLinear(q, s, z)  t = Transpose(d)",
}


@pytest.mark.parametrize("how", ARRANGED)
@pytest.mark.parametrize("target", ["h100/tensorrt-8.6/int8", "l4/tensorrt-10.3/fp16"])
def test_what_arranges_a_stored_weight_is_done_once(how: str, target: str) -> None:
    """ModelOpt writes every Linear so: a stored weight, dequantised and then transposed."""
    stored = f"wd = DequantizeLinear<axis=0>(w, ws, wz)  {ARRANGED[how]}"
    made = model(HEAD + LINEAR.replace("STEPS", stored), {**WEIGHTS, "w": (INT8, [16, 8])})
    product = "g (float[1,6,8] x) => (float[1,6,16] y) { y = MatMul(x, w) }"
    plain = model(product, {"w": (FLOAT, [8, 16])})
    assert cells_of(made, Target.parse(target)) == cells_of(plain, Target.parse(target))
    network = read_network(made)
    lowered = registry.lower(network, Target.parse(target))
    assert_accounted(network, lowered)


NARROWED = """g (float[1,8,9,9] x) => (float[1,16,9,9] y)
  {{ h = Cast<to={0}>(x)  c = Conv<pads=[1,1,1,1]>(h, w)  r = Relu(c)  f = Cast<to=1>(r)
    u = Cast<to=6>(f)  g = Cast<to={0}>(u)  d = Conv<pads=[1,1,1,1]>(g, v)  s = Sigmoid(d)
    m = Mul(d, s)  y = Cast<to=1>(m) }}"""


@pytest.mark.parametrize(
    "target", ["l4/tensorrt-8.6/int8", "l4/tensorrt/bf16", "l4/tensorrt/fp32", "l4/torch-2/fp16"]
)
@pytest.mark.parametrize("dtype", [BF16, HALF])
def test_a_narrowed_file_has_the_cells_of_the_whole_one(dtype: int, target: str) -> None:
    """Be some of it kept in FP32 or not, and what goes in and out: the target says what fuses."""
    narrow = model(NARROWED.format(dtype), {n: (dtype, FLOATS[n][1]) for n in "wv"})
    narrow.opset_import[0].version = 22  # the first with convolutions in BF16
    whole = model(NARROWED.format(FLOAT), FLOATS)
    at = Target.parse(target)
    assert cells_of(narrow, at) == cells_of(whole, at)
    lowered = registry.lower(read_network(narrow), at)
    assert_accounted(read_network(narrow), lowered)


@pytest.mark.parametrize("dtype", ["bfloat16", "double"])
def test_what_a_cpu_has_no_kernels_for_is_refused_with_what_to_do(dtype: str) -> None:
    text = f"g ({dtype}[1,8,9,9] x) => ({dtype}[1,16,7,7] y) {{ y = Conv(x, w) }}"
    weight = {"w": (BF16 if dtype == "bfloat16" else 11, [16, 8, 3, 3])}
    with pytest.raises(MeasurementError, match=r"Could not find .* export the model in FP32"):
        registry.lower(read_network(model(text, weight, opset=22)), HERE)


def test_the_engine_starts_for_files_of_another_precision() -> None:
    here = resolve(None).target
    quantised = resolve(registry.at_precision(here, "int8"))
    assert quantised.backend is not None
    assert str(quantised.backend.target) == str(here).replace("/fp32/", "/int8/")
    assert quantised.backend.options == {"threads": 1, "precision": "int8"}
