"""Messages of the library: nowhere by default, on standard error where a user asks for them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybridlat.cli import main as cli
from tests.cli.shell import FAKE, known
from tests.networks import ROOT

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
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == "hybridlat.anything|seen\n"
