"""No interval ends below what the device's sheet allows for the work, or the answer says so."""

from pathlib import Path

import pytest

from hybridlat import Estimate, predict
from hybridlat.engines import device_sheets
from hybridlat.graph.network import Network
from hybridlat.onnx_io.write import to_onnx
from tests.estimate.known import ends
from tests.networks import Builder

TARGETS = ("t4/tensorrt-10/fp16", "l4/torch-2.4/fp32")


def _predicted(network: Network, target: str, folder: Path) -> Estimate:
    return predict(to_onnx(network, None), target, measure="never", store=f"{folder}/s.db")


@pytest.mark.parametrize("target", TARGETS)
def test_work_of_every_kind_has_its_least(target: str, tmp_path: Path) -> None:
    b = Builder("einsum")
    x, w = b.input((8, 1024, 28, 28)), b.constant((1024, 1024))
    network = b.network(
        b.op("Einsum", [x, w], (8, 1024, 28, 28), 12, {"equation": "bchw,oc->bohw"})
    )
    estimate = _predicted(network, target, tmp_path)
    name, _, precision = target.split("/")
    device = device_sheets.load(name)
    peak = max(device.peak(precision), device.peak("tf32") if precision == "fp32" else 0.0)
    codes = [warning.code for warning in estimate.warnings]
    least_us = 2 * 8 * 28 * 28 * 1024**2 / peak * 1e6
    assert ends(estimate)[0] >= least_us or "beyond-physics" in codes


def test_a_recurrent_layer_reads_its_weights_in_every_step(tmp_path: Path) -> None:
    b = Builder("lstm")
    x = b.input((500, 1, 1024))
    weights = [b.constant((1, 4096, 1024)), b.constant((1, 4096, 1024))]
    network = b.network(b.op("LSTM", [x, *weights], (500, 1, 1, 1024), 14, {"hidden_size": 1024}))
    estimate = _predicted(network, "t4/tensorrt-10/fp16", tmp_path)
    read_us = 500 * 2 * 4096 * 1024 / device_sheets.load("t4").bandwidth_bytes_per_s * 1e6
    assert ends(estimate)[0] >= read_us


def test_work_that_shapes_do_not_tell_is_named(tmp_path: Path) -> None:
    b = Builder("strange")
    x = b.conv(b.input((1, 8, 32, 32)), 8)
    network = b.network(b.op("Strange", [x], (1, 8, 32, 32), 1, {}, "org.example"))
    estimate = _predicted(network, "t4/tensorrt-10/fp16", tmp_path)
    texts = [w.text for w in estimate.warnings if w.code == "beyond-physics"]
    assert [text for text in texts if "org.example::Strange" in text]
