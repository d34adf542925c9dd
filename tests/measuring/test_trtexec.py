"""Exported times of trtexec in the shapes that its versions write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hybridlat.store.importers.trtexec_log import read_times
from tests.board.conftest import FAKE


@pytest.mark.parametrize("version", ["8.2", "8.5", "8.6", "10", "11"])
def test_exports_of_every_version(version: str, tmp_path: Path) -> None:
    model, times = tmp_path / "m.onnx", tmp_path / "times.json"
    model.write_bytes(b"model")
    subprocess.run(
        [sys.executable, "-I", "-S", str(FAKE), f"--onnx={model}", f"--exportTimes={times}"],
        env={"FAKE_TRTEXEC": version}, check=True, capture_output=True,
    )  # fmt: skip
    assert len(read_times(times)) >= 400
