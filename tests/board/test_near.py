"""TensorRT on this machine's GPU, as far as a made-up driver goes: measure, predict, exit codes."""

import ctypes
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hybridlat import Predictor
from hybridlat.board.runner import Worker
from hybridlat.cli import main as cli
from hybridlat.engines.tensorrt import session as tensorrt
from hybridlat.onnx_io import to_onnx
from hybridlat.store import Store
from tests.board import fake_tensorrt
from tests.board.conftest import quick
from tests.networks import ROOT, classifier

TARGET = "h100/tensorrt-10.16/fp16"
FAKE = f"""\
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.board import fake_tensorrt
fake_tensorrt.install("8.6", fake_tensorrt.FakeDriver())
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    path = tmp_path / "net.onnx"
    path.write_bytes(to_onnx(classifier(8), seed=1))
    return path


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


def test_cells_are_measured_behind_their_predecessors(
    net: Path, gpu: list[str], tmp_path: Path
) -> None:
    store = f"{tmp_path}/s.db"
    with Predictor(TARGET, store=store) as predictor:
        report = predictor.measure(net)
        assert report.failures == {}
        assert report.latency_us == pytest.approx(25)
        methods = {r.kind: r.protocol.split()[-1] for r in report.records}
        assert methods == {"network": "whole", "cell": "differential"}
        assert {str(r.target) for r in report.records} == {TARGET}
        assert report.sum_of_cells_us is not None
        again = predictor.measure(net, what="cells")
        assert again.records == ()
        assert again.known > 0
    with Predictor(TARGET, store=f"{tmp_path}/other.db", measure="always") as predictor:
        assert {cell.source for cell in predictor.predict(net).cells} == {"measured"}
        assert not list((tmp_path / "cache" / "hybridlat" / "plans").iterdir())
    with Store(store) as opened:
        records = list(opened.measurements())
    whole = next(r for r in records if r.kind == "network")
    assert whole.environment["settings"]
    assert whole.environment["gpu"] == "NVIDIA H100 80GB HBM3"
    assert all(r.visits for r in records)


def test_another_target_than_this_machine_is_told_apart(
    net: Path, gpu: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ["--target", "a100/tensorrt-10.16/fp16", "--store", f"{tmp_path}/s.db"]
    assert cli.run(["measure", str(net), *other]) == 3
    assert f"this machine is {TARGET}" in capsys.readouterr().err


def test_without_a_driver_one_sentence_says_so(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a driver")
    arguments = [str(net), "--target", TARGET, "--store", f"{tmp_path}/s.db"]
    why = "there is no NVIDIA driver on this machine (libcuda.so.1 cannot be loaded)"
    assert cli.run(["measure", *arguments]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"hybridlat: {TARGET} cannot be measured here: TensorRT cannot be used: {why}"
    ]
    assert cli.run(["predict", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["to_measure"]
    assert not any(why in text for text in document["warnings"])  # an H100 stands elsewhere
    assert sum("--host" in remark["fix"] for remark in document["remarks"]) == 1


def test_a_campaign_is_a_plan_two_runs_with_either_layouts_and_an_import(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page of the project's own GPU gives it."""
    monkeypatch.setenv("HYBRIDLAT_LOCK", str(tmp_path / "lock"))
    folder, store = tmp_path / "campaign", f"{tmp_path}/s.db"
    target = ["--target", "h200/tensorrt-8.6/fp16"]
    assert cli.run(["plan", str(net), *target, "-o", str(folder)]) == 0
    quick(folder)
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(FAKE)
    run = [sys.executable, str(folder / "worker.py"), "run", "--time-limit", "8m"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "python")}
    for more in ([], ["--option", "layouts=any", "--results", "results-any.jsonl"]):
        done = subprocess.run([*run, *more], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert cli.run(["import", str(folder), "--store", store]) == 2  # a look-up would mix both
    (folder / "results-any.jsonl").rename(tmp_path / "any.jsonl")
    assert cli.run(["import", str(folder), "--store", store]) == 0
    (linear,) = folder.glob("results*.jsonl")
    (tmp_path / "any.jsonl").rename(linear)
    assert cli.run(["import", str(folder), "--store", f"{tmp_path}/any.db"]) == 0
    with Store(store) as opened, Store(f"{tmp_path}/any.db") as other:
        records = [*opened.measurements(), *other.measurements()]
    assert records and all(record.latency_us for record in records)
    layouts = [json.loads(record.environment["settings"]).get("layouts") for record in records]
    assert layouts.count("any") == layouts.count(None) == len(records) / 2
    assert len({record.environment["board_id"] for record in records}) == 2
