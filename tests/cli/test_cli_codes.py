"""How commands end: exit codes, and one sentence for every mistake."""

import io
import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import click
import pytest

from hybridlat import Predictor
from hybridlat.cli import main as cli
from hybridlat.errors import (
    BackendUnavailable,
    HybridlatError,
    MeasurementError,
    NetworkError,
    TargetError,
)
from hybridlat.schema.estimate import Estimate
from tests.cli.shell import FAKE, call
from tests.report.estimates import long_tail, residual, untrusted
from tests.report.test_terminal import hold_against


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Puts a stand-in in the Predictor's place, which gives these answers or raises them."""

    def set_up(*answers: Estimate | BaseException) -> Any:
        stand_in = create_autospec(Predictor)
        predictor = stand_in.return_value

        def opened(target: str | None = None, **_: object) -> Any:
            if "nobody" in (target or ""):
                raise TargetError("unknown engine 'nobody'")
            return predictor

        stand_in.side_effect = opened
        predictor.__enter__.return_value = predictor
        predictor.predict.side_effect, given = answers, iter(answers)

        def many(networks: list[str], **_: object) -> Iterator[object]:
            for answer in itertools.islice(given, len(networks)):
                if isinstance(answer, BaseException) and not isinstance(answer, HybridlatError):
                    raise answer
                yield answer

        predictor.predict_many.side_effect = many
        for place in ("hybridlat", "hybridlat.api.functions"):
            monkeypatch.setattr(f"{place}.Predictor", stand_in)
        return stand_in

    return set_up


