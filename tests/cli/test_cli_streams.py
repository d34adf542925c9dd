"""Streams, progress, completion, and how little is loaded to start."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hybridlat import Predictor
from hybridlat.cli import main as cli
from hybridlat.cli.output import ProgressShown, line
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.workers import Progress
from tests.cli.shell import FAKE, call, process, python
from tests.networks import ROOT

_HEAVY = "onnx onnxruntime mlflow xgboost sklearn pandas scipy joblib pyarrow matplotlib"
NEEDLESS = {*_HEAVY.split(), "openvino", "tensorrt", "torch"}
"""What an answer of look-ups has no use for. Each takes a tenth of a second or more to load."""

_LOST = "hybridlat: standard output cannot be written: {}\n2\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--help | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}", {"0\n", f"{cli.BROKEN_PIPE}\n"}),
        ("store stats --store known.db <&- >&- 2>&-; echo $?", {"2\n"}),
        ("store stats --store known.db --json <&- 2>&- >/dev/null; echo $?", {"0\n"}),
        (
            "store stats --store known.db --json 2>&1 >&-; echo $?",
            {_LOST.format("Bad file descriptor")},
        ),
        (
            "predict resnet18 --target l4/tensorrt/fp16 --json 2>&1 >&-; echo $?",
            {_LOST.format("Bad file descriptor")},
        ),
        ("--version 2>&1 >/dev/full; echo $?", {_LOST.format("No space left on device")}),
        (
            "recommend resnet18 l4 --csv - 2>&1 >/dev/full | tail -n 1; echo ${PIPESTATUS[0]}",
            {_LOST.format("No space left on device")},
        ),
    ],
)
def test_closed_streams_and_readers_are_no_defect(nets: Path, words: str, said: set[str]) -> None:
    shell = [
        "env",
        "-u",
        "PYTHONUNBUFFERED",
        "bash",
        "-c",
        f"{sys.executable} -m hybridlat {words}",
    ]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60, cwd=nets)
    assert done.stderr == "" and done.stdout in said


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ("recommend resnet18 l4 --csv t.csv --html p.html", "t.csv p.html"),
        (
            "sweep resnet18 --target l4/tensorrt/fp16 --batch 1,2 --csv t.csv --html p.html",
            "t.csv p.html",
        ),
        ("compare resnet18 resnet34 --target l4/tensorrt/fp16 --html p.html", "p.html"),
        (
            "predict resnet18 resnet34 --target l4/tensorrt/fp16 --csv t.csv --html p.html",
            "t.csv p.html",
        ),
        (
            "predict resnet18 --target l4/tensorrt/fp16 --target t4/tensorrt/fp16 --html p.html",
            "p.html",
        ),
        ("predict resnet18 --target l4/tensorrt/fp16 --json --html p.html", "p.html"),
        ("predict resnet18 --target l4/tensorrt/fp16 --csv - --junit j.xml", "j.xml"),
    ],
)
def test_files_are_whole_though_the_reader_goes_away(
    tmp_path: Path, words: str, files: str
) -> None:
    shell = ["bash", "-c", f"{sys.executable} -m hybridlat {words} >&-"]
    done = subprocess.run(shell, capture_output=True, check=False, timeout=60, cwd=tmp_path)
    assert done.returncode == 2 and all((tmp_path / file).stat().st_size for file in files.split())


def test_a_unit_is_read_on_a_terminal_without_its_letter(nets: Path) -> None:
    words = ("predict", "a.onnx", "--target", FAKE, "--store", "known.db", "--measure", "never")
    done = process(*words, cwd=nets, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and " us " in done.stdout and "?" not in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "no\x1b[2J\n.onnx"],
        ["predict", "--max-latency", "\x9b\n", "a.onnx"],
        ["store", "check", "no\x1b[2J\n"],
        ["import", "\u202e"],
        ["\x1b"],
    ],
)
def test_messages_steer_no_terminal(words: list[str], tmp_path: Path) -> None:
    out, err = call(*words, "--store", str(tmp_path / "s.db"), code=2)
    assert err or out
    assert all(line.isprintable() for line in (out + err).split("\n"))


def test_a_store_that_cannot_be_made_costs_a_prediction_no_word(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ("resnet18", "--target", "l4/tensorrt/fp16", "--store", str(tmp_path / "file" / "s.db"))
    assert call("predict", *words).err == ""


def test_an_interrupt_ends_with_a_sentence(nets: Path, tmp_path: Path) -> None:
    script = (
        # A test run in the background of a shell inherits that interrupts are ignored.
        "import signal, sys, time; import hybridlat\n"
        "from hybridlat.cli import main as cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(*_, **__): print('ready', flush=True); time.sleep(60)\n"
        "hybridlat.Predictor.predict_many = wait\n"
        f"cli.main(['predict', 'a.onnx', '--target', '{FAKE}', '--store', r'{tmp_path}/s.db'])"
    )
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, **pipes) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "interrupted" in err and "Traceback" not in err


@pytest.mark.parametrize("flags", [["-X", "dev", "-W", "error"], ["-OO"]])
def test_every_mode_of_python_predicts(flags: list[str]) -> None:
    """Python's development mode ends a process in which memory was freed that is not its own."""
    words = ("predict", "resnet18", "--target", "l4/tensorrt/fp16", "--store", "sqlite://")
    done = python(*flags, "-m", "hybridlat", *words)
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_without_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProgressShown() as shown:
        shown(Progress(1, 2, "Conv", 0.1))  # what is quick shows nothing
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with ProgressShown() as shown:
        for done in range(101):
            clock[0] = done * 0.2
            shown(Progress(done, 100, "Conv+Relu", 20.0 - clock[0]))
    out, err = capsys.readouterr()
    assert out == "" and 3 <= len(err.splitlines()) <= 6
    assert err.splitlines()[-1] == "measuring 100/100"
    texts = {None: "", 7400.0: ", about 2 h 3 min left", 90.0: ", about 2 min left"}
    for seconds, left in texts.items():
        assert line(Progress(1, 2, "x", seconds)) == f"measuring 1/2{left}"


