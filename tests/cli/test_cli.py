"""The whole way through the command line, on the fake engine."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import FAKE, known, process
from tests.networks import ROOT

WIDE = ("--tolerance", "30%", "--target", FAKE)  # it has no calibration on whole networks


def test_a_known_network_is_a_table_or_one_document_and_a_page(nets: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = known(nets, "predict", "a.onnx", *WIDE, "--html", str(page))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"(?m)^[0-9.]+ [µm]s   .* fps   ±.*\nmeasured \(1 run, ", done.stdout)
    assert "Conv" in done.stdout and "\x1b" not in done.stdout  # no colours beside a terminal
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    document = json.loads(known(nets, "predict", "a.onnx", *WIDE, "--json").stdout)
    assert [document[name] for name in ("format", "network", "target")] == [1, "a.onnx", FAKE]
    assert document["interval_us"][0] <= document["latency_us"] <= document["interval_us"][1]
    nowhere = known(nets, "predict", "a.onnx", *WIDE, "--html", str(tmp_path / "no" / "page.html"))
    assert nowhere.returncode == 2
    assert "No such file" in nowhere.stderr and "Traceback" not in nowhere.stderr


def measured(nets: Path, store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    place = ["--network", "--target", FAKE, "--store", str(store)]
    return process("measure", "a.onnx", *place, *words, cwd=nets)


def test_measure_json(nets: Path, tmp_path: Path) -> None:
    done = measured(nets, tmp_path / "m.db", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert document["latency_us"] > 0
    assert {record["kind"] for record in document["records"]} == {"network"}


def test_what_a_busy_machine_measured_is_not_known_well_enough(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loadavg").write_text("9.0 9.0 9.0 99/200 77\n")
    (tmp_path / "stat").write_text("cpu  50 0 50 100 0 0 0 0 0 0\n")
    monkeypatch.setenv("HYBRIDLAT_PROC", str(tmp_path))
    done = measured(nets, tmp_path / "m.db")
    assert done.returncode == 3 and "the machine was busy" in done.stdout


def test_targets_and_stats(nets: Path) -> None:
    listed = json.loads(known(nets, "targets", "--json").stdout)
    assert FAKE in [item["target"] for item in listed]
    stats = json.loads(known(nets, "store", "stats", "--json").stdout)
    (row,) = stats["targets"]
    assert row["target"] == FAKE and row["networks"] >= 2  # tests before may have measured more


def test_examples_are_written_unless_one_is_unknown(tmp_path: Path) -> None:
    assert process("examples", "-o", "all", cwd=tmp_path).returncode == 0
    shipped = {path.name: path.read_bytes() for path in (ROOT / "data" / "nets").glob("*.onnx")}
    assert {path.name: path.read_bytes() for path in (tmp_path / "all").iterdir()} == shipped
    done = process("examples", "-o", "nets", "resnet18", "resnet-18", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown example 'resnet-18'; choose from" in done.stderr
    assert not (tmp_path / "nets").exists()
