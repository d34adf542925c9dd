"""Whatever file it is given, hybridlat answers with an estimate or a sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.networks import ROOT

MODULES = {path.stem: path.read_text() for path in Path(__file__).parent.glob("*.py")}
KINDS = sorted(name for name, text in MODULES.items() if "\ndef attempt(" in text)
COUNT = "100"


@pytest.mark.parametrize("kind", KINDS)
def test_no_traceback_and_no_crash(kind: str) -> None:
    """In a process of its own, so that an engine that crashes is seen as such."""
    command = [sys.executable, "-m", "tests.fuzz.driver", kind, "0", COUNT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    summary = done.stdout.splitlines()[-1]
    assert "answered" in summary and "refused" in summary  # both broken files and sound ones
