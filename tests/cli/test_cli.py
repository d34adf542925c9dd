"""The whole way through the command line, on the fake engine."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import FAKE, process
from tests.networks import ROOT


def known(nets: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command about networks that the store knows."""
    wide = ["--tolerance", "30%"]  # the fake target has no calibration on whole networks
    return process(*arguments, *wide, "--target", FAKE, "--store", "known.db", cwd=nets)


def test_predicting_a_known_network_prints_a_table(nets: Path) -> None:
    done = known(nets, "predict", "a.onnx")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(r"(?m)^[0-9.]+ [µm]s   .* fps   ±.*\nmeasured \(1 run, ", done.stdout)
    assert done.stdout.count("Conv") >= 1
    assert "\x1b" not in done.stdout  # no colours beside a terminal


def test_json_is_one_document_and_nothing_else(nets: Path) -> None:
    done = known(nets, "predict", "a.onnx", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert [document[name] for name in ("format", "network", "target")] == [1, "a.onnx", FAKE]
    assert document["interval_us"][0] <= document["latency_us"] <= document["interval_us"][1]
    assert sum(cell["share"] for cell in document["cells"]) == pytest.approx(1, abs=0.05)


def test_compare(nets: Path) -> None:
    done = known(nets, "compare", "a.onnx", "b.onnx")
    assert done.returncode == 0, done.stderr
    assert "slower" in done.stdout or "too close to tell" in done.stdout
    document = json.loads(known(nets, "compare", "a.onnx", "b.onnx", "--json").stdout)
    assert len(document["networks"]) == 2 and document["differences"]


def test_the_page_is_written_beside_the_table(nets: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = known(nets, "predict", "a.onnx", "--html", str(page))
    assert done.returncode == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    nowhere = known(nets, "predict", "a.onnx", "--html", str(tmp_path / "no" / "page.html"))
    assert nowhere.returncode == 2
    assert "No such file" in nowhere.stderr and "Traceback" not in nowhere.stderr


def test_measure_json(nets: Path, tmp_path: Path) -> None:
    done = process("measure", "a.onnx", "--network", "--target", FAKE, "--json",
                   "--store", str(tmp_path / "m.db"), cwd=nets)  # fmt: skip
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
    done = process("measure", "a.onnx", "--network", "--target", FAKE,
                   "--store", str(tmp_path / "m.db"), cwd=nets)  # fmt: skip
    assert done.returncode == 3 and "the machine was busy" in done.stdout


def test_targets_and_stats(nets: Path) -> None:
    listed = json.loads(process("targets", "--store", "known.db", "--json", cwd=nets).stdout)
    assert FAKE in [item["target"] for item in listed]
    stats = json.loads(process("store", "stats", "--store", "known.db", "--json", cwd=nets).stdout)
    (row,) = stats["targets"]
    assert row["target"] == FAKE and row["networks"] >= 2  # tests before may have measured more


def test_what_cannot_be_imported_is_said_without_a_number_of_the_system(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    for name, why in (("nowhere", "there is no such file"), (".", "it is no folder of a plan, no")):
        done = process("import", name, "--store", store, cwd=tmp_path)
        assert done.returncode == 2 and "Errno" not in done.stderr
        assert f"{name} cannot be imported: {why}" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_all_examples_are_written(tmp_path: Path) -> None:
    assert process("examples", "-o", "all", cwd=tmp_path).returncode == 0
    shipped = {path.name: path.read_bytes() for path in (ROOT / "data" / "nets").glob("*.onnx")}
    assert {path.name: path.read_bytes() for path in (tmp_path / "all").iterdir()} == shipped


def test_an_unknown_example_writes_nothing_and_is_told_the_choices(tmp_path: Path) -> None:
    done = process("examples", "-o", "nets", "resnet18", "resnet-18", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown example 'resnet-18'; choose from" in done.stderr
    assert not (tmp_path / "nets").exists()
