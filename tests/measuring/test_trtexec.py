"""Exports of trtexec in the shapes that its versions write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hybridlat.errors import InputError
from hybridlat.measuring import trtexec
from tests.board.conftest import FAKE


@pytest.fixture(params=["8.2", "8.5", "8.6", "10", "11"])
def exports(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"model")
    verbosity = "--nvtxMode=verbose" if request.param == "8.2" else "--profilingVerbosity=detailed"
    subprocess.run(
        [sys.executable, "-I", "-S", str(FAKE), f"--onnx={model}", verbosity,
         *(f"--export{what}={tmp_path / what}.json" for what in ("Times", "Profile", "LayerInfo"))],
        env={"FAKE_TRTEXEC": request.param}, check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path


def test_all_three_of_every_version(exports: Path) -> None:
    times = trtexec.read_times(exports / "Times.json", warm_up_ms=400)
    assert len(times) == 400
    assert max(times) / min(times) < 1.02  # the warm-up is not among them
    layers = trtexec.layers_of(trtexec.read_export(exports / "LayerInfo.json"))
    assert layers[0].name == "conv1 + relu1"
    assert layers[0].nodes == ("conv1", "relu1")
    assert layers[1].nodes == ()


def test_names_alone_and_control_characters(tmp_path: Path) -> None:
    assert trtexec.layers_of({"Layers": ["a + b"]})[0].nodes == ("a", "b")
    broken = '{"Layers": [{"Name": "a\x1eb", "LayerType": "k",},]}'
    assert trtexec.layers_of(trtexec.read_tolerant(broken))[0].kind == "k"
    for text in ("", "{", "no json"):
        with pytest.raises(InputError):
            trtexec.read_tolerant(text)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"other": 1}]))
    with pytest.raises(InputError, match=r"x\.json"):
        trtexec.read_times(path)
    with pytest.raises(InputError, match="cannot be read"):
        trtexec.read_times(tmp_path / "nowhere")
