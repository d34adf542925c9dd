"""`predict` with several batches, several targets, several processes: tables, files, exit codes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from hybridlat.cli import main as cli
from tests.cli.shell import FAKE, known
from tests.networks import ROOT

L4 = "l4/tensorrt/fp16"


def predict(nets: Path, *arguments: str, code: int = 0) -> Any:
    done = known(nets, "predict", *arguments, COLUMNS="80")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_batches_give_a_curve_and_a_list_with_throughput(nets: Path) -> None:
    words = ["--target", FAKE, "--tolerance", "50%"]
    done = predict(nets, "a.onnx", "--batch", "1,2,4", *words)
    lines = done.stdout.splitlines()
    assert lines[0] == f"on {FAKE}" and lines[2].startswith("a ")
    first = [line.split()[line.startswith(("network", "a"))] for line in lines[1:5]]
    assert first == ["batch", "1", "2", "4"]
    assert all(" fps" in line and " – " in line for line in lines[2:5])
    found = json.loads(predict(nets, "a.onnx", "b.onnx", "--batch", "1,2", "--json", *words).stdout)
    rows = [("a.onnx", 1), ("a.onnx", 2), ("b.onnx", 1), ("b.onnx", 2)]
    assert [(e["network"], e["batch"]) for e in found] == rows
    for e in found:
        assert e["format"] == 1
        assert e["throughput_per_s"] == pytest.approx(1e6 * e["batch"] / e["latency_us"])
        low, high = e["throughput_interval_per_s"]
        assert low < e["throughput_per_s"] < high


def test_targets_give_a_table_and_what_fails_costs_its_cell(nets: Path, tmp_path: Path) -> None:
    table, rows = tmp_path / "t.md", tmp_path / "t.csv"
    targets = ["--target", FAKE, "--target", L4, "--target", "x/nobody/fp16", "--measure", "never"]
    files = ["--markdown", str(table), "--csv", str(rows)]
    done = predict(nets, "a.onnx", "bad.onnx", *targets, *files, code=2)
    assert done.stderr.count("bad.onnx: this is not an ONNX model") == 1
    assert done.stderr.count("unknown engine 'nobody'") == 1
    assert "4 of 6 predictions" in done.stderr
    lines = [line.strip("| ").split(" | ") for line in table.read_text().splitlines()]
    assert lines[0][:5] == ["network", "batch", "target", "latency", "interval"]
    sure, guessed, none, bad, *_ = lines[2:]
    assert sure[:3] == ["a.onnx", "1", FAKE] and sure[-1] == "measured"
    assert guessed[2] == L4 and " – " in guessed[4] and guessed[-1] != "measured"
    assert none == ["a.onnx", "1", "x/nobody/fp16", *"––––"] and bad[3:] == [*"––––"]
    assert sure[3] in done.stdout and done.stdout.splitlines()[1].startswith("a  ")
    assert "?" not in done.stdout  # a guess is a grade, and no doubt
    found = list(csv.DictReader(io.StringIO(rows.read_text())))
    places = [(r["network"], r["target"]) for r in found[:3]]
    assert places == [("a.onnx", FAKE), ("a.onnx", L4), ("a.onnx", "x/nobody/fp16")]
    assert float(found[0]["low_us"]) < float(found[0]["latency_us"]) < float(found[0]["high_us"])
    assert found[2]["latency_us"] == "" and "'nobody'" in found[2]["error"]
    assert "not an ONNX model" in found[3]["error"] and len(found) == 6


def test_one_document_goes_to_standard_output(nets: Path) -> None:
    done = predict(nets, "a.onnx", "b.onnx", "--target", FAKE, "--csv", "-")
    assert [r["network"] for r in csv.DictReader(io.StringIO(done.stdout))] == ["a.onnx", "b.onnx"]
    done = predict(nets, "a.onnx", "--target", FAKE, "--markdown", "-")
    heads = "| network | batch | target | latency | interval | throughput | grade |"
    assert done.stdout.startswith(heads)
    done = predict(nets, "a.onnx", "--target", FAKE, "--csv", "-", "--json", code=2)
    assert "Only one of" in done.stderr


def test_the_limit_holds_for_every_cell_of_the_table(nets: Path) -> None:
    words = ["--batch", "1,4", "--tolerance", "50%", "--max-latency", "1us"]
    done = predict(nets, "a.onnx", "--target", FAKE, *words, code=1)
    assert "a.onnx at batch 4: over: " in done.stderr


def test_several_processes_print_what_one_prints(nets: Path) -> None:
    def body(*more: str) -> list[Any]:
        words = ["--target", FAKE, "--measure", "never", "--json", *more]
        done = predict(nets, "b.onnx", "bad.onnx", "a.onnx", *words, code=2)
        assert "bad.onnx: this is not an ONNX model" in done.stderr
        return [{k: v for k, v in e.items() if k != "elapsed_s"} for e in json.loads(done.stdout)]

    assert body() == body("--jobs", "2")
    predict(nets, "a.onnx", "b.onnx", "--jobs", "0", code=2)


def test_targets_are_as_written_and_rows_on_other_data_say_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    net = str(ROOT / "data/nets/resnet18.onnx")
    nano, mode = "orin-nano/tensorrt/fp16", "orin-nano-7w/tensorrt/fp16"
    words = ["predict", net, "--store", str(tmp_path / "s.db"), "--target", nano]
    assert cli.run([*words, "--target", mode, "--html", str(tmp_path / "p.html")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "These rows rest on different things" in out
    assert f"{nano}: learned from 120 public timings of this GPU (trtutils);" in out
    assert "rest on different things" in (tmp_path / "p.html").read_text()
    assert cli.run([*words[:-1], mode, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["target"] == mode and body["answered_as"] == mode
    assert body["rests_on"].endswith("learned from tensorrt-8.6")
    assert body["check"].startswith("trtexec --onnx=") and "median" in body["check_field"]
    assert cli.run([*words, "--target", "l4/tensorrt/fp16", "--target", "a10/tensorrt/fp16"]) == 0
    capsys.readouterr()
    assert cli.run([*words[:-1], "l40s/tensorrt/fp16", "--target", "l40/tensorrt/fp16"]) == 0
    assert "rest on" not in capsys.readouterr().out  # both on other GPUs
