"""No interval ends below what a sheet allows; those of kernels without training are wide enough."""

import pytest

from hybridlat import Estimate, Predictor, predict
from hybridlat.engines import device_sheets
from tests.estimate.known import ends
from tests.onnx_io.test_reading_shapes import model

TARGETS = ("t4/tensorrt-10/fp16", "l4/torch-2.4/fp32", "jetson-nano/tensorrt/int8")
EINSUM = """g (float[8,1024,28,28] x) => (float[8,1024,28,28] y)
    { y = Einsum<equation = "bchw,oc->bohw">(x, w) }"""
LSTM = "g (float[500,1,1024] x) => (float[500,1,1,1024] y) { y = LSTM<hidden_size=1024>(x, w, r) }"
GRU = "g (float[100,{0},256] x) => (float[100,1,{0},256] y) {{ y = GRU<hidden_size=256>(x, w, r) }}"
QUANTISED = """g (float[1,512,28,28] x) => (float[1,512,28,28] y)
    <float s = {0.02}, uint8 z = {7}> {
    q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
    e = DequantizeLinear<axis=0>(w, t, n)
    c = Conv<pads=[1,1,1,1]>(d, e)  r = QuantizeLinear(c, s, z)  y = DequantizeLinear(r, s, z) }"""
STRANGE = """g (float[1,8,32,32] x) => (float[1,8,32,32] y)
    { c = Conv<pads=[1,1,1,1]>(x, w)  y = org.example.Strange(c) }"""


def _predicted(text: str, target: str = TARGETS[0], **sizes: list[int]) -> Estimate:
    weights = {name: (1, size) for name, size in sizes.items()}  # floats
    return predict(model(text, weights), target, measure="never", store="sqlite://")


@pytest.mark.parametrize("target", TARGETS)
def test_work_of_every_kind_has_its_least(target: str) -> None:
    estimate = _predicted(EINSUM, target, w=[1024, 1024])
    name, _, precision = target.split("/")
    device = device_sheets.load(name)
    peak = max(device.peak(precision), device.peak("tf32") if precision == "fp32" else 0.0)
    codes = [warning.code for warning in estimate.warnings]
    assert ("rate of its own at int8" in estimate.rests_on) == (name == "jetson-nano")
    least_us = 2 * 8 * 28 * 28 * 1024**2 / peak * 1e6
    assert ends(estimate)[0] >= least_us or "beyond-physics" in codes


def test_a_recurrent_layer_reads_its_weights_in_every_step() -> None:
    estimate = _predicted(LSTM, w=[1, 4096, 1024], r=[1, 4096, 1024])
    read_us = 500 * 2 * 4096 * 1024 / device_sheets.load("t4").bandwidth_bytes_per_s * 1e6
    assert ends(estimate)[0] >= read_us


def test_a_peak_in_fp32_does_not_limit_8_bits() -> None:
    """A CPU multiplies them several times as fast, and only FP32 was probed."""
    made = model(QUANTISED, {"w": (3, [512, 512, 3, 3]), "t": (1, [512]), "n": (3, [512])})
    at = "epyc-26-2/onnxruntime-1.31/int8/1t"
    estimate = predict(made, at, measure="never", store="sqlite://")
    low_us, latency_us, _ = ends(estimate)
    assert low_us < 0.95 * latency_us
    assert "beyond-physics" not in [warning.code for warning in estimate.warnings]


def test_work_that_shapes_do_not_tell_is_named() -> None:
    estimate = _predicted(STRANGE, w=[8, 8, 3, 3])
    texts = [w.text for w in estimate.warnings if w.code == "beyond-physics"]
    assert [text for text in texts if "org.example::Strange" in text]


X, SMALL = "float[1,64,56,56]", "1,64,28,28"
# The type that is read, the results, the operator, and what it took in µs.
ROWS = (
    # None of the first eleven is of the half that the widths were read off.
    (X, f"{X} y", "y = Asinh(x)", 2700.0),
    (X, f"{X} y", "y = Atanh(x)", 2740.0),
    (X, f"{X} y", "y = Acosh(x)", 500.0),
    (X, f"{X} y", "y = Sinh(x)", 1570.0),
    (X, f"{X} y", "y = Cosh(x)", 1390.0),
    (X, f"{X} y", "y = Atan(x)", 113.0),
    (X, "float[1,64,1,1] y", "y = GlobalLpPool(x)", 1340.0),
    ("float[512,32,32]", "float[512] y", "y = Det(x)", 1290.0),
    (X, f"{X} y", "y = CumSum(x, three)", 134.0),
    (X, f"{X} y", "y = Hardmax<axis = 1>(x)", 520.0),
    (X, "bool[1,64,56,56] y", "y = IsNaN(x)", 20.0),
    (X, f"{X} y", "y = Tan(x)", 1340.0),
    (X, "float[1,64,27,27] y", "y = LpPool<kernel_shape=[3,3], strides=[2,2]>(x)", 3500.0),
    (X, f"float[{SMALL}] y, int64[{SMALL}] at",
     "y, at = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)", 610.0),
    (f"float[56] w, {X}", f"{X} y", "y = Add(x, w)", 64.0),
)  # fmt: skip


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor("epyc-26-2/onnxruntime-1.31/fp32/1t", measure="never", store="sqlite://")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_intervals_are_as_wide_as_such_guesses_were_wrong(
    row: tuple[str, str, str, float], predictor: Predictor
) -> None:
    reads, makes, operator, measured_us = row
    made = model(f"g ({reads} x) => ({makes}) <int64 three = {{3}}> {{ {operator} }}")
    estimate = predictor.predict(made)
    assert estimate.low_us is not None and estimate.finite_high_us is not None
    assert estimate.low_us < measured_us < estimate.finite_high_us
    assert estimate.grade in ("rough", "order of magnitude")
    assert "data-sheet-only" in {w.code for w in estimate.warnings} or not all(
        cell.trusted for cell in estimate.cells
    )


@pytest.mark.parametrize("target", ["h100/tensorrt/fp16", "a100/tensorrt/fp32", "l4/torch/amp"])
def test_a_recurrent_network_is_never_faster_at_a_larger_batch(target: str) -> None:
    before_us = 0.0
    for batch in (1, 8, 16, 32, 64, 128):
        text = GRU.format(batch)
        latency_us = _predicted(text, target, w=[1, 768, 256], r=[1, 768, 256]).latency_us
        assert latency_us is not None and latency_us >= before_us
        before_us = latency_us
