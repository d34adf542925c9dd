"""In which precision a file computes, and what becomes of quantised weights when it is read."""

import onnx
import onnxruntime
import pytest

from hybridlat.engines.registry import precision_notes
from hybridlat.errors import NetworkError
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import load, read_network, to_onnx
from hybridlat.schema.target import Target
from tests.onnx_io.test_reading_shapes import model

SCALES = "float s = {0.02}, uint8 z = {0}, float t = {0.5}, int8 o = {0}"


INT8, FLOAT, HALF, BF16, INT4 = 3, 1, 10, 16, 22
BY_CHANNEL = {"w": (INT8, [16, 8, 3, 3]), "ws": (FLOAT, [16]), "wz": (INT8, [16])}
QDQ = model(
    f"""g (float[1,8,9,9] x) => (float[1,16,9,9] y) <{SCALES}>
    {{ xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
      wd = DequantizeLinear<axis=0>(w, ws, wz)  bd = DequantizeLinear<axis=0>(b, bs)
      c = Conv<pads=[1,1,1,1]>(xd, wd, bd)  r = Relu(c)
      yq = QuantizeLinear(r, s, z)  y = DequantizeLinear(yq, s, z) }}""",
    {**BY_CHANNEL, "b": (6, [16]), "bs": (FLOAT, [16])},
)
WEIGHT_ONLY = model(
    f"""g (float[1,8,9,9] x) => (float[1,16,7,7] y) <{SCALES}>
    {{ wd = DequantizeLinear<axis=0>(w, ws, wz)  y = Conv(x, wd) }}""",
    BY_CHANNEL,
)
QOPERATOR = model(
    f"""g (uint8[1,8,9,9] x) => (uint8[1,16,7,7] y) <{SCALES}>
    {{ y = QLinearConv(x, s, z, w, t, o, s, z) }}""",
    {"w": (INT8, [16, 8, 3, 3])},
)
MIXED = model(
    f"""g (float[4,8] x) => (float[4,8] y) <{SCALES}>
    {{ xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
      ad = DequantizeLinear(a, t, o)  bd = DequantizeLinear(b, t, o)
      m = MatMul(xd, ad)  mq = QuantizeLinear(m, s, z)  md = DequantizeLinear(mq, s, z)
      n = MatMul(md, bd)  y = MatMul(n, c) }}""",
    {"a": (INT8, [8, 8]), "b": (INT8, [8, 8]), "c": (FLOAT, [8, 8])},
)
FLOAT8 = model(
    """g (float[4,8] x) => (float[4,8] y) <float s = {0.1}, float8e4m3fn z = {0}>
    { xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
      ad = DequantizeLinear(a, s, z)  y = MatMul(xd, ad) }""",
    {"a": (17, [8, 8])},
    opset=19,
)
FOUR_BITS, FOUR_BY_EIGHT = (
    model(
        f"""g (float[4,8] x) => (float[4,8] y) <float s = {{0.1}}, {of_x} z = {{0}}>
        {{ xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
          ad = DequantizeLinear(a, s)  y = MatMul(xd, ad) }}""",
        {"a": (INT4, [8, 8])},
        opset=21,
    )
    for of_x in ("int4", "int8")
)
SIXTEEN_BITS = model(
    f"""g (float[4,8] x) => (float[4,8] y) <{SCALES}, int16 l = {{0}}>
    {{ xq = com.microsoft.QuantizeLinear(x, s, l)  xd = com.microsoft.DequantizeLinear(xq, s, l)
      ad = com.microsoft.DequantizeLinear(a, t, o)  at = Transpose(ad)  y = MatMul(xd, at) }}""",
    {"a": (INT8, [8, 8])},
)
ATTENTION = model(
    """g (float[1,5,8] x) => (float[1,5,8] y) <float t = {0.5}, int8 o = {0}>
    { q, s, z = DynamicQuantizeLinear(x)
      y = com.microsoft.QAttention<num_heads=2>(q, w, b, s, t, "", z, o) }""",
    {"w": (INT8, [8, 24]), "b": (FLOAT, [24])},
)
DYNAMIC = model(
    """g (float[4,8] x) => (int32[4,8] y)
    { q, s, z = DynamicQuantizeLinear(x)  y = MatMulInteger(q, w, z) }""",
    {"w": (INT8, [8, 8])},
)
HALVES = model("g (float16[4,8] x) => (float16[4,8] y) { y = MatMul(x, w) }", {"w": (HALF, [8, 8])})
FOREIGN = model(
    """g (float16[4,8] x) => (float16[a,b] y)
    { h = com.microsoft.QuickGelu(x)  f = com.microsoft.FusedMatMul(h, w)
      y = com.microsoft.FusedMatMul(f, f) }""",
    {"w": (HALF, [8, 4])},
)
BFLOAT = model(
    "g (bfloat16[4,8] x) => (bfloat16[4,8] y) { y = MatMul(x, w) }", {"w": (BF16, [8, 8])}
)
DOUBLE = model("g (double[4,8] x) => (double[4,8] y) { y = MatMul(x, w) }", {"w": (11, [8, 8])})
PLAIN = model("g (float[4,8] x) => (float[4,8] y) { y = MatMul(x, w) }", {"w": (FLOAT, [8, 8])})
NOTHING = model("g (float[4,8] x) => (float[4,8] y) { y = Relu(x) }")