def test_a_terminal_shows_the_step_that_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("hybridlat.cli.output._SILENT_S", 0.05)
    sentences: list[str] = []
    with ProgressShown().at("predicting a.onnx", sentences.append) as shown:
        deadline = time.monotonic() + 20
        while "predicting a.onnx" not in (err := capsys.readouterr().err):
            assert time.monotonic() < deadline, err
            time.sleep(0.05)
        shown.close()
        shown.at("nobody sees this")
        shown.close()
        time.sleep(0.1)
    assert not sentences  # elsewhere it is one, at once
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    ProgressShown().at("looking", sentences.append)
    assert sentences == ["looking"]
    assert "nobody" not in capsys.readouterr().err


def test_targets_complete(nets: Path) -> None:
    typed = {"COMP_WORDS": "hybridlat predict --target fak", "COMP_CWORD": "3"}
    typed |= {"HYBRIDLAT_STORE": "known.db", "_HYBRIDLAT_COMPLETE": "bash_complete"}
    done = process(cwd=nets, **typed)
    assert f"plain,{FAKE}" in done.stdout.split()


def loaded_by(code: str, *words: str) -> set[str]:
    """Top-level modules in a process that ran ``code`` and then this command, which succeeds."""
    if words:
        code += (
            "\nimport contextlib, io\nfrom hybridlat.cli import main as cli\n"
            f"with contextlib.redirect_stdout(io.StringIO()): assert cli.run({[*words]!r}) == 0"
        )
    script = f"{code}\nimport sys; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_a_model_answers_without_what_trains_models(tmp_path: Path) -> None:
    words = ("predict", "resnet18", "--target", "v100/tensorrt/fp16", "--store", f"{tmp_path}/s.db")
    loaded_by("", *words)  # it is read and lowered once
    assert not NEEDLESS & loaded_by("", *words)


def test_listing_targets_loads_no_model() -> None:
    code = "import numpy; numpy.load = None  # no array is read"
    loaded = loaded_by(code, "targets", "--store", "sqlite://")
    assert not loaded & {"xgboost", "sklearn", "pandas", "mlflow", "torch"}


def test_a_known_network_is_answered_without_what_makes_answers(tmp_path: Path) -> None:
    # Of the shipped pack the first time, and then of the same cells in a store of one's own.
    target, store = "epyc-26-2/onnxruntime-1.31/fp32/1t", f"sqlite:///{tmp_path / 'store.db'}"
    net = str(ROOT / "data" / "nets" / "resnet18.onnx")
    words = ["predict", net, "--target", target, "--store", store, "--measure", "never"]
    assert NEEDLESS & loaded_by("", *words)  # it is read and lowered once
    assert not NEEDLESS & loaded_by("", *words)
    with Predictor(target, store=store, measure="never") as predictor:
        cells = predictor.predict(net).cells
        predictor.store.add(
            Measurement(predictor.target, cell.signature, "cell", cell.latency_us, 0.01)
            for cell in cells
        )
    loaded_by("", *words)  # the constants of the machine follow from its records, once
    assert not {*NEEDLESS, "email"} & loaded_by("", *words)  # importlib.metadata loads email


@pytest.mark.parametrize(("words", "allowed"), [("", set()), ("predict", {"rich"})])
def test_help_loads_nothing_heavy(words: str, allowed: set[str]) -> None:
    code = "from hybridlat.cli import main as c; assert c.run(['--version']) == 0"
    loaded = loaded_by(code, *words.split(), "--help")
    assert loaded & {*NEEDLESS, "numpy", "rich"} <= allowed
