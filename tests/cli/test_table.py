"""`table`: the blocks of networks as rows that add up, as CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import FAKE, ROOT, process

NETS = [str(ROOT / "data" / "nets" / f"{name}.onnx") for name in ("resnet18", "resnet34")]
L4 = "l4/tensorrt/fp16"


def table(folder: Path, *arguments: str, code: int = 0) -> Any:
    done = process("table", *arguments, "--store", "s.db", cwd=folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_rows_and_constant_are_the_latency_of_the_network(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    asked = ("--target", L4, "--measure", "never", "--tolerance", "900%")
    done = table(tmp_path, NETS[0], *asked, "--json", "--csv", str(rows))
    body = json.loads(done.stdout)
    assert (body["format"], body["target"], body["batch"], body["networks"]) == (1, L4, 1, 1)
    summed = body["constant_us"] + sum(row["latency_us"] for row in body["rows"])
    own = json.loads(process("predict", NETS[0], *asked, "--json", cwd=tmp_path).stdout)
    assert summed == pytest.approx(own["latency_us"])
    positions = [row["position"] for row in body["rows"]]
    assert "conv1" in positions[0] and {"layer1.0", "layer4.1"} <= set(positions)
    found = list(csv.DictReader(io.StringIO(rows.read_text())))
    assert sum(float(row["latency_us"]) for row in found) == pytest.approx(summed)
    assert found[0]["position"] == "constant" and found[1]["key"] == body["rows"][0]["key"]


def test_blocks_of_several_networks_and_what_is_doubtful(tmp_path: Path) -> None:
    done = table(tmp_path, *NETS, "--target", L4, "--measure", "never", "--tolerance", "1%", code=3)
    assert "blocks are not to be trusted" in done.stderr
    assert "none" in done.stdout and "layer3.5" in done.stdout
    page = tmp_path / "t.md"
    table(tmp_path, *NETS, "--target", L4, "--measure", "never", "--markdown", str(page), code=3)
    header, _, first = page.read_text().splitlines()[:3]
    assert header.startswith("| position | block | latency |") and first.startswith(
        "| conv1…act1 |"
    )


def test_what_has_no_blocks_is_said(nets: Path) -> None:
    done = process("table", "a.onnx", "--target", FAKE, "--store", "known.db", cwd=nets)
    assert done.returncode == 2
    assert "which module an operator comes from" in done.stderr