@pytest.mark.parametrize(
    ("answers", "options", "code"),
    [
        ([residual()], ["--max-latency", "9ms"], 0),
        ([untrusted()], [], 3),
        ([untrusted()], ["--max-latency", "1us"], 1),  # whatever the missing cell takes
        ([untrusted()], ["--max-latency", "1s"], 3),
        ([NetworkError("n.onnx is empty")], [], 2),
        ([MeasurementError("the engine refuses it")], [], 3),
        ([BackendUnavailable("there is no GPU here")], [], 3),
        ([residual(), residual()], ["--max-latency", "7ms"], 1),
        ([residual(), untrusted()], ["--max-latency", "7ms"], 3),
        ([untrusted(), NetworkError("n.onnx is empty"), residual()], [], 2),
        ([PermissionError(13, "Permission denied", "n.onnx")], [], 2),
        ([MemoryError("Unable to allocate 5 MiB")], [], 3),
        ([residual(), KeyboardInterrupt()], ["--csv", "kept.csv", "--html", "kept.html"], 130),
        ([residual(), MemoryError("5 MiB")], ["--csv", "kept.csv", "--html", "kept.html"], 3),
        ([KeyboardInterrupt()], ["--csv", "empty.csv"], 130),
        ([ZeroDivisionError("oops")], [], 70),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_json", [False, True])
def test_exit_codes(
    answering: Callable[..., Any],
    answers: list[Estimate | BaseException],
    options: list[str],
    code: int,
    as_json: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    answering(*answers)
    nets = [f"net{i}.onnx" for i in range(len(answers))]
    out, err = call("predict", *nets, *options, *["--json"] * as_json, code=code)
    assert "Traceback" not in err
    rows = [path.read_text().splitlines() for path in tmp_path.glob("*.csv")]
    assert [len(one) for one in rows] == [2] * ("kept.csv" in options)  # a head, the one answer
    assert Path("kept.html").exists() == ("kept.html" in options)
    # What standard output says already is not said again.
    said = code in (1, 3) and any(word in out for word in ("not to be trusted", "over: "))
    assert bool(err) == (code != 0 and not said)
    if as_json and out:
        bodies = json.loads(out) if len(answers) > 1 else [json.loads(out)]
        assert ["error" in one for one in bodies] == [not isinstance(a, Estimate) for a in answers]


ONE, BOTH = residual(), replace(residual(), batch=2)
WIDE = replace(ONE, within_tolerance=False, tolerance=0.01, tolerance_given=True)
OTHER = replace(long_tail(2), target="l4/tensorrt/fp16", network="a.onnx")
BAD = NetworkError("bad.onnx: this is not an ONNX model")
TARGETS = "--target here/fake-1.0/fp32 --target l4/tensorrt/fp16 --target x/nobody/fp16"
AGREED: dict[str, tuple[str, list[Any]]] = {
    "within": ("predict n.onnx --max-latency 30fps --csv -", [residual()]),
    "unsure": ("predict n.onnx --max-latency 8ms --markdown -", [residual()]),
    "over_json": ("predict n.onnx --max-latency 7ms --json", [residual()]),
    "wide": ("predict n.onnx --tolerance 1%", [WIDE]),
    "doubted_json": ("predict n.onnx --max-latency 1s --json", [untrusted()]),
    "batches": ("predict a.onnx b.onnx --batch 1,2 --max-latency 8ms", [ONE, ONE, BOTH, BOTH]),
    "batches_json": ("predict a.onnx b.onnx --batch 1,2 --json", [ONE, BAD, BOTH, BAD]),
    "targets": (f"predict a.onnx bad.onnx {TARGETS}", [residual(), BAD, OTHER, BAD]),
    "targets_csv": (f"predict a.onnx bad.onnx {TARGETS} --csv -", [residual(), BAD, OTHER, BAD]),
    "junit": (
        f"predict a.onnx b.onnx bad.onnx {TARGETS} --max-latency 7ms --junit -",
        [residual(), untrusted(), BAD, OTHER, replace(OTHER, latency_us=2.0), BAD],
    ),
    "junit_of_one": ("predict bad.onnx --max-latency 7ms --junit -", [BAD]),
    "compared": ("compare a.onnx b.onnx", [residual(), untrusted()]),
    "compared_json": ("compare a.onnx b.onnx --json", [residual(), untrusted()]),
}


@pytest.mark.parametrize("name", AGREED)
def test_commands_print_what_was_agreed(
    name: str, answering: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each note and doubt is said once, beside the answer or on standard error."""
    monkeypatch.setenv("COLUMNS", "100")
    words, answers = AGREED[name]
    answering(*answers)
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = cli.run(words.split())
    text = f"$ hybridlat {words}\n{out.getvalue()}--- {code}\n{err.getvalue()}"
    hold_against(f"command_{name}.txt", re.sub(" +\n", "\n", text))


def test_options_arrive_as_written(answering: Callable[..., Any]) -> None:
    stand_in = answering(residual())
    words = f"predict n.onnx --target {FAKE} --threads 2 --store s.db --batch 4 --measure never"
    shaped = "--jobs 2 --shape in:0:4x3x8x8 --shape mask:4 --tolerance 2.5%"
    assert cli.run([*words.split(), *shaped.split()]) == 0
    (target,), asked = stand_in.call_args
    assert (target, asked["threads"], asked["store"]) == (FAKE, 2, "s.db")
    assert asked["tolerance"] == pytest.approx(0.025) and asked["confidence"] == pytest.approx(0.9)
    assert asked["measure"] == "never"
    shapes = {"in:0": (4, 3, 8, 8), "mask": (4,)}
    stand_in.return_value.predict_many.assert_called_once_with(
        ("n.onnx",), batch=4, shapes=shapes, describe=True, jobs=2, errors="return"
    )


def help_of(*words: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        return call(*words, "--help").out


def test_help_is_in_groups() -> None:
    assert re.findall(r"(?m)^(\w+):$", help_of())[1:] == ["Ask", "Measure", "Models", "Data"]
    groups = re.findall(r"(?m)^([\w ]+):$", help_of("predict"))
    assert groups == ["Where", "Input", "How sure", "Output", "Other"]
    assert "`hybridlat targets` lists" in " ".join(help_of("predict").split())


CONTEXT = click.Context(cli.app)


@pytest.mark.parametrize("name", cli.app.list_commands(CONTEXT))
def test_a_command_has_an_example_and_every_option_a_sentence_that_is_not_cut(name: str) -> None:
    text, command = help_of(name), cli.app.get_command(CONTEXT, name)
    assert not re.search(r"(?m)^  .*\.\.\.$|RANGE|x<=", text) and r"\b" not in text, text
    several = command.commands if isinstance(command, click.Group) else {}
    shown = [(f"{name} {sub}", one) for sub, one in several.items() if not one.hidden]
    for full, one in ((name, command), *shown):
        assert one is not None and re.search(rf"(?m)^\s*hybridlat {full}\b", one.help or ""), full
        for parameter in one.params:
            assert isinstance(parameter, click.Argument) or parameter.help, (full, parameter)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["predct", "n.onnx"], "Did you mean predict?"),
        (["n.onnx"], "Did you mean hybridlat predict n.onnx?"),
        (["my n.onnx"], "Did you mean hybridlat predict 'my n.onnx'?"),
        (["frobnicate"], "hybridlat --help"),
        (["predict", "n.onnx", "--tolerence", "5%"], "--tolerance"),
        (["predict", "n.onnx", "--tolerance", "5"], "write 5% (or 0.05)"),
        (["predict", "n.onnx", "--fp16"], "--fp16 is part of --target, as in"),
        (["compare", "n.onnx", "--precision", "fp16"], "l4/tensorrt/fp16"),
        (["predict", "n.onnx", "--device", "l4"], "--device is part of --target, as in"),
        (["predict", "n.onnx", "--no-measure"], "--measure"),
        (["predict", "n.onnx", "--threads", "0"], "whole number from 1 to 1024"),
        (["fusion", "n.onnx"], "Did you mean lower?"),
        (["predict", "n.onnx", "--batch", "0"], "--batch"),
        (["predict", "n.onnx", "--shape", "a:1", "--shape", "a:2"], "two shapes"),
        (["predict", "n.onnx", "--html", "n.onnx"], "'n.onnx' is the name of a network"),
        (["predict", "n.onnx", "--csv", "n.x", "--html", "./n.x"], "two outputs cannot be one"),
        (["predict", "n.onnx", "--csv", "new.db", "--store", "new.db"], "is the place of a"),
        (["explain", "resnet18", "--measured", "1ms", "--layers", "."], "holds no layers"),
        (["examples", "-o", ""], "an empty name"),
        (["plan", "resnet18", "--target", "l4/tensorrt/fp16", "-o", ""], "an empty name"),
        (["store", "export", ""], "an empty name"),
        (["train", "--target", "l4/tensorrt/fp16", "--out", ""], "an empty name"),
        (["import", "a.csv", "--nets", ""], "an empty name"),
        (
            [
                "explain",
                "resnet18",
                "--measured",
                "1ms",
                "--target",
                "epyc-26-2/onnxruntime-1.31/fp32/7t",
            ],
            "no latency of resnet18 on epyc-26-2/onnxruntime-1.31/fp32/7t is known",
        ),
        (["predict", "n.onnx", "--csv", "-", "--json"], "only one can be printed"),
        (["predict", "n.onnx", "--jobs", "0"], "a whole number from 1 up"),
        (["predict", "missing.onnx"], "missing.onnx does not exist"),
        (["predict", "n.onnx", "--target", "v100"], "v100/tensorrt"),
        (["predict", "no.onnx", "none.onnx"], "2 of 2 predictions failed\n"),
        (["compare", "n.onnx"], "two networks"),
        (["store", "import", ".", "--from", "nonsense"], "networks, trtexec"),
        (["import", "data/nets"], "no pack, no table (.csv,"),
        (["import", "nowhere"], "nowhere cannot be imported: there is no such file"),
        (["store", "check", "--store", "no/typo.db"], "there is no store"),
        (["import", "data/packs", "--nets", "."], "--nets is for tables and logs of trtexec"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(words: list[str], hint: str) -> None:
    out, err = call(*words, code=2)
    assert out == ""
    assert hint.replace("v100/tensorrt", "tensorrt") in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("read", "known", "written"),
    [
        ("net", "a.onnx=1ms", "net"),
        ("a.onnx", "net@2=1ms", "link"),
        ("a.onnx", "a.onnx=1ms", "a.link"),
        ("a.onnx", "a.onnx=1ms", "known.db"),
    ],
)
def test_what_a_command_reads_is_not_written_over(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str, known: str, written: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for source, copy in (("a.onnx", "a.onnx"), ("a.onnx", "net"), ("known.db", "known.db")):
        shutil.copy(nets / source, copy)
    Path("link").symlink_to("net")
    Path("a.link").symlink_to("a.onnx")
    before = Path(written).read_bytes()
    words = ("predict", read, "--target", "l4/tensorrt/fp16", "--known", known, "--csv", written)
    assert "write a page or table beside it" in call(*words, code=2).err
    assert Path(written).read_bytes() == before


def test_a_misspelt_target_is_answered_with_those_alike(nets: Path) -> None:
    words = ("predict", str(nets / "a.onnx"), "--target", "fake/fake-1.0/fp23/1t")
    assert f"did you mean {FAKE}?" in call(*words, "--store", str(nets / "known.db"), code=2).err


def test_nothing_is_forgotten_unanswered(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    words = ("store", "forget", "--since", "2020-01-01", "--store", f"{nets}/known.db")
    assert "nothing was removed: give --yes" in call(*words, code=2).err
