"""A small rehearsal of the GPU campaign: prepared, killed, gone on with, reported, imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybridlat.cli import main as cli
from hybridlat.measuring.plans import Draft
from tests.experiments.scripts import FOLDER, load

campaign = load("10_gpu_campaign")
SCRIPT = FOLDER / "10_gpu_campaign.py"


def test_a_rehearsal_survives_being_killed_and_its_records_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "rehearse", "--backend", "fake", "--limit", "1",
         "--precisions", "fp16", "--budget", "3m", "--folder", str(tmp_path)],
        capture_output=True, text=True, timeout=280,
        env={"PYTHONPATH": os.environ["PYTHONPATH"]},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "killed behind line 6" in done.stderr
    assert "failed 0, left 0" in done.stderr
    rows = [row.split("|") for row in done.stdout.splitlines() if "| differential |" in row]
    (row,) = rows  # one network and one of NAS-Bench-201, cells that add up
    assert int(row[3]) == 2
    assert float(row[4]) < 1.0
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    net = SCRIPT.parents[1] / "data" / "nets" / "resnet18.onnx"
    cli.run(["predict", str(net), "--target", "rehearsal/tensorrt-10.3/fp16", "--json", "--store",
             str(tmp_path / "store.db"), "--measure", "never"])  # fmt: skip
    estimate = json.loads(capsys.readouterr().out)
    assert {cell["source"] for cell in estimate["cells"]} == {"measured"}
    assert estimate["measured_share"] == pytest.approx(1.0)


def test_whole_networks_of_a_wave_come_before_its_cells_and_the_next_wave() -> None:
    draft = campaign.draft_of("h100", "tensorrt", ["fp16", "fp32"], 5)
    manifest = draft.manifest()
    settings = manifest["settings"]  # half an hour is enough
    assert settings["build_s"] <= 150
    assert settings["warm_s"] + settings["limit_s"] < 1
    titles = list(dict.fromkeys(task["title"] for task in manifest["tasks"]))
    assert titles[:6] == [
        "wave 1 whole fp16", "wave 1 whole fp32", "wave 1 cells fp16", "wave 1 cells fp32",
        "wave 1 again fp16", "wave 1 again fp32",
    ]  # fmt: skip
    assert titles[6].startswith("wave 2 whole")
    assert titles[-2:] == ["batch 8 fp16", "batch 8 fp32"]
    stages = [task["stage"] for task in manifest["tasks"]]
    assert stages == sorted(stages)
    # Every cell of every network is recorded in both ways, and none is built for it twice.
    records = manifest["records"]
    for breakdown in manifest["breakdowns"]:
        for method in ("differential", "isolated"):
            there = {
                r["signature"]
                for r in records
                if r["method"] == method and r["precision"] == breakdown["precision"]
            }
            assert {signature for signature, _ in breakdown["cells"]} <= there
    assert all(item["file"] in {f"models/{n}" for n in _files(draft)} for item in
               manifest["items"].values())  # fmt: skip


def _files(draft: Draft) -> set[str]:
    return {Path(name).name for name in draft._models}
