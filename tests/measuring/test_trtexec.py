"""Exports of trtexec in the shapes that its versions write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hybridlat.errors import InputError
from hybridlat.measuring.plan_results import layers_of, read_tolerant
from hybridlat.store.importers.trtexec_log import read_times
from tests.board.conftest import FAKE


@pytest.fixture(params=["8.2", "8.5", "8.6", "10", "11"])
def exports(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"model")
    verbosity = "--nvtxMode=verbose" if request.param == "8.2" else "--profilingVerbosity=detailed"
    subprocess.run(
        [sys.executable, "-I", "-S", str(FAKE), f"--onnx={model}", verbosity,
         *(f"--export{what}={tmp_path / what}.json" for what in ("Times", "LayerInfo"))],
        env={"FAKE_TRTEXEC": request.param}, check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path


def test_exports_of_every_version(exports: Path) -> None:
    assert len(read_times(exports / "Times.json")) >= 400
    layers = layers_of(read_tolerant((exports / "LayerInfo.json").read_text()))
    assert layers[0][0] == "conv1 + relu1"


def test_names_alone_and_control_characters(tmp_path: Path) -> None:
    assert layers_of({"Layers": ["a + b"]}) == [["a + b", ""]]
    broken = '{"Layers": [{"Name": "a\x1eb", "LayerType": "k",},]}'
    assert layers_of(read_tolerant(broken))[0][1] == "k"
    for text in ("", "{", "no json"):
        with pytest.raises(InputError):
            read_tolerant(text)
