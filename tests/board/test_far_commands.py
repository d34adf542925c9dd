"""The commands that measure: on this machine's GPU, on a board by ``--host``, by a plan."""

import ctypes
import shlex
from contextlib import suppress
from pathlib import Path

import pytest

from hybridlat import Predictor
from hybridlat.board.runner import Worker
from hybridlat.engines.tensorrt import session as tensorrt
from hybridlat.onnx_io import to_onnx
from hybridlat.store import Store
from tests.board import fake_tensorrt
from tests.cli.shell import call
from tests.networks import ROOT, stem

NEAR = "h100/tensorrt-10.16/fp16"
FAKE = f"""\
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.board import fake_tensorrt
fake_tensorrt.install("8.6", fake_tensorrt.FakeDriver())
"""


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine whose driver and TensorRT 10.16 are made up; the engine's name, once a start."""
    started: list[str] = []

    def start() -> Worker:
        started.append("tensorrt")
        shim = fake_tensorrt.shim(tmp_path, "10.16")
        return Worker(str(shim), "tensorrt", {}, log=str(tmp_path / "log"))

    monkeypatch.setattr(tensorrt, "_start_worker", start)
    return started


def test_cells_are_measured_behind_predecessors(net: Path, gpu: list[str], tmp_path: Path) -> None:
    store = f"{tmp_path}/s.db"
    with Predictor(NEAR, store=store) as predictor:
        report = predictor.measure(net)
        assert report.failures == {}
        assert report.latency_us == pytest.approx(25)
        methods = {r.kind: r.protocol.split()[-1] for r in report.records}
        assert methods == {"network": "whole", "cell": "differential"}
        assert {str(r.target) for r in report.records} == {NEAR}
        assert report.sum_of_cells_us is not None
        again = predictor.measure(net, what="cells")
        assert again.records == ()
        assert again.known > 0
    with Predictor(NEAR, store=f"{tmp_path}/other.db", measure="always") as predictor:
        assert {cell.source for cell in predictor.predict(net).cells} == {"measured"}
        assert not list((tmp_path / "cache" / "hybridlat" / "plans").iterdir())
    with Store(store) as opened:
        records = list(opened.measurements())
    whole = next(r for r in records if r.kind == "network")
    assert whole.environment["settings"]
    assert whole.environment["gpu"] == "NVIDIA H100 80GB HBM3"
    assert all(r.visits for r in records)
    other = call("measure", str(net), "--target", "a100/tensorrt-10.16/fp16", code=3)
    assert f"this machine is {NEAR}" in other.err


def test_without_a_driver_one_sentence_says_so(net: Path) -> None:
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a driver")
    why = "there is no NVIDIA driver on this machine (libcuda.so.1 cannot be loaded)"
    sentence = f"hybridlat: {NEAR} cannot be measured here: TensorRT cannot be used: {why}\n"
    assert call("measure", str(net), "--target", NEAR, code=3) == ("", sentence)
    document = call("predict", str(net), "--target", NEAR, "--json").body
    assert document["to_measure"]
    assert not any(why in text for text in document["warnings"])  # an H100 stands elsewhere
    assert ["--network" in one["fix"] for one in document["remarks"] if "--host" in str(one)] == [1]


TARGET = "orin-agx/tensorrt/fp16"
THERE = "orin-agx/tensorrt-8.6/fp16"
TABLE = "orin-nano/tensorrt-8.6.1/fp16"  # a published table's name of an engine


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HYBRIDLAT_STORE", f"{tmp_path}/store.db")
    path = tmp_path / "net.onnx"
    path.write_bytes(to_onnx(stem(8), seed=1))
    return path


def sources(net: Path) -> set[str]:
    """Where the cells of a prediction come from."""
    words = ("predict", str(net), "--target", THERE, "--json", "--measure", "never")
    return {cell["source"] for cell in call(*words, or_code=3).body["cells"]}


