"""Logs of trtexec imported as users do: what a record becomes, and what is left out by name."""

from pathlib import Path

import pytest

from hybridlat.engines.tensorrt.lowering import in_precision
from hybridlat.errors import InputError
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.cli.shell import run_import
from tests.networks import Builder, classifier

LOG = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=net.onnx --fp16{}
[I] Selected Device: {}
[I] SMs: {}
[I] Input binding for {} with dimensions 2x3x32x32 is created.
[I] GPU Compute Time: min = 1.0 ms, max = 1.9 ms, mean = 1.3 ms, median = 1.2 ms
"""


pytestmark = pytest.mark.usefixtures("folder")


def test_logs_that_contradict_the_target_or_time_something_else(folder: Path) -> None:
    (folder / "logs").mkdir()
    dla = " --useDLACore=0"
    for name, words, units in (("a", "", 8), ("b", "", 16), ("c", dla, 8), ("d", dla, 8)):
        (folder / "logs" / f"{name}.log").write_text(LOG.format(words, "Orin", units, "x"))
    nano = run_import("logs", "--nets", "nets", "--target", "orin-nano/tensorrt/fp16")
    assert nano.stdout.startswith("1 of 1 records are new"), nano.output
    assert "  orin-nano/tensorrt-8.6/fp16" in nano.stdout
    assert "c.log, line 1: --useDLACore=0; d.log, line 1: --useDLACore=0" in nano.stderr
    assert isinstance(nano.exception, InputError)
    assert str(nano.exception).startswith(
        "b.log, line 1: the log contradicts --target: 'Orin' with 16 multiprocessors is orin-agx, "
        "not orin-nano"
    )
    assert "orin-agx/tensorrt-8.6/fp16" in run_import("logs/b.log", "--nets", "nets").stdout
    (folder / "logs" / "t.csv").write_text("network\n")
    assert "holds tables and logs of trtexec" in str(run_import("logs", "--nets", "nets").exception)
    alone = run_import("logs/c.log", "--nets", "nets")
    assert (alone.stdout, str(alone.exception)[:30]) == ("", "none of 1 row could be importe")


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "fp32"), ("float16", "fp16")])
def test_a_typed_network_has_the_precision_of_its_file(
    folder: Path, dtype: str, precision: str
) -> None:
    network = classifier(8, 32)
    if dtype == "float16":
        network = in_precision(network, "float16")
    (folder / "nets" / "net.onnx").write_bytes(to_onnx(network, seed=None))
    text = LOG.format("", "NVIDIA L4", 58, network.inputs[0])
    (folder / "a.log").write_text(text.replace(" --fp16", "").replace("v8601", "v110201"))
    done = run_import("a.log", "--nets", "nets")
    assert f"  l4/tensorrt-11.2/{precision}\n" in done.stdout, done.output
    other = run_import("a.log", "--nets", "nets", "--target", "l4/tensorrt/int8")
    assert f"contradicts --target: {precision} in net.onnx, not int8" in str(other.exception)


def test_a_log_of_a_network_with_channels_last(folder: Path) -> None:
    b = Builder("net")
    network = b.network(b.relu(b.input((1, 48, 64, 3))))
    (folder / "nets" / "net.onnx").write_bytes(to_onnx(network, seed=None))
    text = LOG.format("", "Tesla T4", 40, network.inputs[0]).replace("2x3x32x32", "1x48x64x3")
    (folder / "a.log").write_text(text)
    assert run_import("a.log", "--nets", "nets").exit_code == 0
    with Store("s.db") as opened:
        (record,) = opened.measurements(Target.parse("t4/tensorrt-8.6/fp16"), kind="network")
        assert record.labels["size"] == "48x64"
