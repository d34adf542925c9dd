"""How commands end: exit codes, and one sentence for every mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import click
import pytest
from click.testing import CliRunner

from hybridlat import Predictor
from hybridlat.cli import main as cli
from hybridlat.errors import BackendUnavailable, MeasurementError, NetworkError
from hybridlat.schema.estimate import Estimate
from tests.cli.shell import FAKE, process
from tests.report.estimates import residual, untrusted


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Puts a stand-in in the Predictor's place, which gives these answers or raises them."""

    def set_up(*answers: Estimate | BaseException) -> Any:
        stand_in = create_autospec(Predictor)
        predictor = stand_in.return_value
        predictor.__enter__.return_value = predictor
        predictor.predict.side_effect = answers
        monkeypatch.setattr("hybridlat.Predictor", stand_in)
        return stand_in

    return set_up


@pytest.mark.parametrize(
    ("answers", "options", "code"),
    [
        ([residual()], [], 0),
        ([residual()], ["--max-latency", "9ms"], 0),
        ([residual()], ["--max-latency", "8ms"], 1),
        ([untrusted()], [], 3),
        ([untrusted()], ["--max-latency", "1us"], 3),  # doubt comes before the limit
        ([replace(residual(), within_tolerance=False, tolerance_given=True)], [], 3),
        ([replace(residual(), within_tolerance=False)], [], 0),
        ([NetworkError("n.onnx is empty")], [], 2),
        ([MeasurementError("the engine refuses it")], [], 3),
        ([BackendUnavailable("there is no GPU here")], [], 3),
        ([residual(), residual()], ["--max-latency", "8ms"], 1),
        ([residual(), untrusted()], ["--max-latency", "8ms"], 3),
        ([untrusted(), NetworkError("n.onnx is empty"), residual()], [], 2),
        ([PermissionError(13, "Permission denied", "n.onnx")], [], 2),
        ([KeyboardInterrupt()], [], 130),
        ([ZeroDivisionError("oops")], [], 70),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_json", [False, True])
def test_exit_codes(
    answering: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    answers: list[Estimate | BaseException],
    options: list[str],
    code: int,
    as_json: bool,
) -> None:
    answering(*answers)
    nets = [f"net{i}.onnx" for i in range(len(answers))]
    flags = ["--json"] if as_json else []
    assert cli.run(["predict", *nets, *options, *flags]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert bool(err) == (code != 0)
    if as_json and out:
        json.loads(out)


def test_compare_says_each_note_once_and_ends_as_predict_does(
    answering: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for answers, options, code in (
        ([residual(), residual()], [], 0),
        ([residual(), untrusted()], [], 3),
        ([residual(), untrusted()], ["--json"], 3),
    ):
        answering(*answers)
        assert cli.run(["compare", "a.onnx", "b.onnx", *options]) == code
        out, err = capsys.readouterr()
        assert bool(err) == bool(options)  # what stands beside the table is not said again
        assert options or out.count("Dropout_7 was removed") == 1


def test_options_arrive_as_written(answering: Callable[..., Any]) -> None:
    stand_in = answering(residual())
    code = cli.run(
        ["predict", "n.onnx", "--target", FAKE, "--threads", "2", "--store", "s.db", "--batch", "4",
         "--shape", "in:0:4x3x8x8", "--shape", "mask:4", "--tolerance", "2.5%",
         "--measure", "never"]
    )  # fmt: skip
    assert code == 0
    (target,), asked = stand_in.call_args
    assert (target, asked["threads"], asked["store"]) == (FAKE, 2, "s.db")
    assert asked["tolerance"] == pytest.approx(0.025) and asked["confidence"] == pytest.approx(0.9)
    assert asked["measure"] == "never"
    shapes = {"in:0": (4, 3, 8, 8), "mask": (4,)}
    stand_in.return_value.predict.assert_called_once_with(
        "n.onnx", batch=4, shapes=shapes, describe=True
    )


@pytest.mark.parametrize(
    ("words", "like"),
    [
        (["--shapes", "x:4", "-b", "4"], ["--shape", "x:4", "--batch", "4"]),
        (["--input-shapes", "x:4", "--batch-size", "4"], ["--shape", "x:4", "--batch", "4"]),
    ],
)
def test_names_of_other_tools_are_understood(
    answering: Callable[..., Any], words: list[str], like: list[str]
) -> None:
    stand_in = answering(residual(), residual())
    assert cli.run(["predict", "n.onnx", *words]) == cli.run(["predict", "n.onnx", *like]) == 0
    first, second = stand_in.return_value.predict.call_args_list
    assert first == second and first.kwargs["batch"] == 4 and first.kwargs["shapes"] == {"x": (4,)}


@pytest.mark.parametrize(
    ("command", "option", "old"),
    [("onboard", "--time-limit", "--budget"), ("measure", "--time-limit", "--limit"),
     ("plan", "--time-limit", "--limit"), ("doctor", "--time-limit", "--seconds"),
     ("measure", "--remeasure", "--anew"), ("lower", "--device-sheet", "--device")],
)  # fmt: skip
def test_old_names_work_unseen(command: str, option: str, old: str) -> None:
    found = cli.app.get_command(click.Context(cli.app), command)
    assert found is not None
    text = CliRunner().invoke(cli.app, [command, "--help"]).stdout
    assert option in text and f"{old} " not in text
    parser = found.make_parser(click.Context(found))
    assert parser._long_opt[option].obj is parser._long_opt[old].obj


def test_help_is_in_groups_and_cuts_nothing() -> None:
    def shown(*words: str) -> str:
        return CliRunner().invoke(cli.app, [*words, "--help"], env={"COLUMNS": "80"}).stdout

    assert re.findall(r"(?m)^(\w+):$", shown())[1:] == ["Ask", "Measure", "Models", "Data"]
    assert re.findall(r"(?m)^([\w ]+):$", shown("predict")) == [
        "Where", "Input", "How sure", "Output", "Other"
    ]  # fmt: skip
    assert "`hybridlat targets` lists" in " ".join(shown("predict").split())
    for name in cli.COMMANDS:
        text = shown(name)
        assert not re.search(r"(?m)^  .*\.\.\.$|RANGE|x<=", text), text


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["predct", "n.onnx"], "Did you mean predict?"),
        (["n.onnx"], "Did you mean hybridlat predict n.onnx?"),
        (["frobnicate"], "hybridlat --help"),
        (["predict", "n.onnx", "--tolerence", "5%"], "--tolerance"),
        (["predict"], "NET.onnx"),
        (["predict", "n.onnx", "--tolerance", "5"], "write 5% (or 0.05)"),
        (["predict", "n.onnx", "--fp16"], "--fp16 is part of --target, as in"),
        (["compare", "n.onnx", "--precision", "fp16"], "l4/tensorrt/fp16"),
        (
            ["predict", "n.onnx", "--device", "l4"],
            "'l4' is no TOML file: --device-sheet",
        ),
        (
            ["predict", "n.onnx", "--device", "0", "--target", FAKE],
            "of --target, as in --target l4",
        ),
        (["predict", "n.onnx", "--no-measure"], "--measure never"),
        (["predict", "n.onnx", "--threads", "0"], "whole number from 1 to 1024"),
        (["fusion", "n.onnx"], "Did you mean lower?"),
        (["onboard", "--time-limit", "10"], "write 10s, 10m or 10h"),
        (["predict", "n.onnx", "--batch", "0"], "--batch"),
        (["predict", "n.onnx", "--measure", "maybe"], "never"),
        (["predict", "n.onnx", "--shape", "a:1", "--shape", "a:2"], "two shapes"),
        (["predict", "missing.onnx"], "missing.onnx does not exist"),
        (["predict", "n.onnx", "--target", "v100"], "v100/tensorrt"),
        (["compare", "n.onnx"], "two networks"),
        (["store", "import", "nowhere"], "nowhere"),
        (["store", "import", ".", "--from", "nonsense"], "networks, trtexec"),
        (["import", "data/nets"], "no pack of hybridlat store export, no table (.csv,"),
        (["import", "data/packs", "--nets", "."], "--nets is for tables and logs of trtexec"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(words)
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert hint.replace("v100/tensorrt", "tensorrt") in err
    assert "Traceback" not in err


def test_a_misspelt_target_is_answered_with_those_alike(nets: Path) -> None:
    done = process("predict", "a.onnx", "--target", "fake/fake-1.0/fp23/1t", "--store", "known.db",
                   cwd=nets, HYBRIDLAT_STORE="known.db")  # fmt: skip
    assert done.returncode == 2
    assert f"did you mean {FAKE}?" in done.stderr


def test_every_command_has_an_example_and_every_option_a_sentence() -> None:
    context = click.Context(cli.app, info_name="hybridlat")
    for name in cli.app.list_commands(context):
        command = cli.app.get_command(context, name)
        assert command is not None
        assert CliRunner().invoke(cli.app, [name, "--help"]).exit_code == 0
        several = command.commands if isinstance(command, click.Group) else {}
        shown = [(f"{name} {sub}", one) for sub, one in several.items() if not one.hidden]
        for full, one in ((name, command), *shown):
            assert re.search(rf"(?m)^\s*hybridlat {full}\b", one.help or ""), full
            for parameter in one.params:
                assert isinstance(parameter, click.Argument) or parameter.help, (full, parameter)
