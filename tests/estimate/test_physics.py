"""No interval ends below what the device's sheet allows for the work, or the answer says so."""

import pytest

from hybridlat import Estimate, predict
from hybridlat.engines import device_sheets
from tests.estimate.known import ends
from tests.onnx_io.test_reading_shapes import model

TARGETS = ("t4/tensorrt-10/fp16", "l4/torch-2.4/fp32")
EINSUM = """g (float[8,1024,28,28] x) => (float[8,1024,28,28] y)
    { y = Einsum<equation = "bchw,oc->bohw">(x, w) }"""
LSTM = "g (float[500,1,1024] x) => (float[500,1,1,1024] y) { y = LSTM<hidden_size=1024>(x, w, r) }"
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
    least_us = 2 * 8 * 28 * 28 * 1024**2 / peak * 1e6
    assert ends(estimate)[0] >= least_us or "beyond-physics" in codes


def test_a_recurrent_layer_reads_its_weights_in_every_step() -> None:
    estimate = _predicted(LSTM, w=[1, 4096, 1024], r=[1, 4096, 1024])
    read_us = 500 * 2 * 4096 * 1024 / device_sheets.load("t4").bandwidth_bytes_per_s * 1e6
    assert ends(estimate)[0] >= read_us


def test_work_that_shapes_do_not_tell_is_named() -> None:
    estimate = _predicted(STRANGE, w=[8, 8, 3, 3])
    texts = [w.text for w in estimate.warnings if w.code == "beyond-physics"]
    assert [text for text in texts if "org.example::Strange" in text]
