"""The whole way through the command line on the fake engine: tables, files, messages."""

import json
import logging
import os
import re
import subprocess
from pathlib import Path

import pytest

from hybridlat.cli import main as cli
from tests.cli.shell import FAKE, call, known, process, python
from tests.networks import ROOT

L4 = "l4/tensorrt/fp16"


def test_targets_are_as_written_and_rows_on_other_data_say_so(tmp_path: Path) -> None:
    net = str(ROOT / "data/nets/resnet18.onnx")
    nano, mode = "orin-nano/tensorrt/fp16", "orin-nano-7w/tensorrt/fp16"
    words = ["predict", net, "--store", str(tmp_path / "s.db"), "--target", nano]
    both = call(*words, "--target", mode, "--html", str(tmp_path / "p.html"))
    out = " ".join(both.out.split())
    assert "These rows rest on different things" in out
    assert f"{nano}: learned from 120 public timings of this GPU (trtutils);" in out
    assert "rest on different things" in (tmp_path / "p.html").read_text()
    body = call(*words[:-1], mode, "--json").body
    assert body["target"] == mode and body["answered_as"] == mode
    assert body["rests_on"].endswith("learned from tensorrt-8.6")
    assert body["check"].startswith("trtexec --onnx=") and "median" in body["check_field"]
    call(*words, "--target", "l4/tensorrt/fp16", "--target", "a10/tensorrt/fp16")
    alike = call(*words[:-1], "l40s/tensorrt/fp16", "--target", "l40/tensorrt/fp16")
    assert "rest on" not in alike.out  # both on other GPUs


LOGGER = logging.getLogger("hybridlat")


WORDS = ("predict", "a.onnx", "--tolerance", "30%", "--target", FAKE, "--json")


def test_a_warning_is_a_sentence_beside_the_answer(nets: Path, tmp_path: Path) -> None:
    """A damaged model of the user's own is passed over, and each file is told of once."""
    place = tmp_path / "hybridlat" / "models" / FAKE.replace("/", "_")
    place.mkdir(parents=True)
    (place / "card.json").write_text("no card")
    (place / "composition.json").write_text("{")
    done = known(nets, *WORDS, XDG_DATA_HOME=str(tmp_path))
    said = done.stderr.splitlines()
    assert len(said) == len(set(said)) >= 1
    assert all(line.startswith(f"hybridlat: {place}") and "passed over" in line for line in said)
    json.loads(done.stdout)


@pytest.mark.parametrize("flag", ["--verbose", "--debug"])
def test_messages_are_shown_beside_the_answer(nets: Path, flag: str) -> None:
    done = known(nets, flag, *WORDS)
    assert done.returncode == 0
    assert json.loads(done.stdout)["network"] == "a.onnx"
    assert f"a.onnx on {FAKE}" in done.stderr
    assert done.stderr.startswith("hybridlat.")


def test_a_run_leaves_no_trace_in_the_program_that_made_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HYBRIDLAT_DEBUG", raising=False)
    cli.run(["predict", "missing.onnx"])  # libraries set variables of their own when they load
    capsys.readouterr()
    before = list(LOGGER.handlers), LOGGER.level, dict(os.environ)
    assert cli.run(["--debug", "predict", "missing.onnx"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert (list(LOGGER.handlers), LOGGER.level, dict(os.environ)) == before
    for value, shown in (("0", False), ("1", True)):
        monkeypatch.setenv("HYBRIDLAT_DEBUG", value)
        assert cli.run(["predict", "missing.onnx"]) == 2
        assert ("Traceback" in capsys.readouterr().err) == shown


def test_a_library_user_routes_messages_and_hears_nothing_before() -> None:
    script = (
        "import logging, hybridlat\n"
        "logging.getLogger('hybridlat.anything').error('unseen')\n"
        "logging.basicConfig(level=logging.INFO, format='%(name)s|%(message)s')\n"
        "logging.getLogger('hybridlat.anything').info('seen')\n"
    )
    done = python("-c", script)
    assert (done.returncode, done.stderr) == (0, "hybridlat.anything|seen\n")


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
    several = measured(nets, tmp_path / "m.db", "bad.onnx", "b.onnx", "--json")
    assert several.returncode == 2 and len(json.loads(several.stdout)) == 3
    assert [one["latency_us"] is None for one in json.loads(several.stdout)] == [False, True, False]


def test_what_a_busy_machine_measured_is_not_known_well_enough(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loadavg").write_text("9.0 9.0 9.0 99/200 77\n")
    (tmp_path / "stat").write_text("cpu  50 0 50 100 0 0 0 0 0 0\n")
    monkeypatch.setenv("HYBRIDLAT_PROC", str(tmp_path))
    done = measured(nets, tmp_path / "m.db")
    assert done.returncode == 3 and "the machine was busy" in done.stdout


def test_examples_are_written_unless_one_is_unknown(tmp_path: Path) -> None:
    assert process("examples", "-o", "all", cwd=tmp_path).returncode == 0
    shipped = {path.name: path.read_bytes() for path in (ROOT / "data" / "nets").glob("*.onnx")}
    assert {path.name: path.read_bytes() for path in (tmp_path / "all").iterdir()} == shipped
    done = process("examples", "-o", "nets", "resnet18", "resnet-18", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown example 'resnet-18'; choose from" in done.stderr
    assert not (tmp_path / "nets").exists()
