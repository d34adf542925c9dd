"""The whole way through the command line on the fake engine: tables, files, messages."""

import errno
import logging
import os
import re
from pathlib import Path

import pytest

from hybridlat.cli import main as cli
from tests.cli.shell import FAKE, Printed, call, python
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
    assert body["rests_on"] == "learned from this GPU under TensorRT 8.6"
    for other in ("orin-nx-10w/tensorrt/int8", "orin-nx-10w/tensorrt-8.6/int8"):
        basis = call(*words[:-1], other, "--json").body["rests_on"]
        assert basis.endswith(" at fp16, none known at int8")
    assert body["check"].startswith("trtexec --onnx=") and "median" in body["check_field"]
    call(*words, "--target", "l4/tensorrt/fp16", "--target", "a10/tensorrt/fp16")
    alike = call(*words[:-1], "l40s/tensorrt/fp16", "--target", "l40/tensorrt/fp16")
    assert "rest on" not in alike.out  # both on other GPUs


LOGGER = logging.getLogger("hybridlat")
WORDS = ("predict", "a.onnx", "--target", FAKE, "--store", "known.db", "--tolerance", "30%")
"""Of a network that the store knows; the fake engine has no calibration on whole networks."""


@pytest.fixture
def known(nets: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose store knows two networks."""
    monkeypatch.chdir(nets)
    monkeypatch.setenv("COLUMNS", "100")
    return nets


@pytest.mark.usefixtures("known")
def test_a_warning_is_a_sentence_beside_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged model of the user's own is passed over, and each file is told of once."""
    place = tmp_path / "hybridlat" / "models" / FAKE.replace("/", "_")
    place.mkdir(parents=True)
    (place / "card.json").write_text("no card")
    (place / "composition.json").write_text("{")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = call(*WORDS, "--json")
    said = done.err.splitlines()
    assert len(said) == len(set(said)) >= 1
    assert all(line.startswith(f"hybridlat: {place}") and "passed over" in line for line in said)
    assert done.body


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("flag", ["--verbose", "--debug"])
def test_messages_are_shown_beside_the_answer(flag: str) -> None:
    done = call(flag, *WORDS, "--json")
    assert done.body["network"] == "a.onnx"
    assert f"a.onnx on {FAKE}" in done.err
    assert done.err.startswith("hybridlat.")
    beside = call(flag, "predict", "resnet18", "--target", L4, "--store", "sqlite://").err
    took_s = re.findall(r"measured now, in ([0-9.]+) s", beside)  # its own, and at FP32
    assert len(took_s) > 1 and max(map(float, took_s)) < 600


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


@pytest.mark.usefixtures("known")
def test_a_known_network_is_a_table_or_one_document_and_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    out, err = call(*WORDS, "--html", str(page))
    assert err == ""
    assert re.search(r"(?m)^[0-9.]+ [µm]s   .* fps   ±.*\nmeasured \(1 run, ", out)
    assert "Conv" in out and "\x1b" not in out  # no colours beside a terminal
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    document = call(*WORDS, "--json").body
    assert [document[name] for name in ("format", "network", "target")] == [1, "a.onnx", FAKE]
    assert document["interval_us"][0] <= document["latency_us"] <= document["interval_us"][1]
    nowhere = call(*WORDS, "--html", str(tmp_path / "no" / "page.html"), code=2).err
    assert "there is no folder" in nowhere and "make it first" in nowhere


def measured(store: Path, *words: str, code: int = 0) -> Printed:
    place = ("--network", "--target", FAKE, "--store", str(store))
    return call("measure", "a.onnx", *place, *words, code=code)


@pytest.mark.usefixtures("known")
def test_measure_json(tmp_path: Path) -> None:
    document = measured(tmp_path / "m.db", "--json").body
    assert document["latency_us"] > 0
    assert {record["kind"] for record in document["records"]} == {"network"}
    several = measured(tmp_path / "m.db", "bad.onnx", "b.onnx", "--json", code=2).body
    assert [one["latency_us"] is None for one in several] == [False, True, False]


@pytest.mark.usefixtures("known")
def test_what_a_busy_machine_measured_is_not_known_well_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loadavg").write_text("9.0 9.0 9.0 99/200 77\n")
    (tmp_path / "stat").write_text("cpu  50 0 50 100 0 0 0 0 0 0\n")
    monkeypatch.setenv("HYBRIDLAT_PROC", str(tmp_path))
    assert "the machine was busy" in measured(tmp_path / "m.db", code=3).out


def test_examples_are_written_unless_one_is_unknown(tmp_path: Path) -> None:
    call("examples", "-o", f"{tmp_path}/all")
    shipped = {path.name: path.read_bytes() for path in (ROOT / "data" / "nets").glob("*.onnx")}
    assert {path.name: path.read_bytes() for path in (tmp_path / "all").iterdir()} == shipped
    (own := tmp_path / "all" / "resnet18.onnx").write_text("mine")
    err = call("examples", "-o", f"{tmp_path}/all", "resnet34", "resnet18", code=2).err
    assert f"{own} is another file" in err and own.read_text() == "mine"
    unknown = call("examples", "-o", f"{tmp_path}/nets", "resnet18", "resnet-18", code=2).err
    assert "unknown example 'resnet-18'; choose from" in unknown
    assert not (tmp_path / "nets").exists()


@pytest.mark.parametrize("words", ["examples", "plan resnet18 --target l4/tensorrt/fp16"])
def test_what_a_full_disk_has_no_room_for_is_named_and_not_begun(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        path.open("wb").close()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    err = call(*words.split(), "-o", f"{tmp_path}/new", code=2).err
    assert f"No space left on device: {tmp_path}/new/" in err
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