@pytest.mark.parametrize(
    ("made", "name", "told"),
    [
        *((made, "int8", "int8") for made in (QDQ, QOPERATOR, DYNAMIC, ATTENTION, FOUR_BY_EIGHT)),
        *((made, "fp32", "fp32") for made in (WEIGHT_ONLY, PLAIN, NOTHING, SIXTEEN_BITS)),
        *((made, "fp16", "fp16") for made in (HALVES, FOREIGN)),
        (BFLOAT, "bf16", "bf16"),
        (DOUBLE, "fp32", "fp64"),
        (FLOAT8, "fp32", "fp8"),
        (FOUR_BITS, "fp32", "int4"),
        (MIXED, "int8", "mixed: 2 of 3 convolutions and products in int8, 1 in fp32"),
    ],
)
def test_a_file_has_a_precision_that_it_says(made: onnx.ModelProto, name: str, told: str) -> None:
    precision = load(made).facts.precision
    assert (precision.name, str(precision)) == (name, told)


def test_a_bias_is_dequantised_along_its_only_axis() -> None:
    """OpenVINO refuses one along the usual axis, the second."""
    written = onnx.load_from_string(to_onnx(read_network(QDQ), seed=1))
    axes = {n.input[0]: [a.i for a in n.attribute] for n in written.graph.node if "axis" in str(n)}
    assert axes == {"w": [0], "b": [0]}


def test_weights_stay_in_whole_numbers() -> None:
    network = read_network(QDQ)
    assert network.constants["w"].type.dtype == "int8"
    assert [node.op for node in network.nodes].count("DequantizeLinear") == 4
    assert network.weight_bytes == 16 * 8 * 9 + 16 * (4 + 1) + 16 * (4 + 4)  # scales, bias


def run(data: bytes, optimised: str = "") -> None:
    """Start ONNX Runtime on a model; it may write down what it makes of that."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = optimised, 4
    onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("made", [QDQ, QOPERATOR])
def test_scales_are_made_up_for_whole_numbers(made: onnx.ModelProto, tmp_path: object) -> None:
    """Random zero points and scales would leave a float convolution in the engine's graph."""
    run(to_onnx(read_network(made), seed=3), f"{tmp_path}/optimised.onnx")
    ops = [node.op_type for node in onnx.load(f"{tmp_path}/optimised.onnx").graph.node]
    assert "QLinearConv" in ops and "Conv" not in ops


ROUNDED = """g ({2}[4,8] x) => ({2}[4,8] y) <{2} s = {{1}}, {0} z = {{0}}>
    {{ q = {1}QuantizeLinear(x, s, z)  d = {1}DequantizeLinear(q, s, z)  y = Relu(d) }}"""


@pytest.mark.parametrize(
    ("dtype", "opset", "domain", "real"),
    [
        ("float8e4m3fn", 19, "", "float"),
        ("uint8", 13, "com.microsoft.", "float"),
        ("int8", 19, "", "float16"),
        ("int16", 21, "", "float"),
        ("uint16", 21, "com.microsoft.", "float"),
    ],
)
def test_a_quantised_file_is_written_in_a_set_that_knows_its_types(
    dtype: str, opset: int, domain: str, real: str
) -> None:
    """ONNX Runtime's own domain quantises by the same kernels, in every set."""
    made, own = (model(ROUNDED.format(dtype, name, real), opset=opset) for name in (domain, ""))
    network = read_network(made)
    assert sign(network) == sign(read_network(own))
    run(to_onnx(network, seed=0))


def test_a_number_that_is_quantised_is_read_as_onnx_runtime_does() -> None:
    text = ROUNDED.format("uint16", "com.microsoft.", "float").replace("[4,8] y", "[] y")
    text = text.replace("Linear(x, s, z)", "Linear(s, s, z)").replace("Relu(d)", "Mul(x, d)")
    made = model(text, opset=21)
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    assert [str(read_network(made).types[name]) for name in "qd"] == ["uint16[]", "float32[]"]


@pytest.mark.parametrize(
    ("file", "weight", "words"),
    [
        ("bfloat16", BF16, r"BF16 file.*export the model in FP32"),
        # A new exporter folds normalisations into FP32 weights of a model in half precision.
        ("float16", FLOAT, "types of the tensors do not fit together"),
        # ONNX Runtime's converter narrows scales, of a set that has none in half precision.
        ("float16", INT8, "types of the tensors do not fit together"),
    ],
)
def test_types_that_onnx_lacks_are_refused_with_help(file: str, weight: int, words: str) -> None:
    text = f"g ({file}[1,8,9,9] x) => ({file}[1,16,7,7] y) <{file} s = {{1}}> {{ STEPS }}"
    steps = "d = DequantizeLinear(w, s)  y = Conv(x, d)" if weight == INT8 else "y = Conv(x, w)"
    with pytest.raises(NetworkError, match=words):
        read_network(model(text.replace("STEPS", steps), {"w": (weight, [16, 8, 3, 3])}))


def test_a_remark_says_that_no_target_has_the_file_s_fp8() -> None:
    precision = load(FLOAT8).facts.precision
    target = Target("l4", "tensorrt-10", "fp16")
    assert precision_notes(target, precision.name, str(precision)) == [
        "the network computes in fp8; no target has fp8: this is its latency in fp16"
    ]
