"""Whatever file it is given, hybridlat answers with an estimate or a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.networks import ROOT

MODULES = {path.stem: path.read_text() for path in Path(__file__).parent.glob("*.py")}
KINDS = sorted(name for name, text in MODULES.items() if "\ndef attempt(" in text)
EVERY_MUTATION_OF_EVERY_NETWORK = 100
# Inputs of seed 1 that ended in an exception once: attributes of another operator's type or name.
ONCE_WRONG = (15, 843, 1084, 1378)


def fuzz(kind: str, *arguments: int) -> str:
    """In a process of its own, so that an engine that crashes is seen as such."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.driver", kind, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_no_traceback_and_no_crash(kind: str) -> None:
    summary = fuzz(kind, 0, EVERY_MUTATION_OF_EVERY_NETWORK).splitlines()[-1]
    assert "answered" in summary and "refused" in summary  # both broken files and sound ones


def test_what_was_wrong_once_is_refused() -> None:
    assert fuzz("networks", 1, 0, *ONCE_WRONG).splitlines()[-1] == f"{len(ONCE_WRONG)} refused"