def test_measure_on_a_board_and_predict_from_its_records(far: Path, net: Path) -> None:
    there = ("measure", str(net), "--host", "user@board")
    printed = call(*there, "--target", TARGET, "--json")
    document = printed.body  # alone on standard output
    assert document["target"] == THERE
    assert document["latency_us"] > 0
    assert {record["kind"] for record in document["records"]} == {"network", "cell"}
    assert "user@board: measuring with trtexec" in printed.err
    assert "model 1 of" in printed.err
    assert not list((net.parent / "cache" / "hybridlat" / "plans").iterdir())
    # All of it is known now; whole networks are measured whenever they are asked for.
    printed = call(*there, "--target", THERE, "--cells")
    assert f"net.onnx  on {THERE}" in printed.out
    assert "sum of cells" in printed.out and "model 1 of" not in printed.err
    assert sources(net) == {"measured"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (f"--host user@elsewhere --target {TARGET}", 3, "user@elsewhere cannot be reached"),
        ("--host user@board", 2, "needs --target"),
        (f"--host -oProxyCommand=x --target {TARGET}", 2, "is no host"),
        (f"--host user@board --target {TARGET} --runner worker", 3, "there is no NVIDIA driver"),
        ("--host user@board --target cpu/onnxruntime/fp32", 2, "plans are for tensorrt"),
        (f"--host user@board --target {TABLE}", 2, "measure orin-nano/tensorrt/fp16"),
        ("--time-limit 1s", 2, "--time-limit goes with --host"),
        ("--runner trtexec", 2, "--runner goes with --host"),
    ],
)
@pytest.mark.usefixtures("far")
def test_what_cannot_work_is_one_sentence(net: Path, arguments: str, code: int, words: str) -> None:
    printed = call("measure", str(net), *arguments.split(), code=code)
    last = printed.err.splitlines()[-1]
    assert printed.out == "" and last.startswith(("hybridlat: ", "Error: ")) and words in last


@pytest.mark.parametrize(
    ("target", "advised"),
    [
        ("orin-nano/tensorrt/fp16", "orin-nano/tensorrt/fp16"),  # predicted by a table's newest
        ("orin-nano/tensorrt-trtutils/fp16", "orin-nano/tensorrt/fp16"),
        ("orin-nano/tensorrt-8.6/fp16", "orin-nano/tensorrt-8.6/fp16"),
    ],
)
def test_commands_of_advice_end_well(net: Path, tmp_path: Path, target: str, advised: str) -> None:
    body = call("predict", str(net), "--target", target, "--json").body
    every = [remark["fix"] for remark in body["remarks"]]
    fixes = [fix for fix in every if fix.startswith(("hybridlat measure", "hybridlat plan"))]
    assert len(fixes) == 2 and all(f"--target {advised} " in f"{fix} " for fix in fixes)
    (plan,) = [shlex.split(fix)[1:] for fix in fixes if " plan " in fix]
    call(*plan[:-1], str(tmp_path / "plan"))


def test_a_plan_is_not_written_for_a_table_s_name_or_over_a_file(net: Path, tmp_path: Path) -> None:
    plan = ("plan", str(net), "-o", str(tmp_path), "--target")
    assert "measure orin-nano/tensorrt/fp16" in call(*plan, TABLE, code=2).err
    (tmp_path / "manifest.json").write_text("{}")
    assert "holds another plan" in call(*plan, TARGET, code=2).err
    (tmp_path / "manifest.json").unlink()
    others = sorted(path.name for path in net.parent.iterdir())
    words = ("plan", str(net), "--target", TARGET, "-o")
    assert "no part of a plan: give a new folder" in call(*words, str(net.parent), code=2).err
    assert sorted(path.name for path in net.parent.iterdir()) == others
    (tmp_path / "new plan" / "models").mkdir(parents=True)  # of one that was cut off
    lines = call(*words, str(tmp_path / "new plan")).out.splitlines()
    assert shlex.split(lines[1])[3:5] == ["sh", f"{tmp_path}/new plan/run.sh"]
