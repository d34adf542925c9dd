"""The campaign on a GPU, as its page gives it: plan, two runs there, import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybridlat.cli import main as cli
from hybridlat.onnx_io import to_onnx
from hybridlat.store import Store
from tests.board.conftest import quick
from tests.networks import ROOT, classifier

FAKE = f"""\
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.board import fake_tensorrt
fake_tensorrt.install("8.6", fake_tensorrt.FakeDriver())
"""


def test_plan_run_with_either_layouts_and_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYBRIDLAT_LOCK", str(tmp_path / "lock"))
    Path("net.onnx").write_bytes(to_onnx(classifier(8), seed=1))
    assert (
        cli.run(["plan", "net.onnx", "--target", "h200/tensorrt-8.6/fp16", "-o", "campaign"]) == 0
    )
    quick(Path("campaign"))
    Path("python").mkdir()
    Path("python", "sitecustomize.py").write_text(FAKE)
    run = [sys.executable, "campaign/worker.py", "run", "--time-limit", "8m"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "python")}
    for more in ([], ["--option", "layouts=any", "--results", "results-any.jsonl"]):
        done = subprocess.run([*run, *more], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert cli.run(["import", "campaign", "--store", "s.db"]) == 0
    with Store("s.db") as store:
        records = list(store.measurements())
    assert records and all(record.latency_us for record in records)
    layouts = [json.loads(record.environment["settings"]).get("layouts") for record in records]
    assert layouts.count("any") == layouts.count(None) == len(records) / 2
    assert len({record.environment["board_id"] for record in records}) == 2
