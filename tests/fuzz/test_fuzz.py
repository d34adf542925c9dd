"""Whatever file it is given, hybridlat answers with an estimate or a sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.networks import ROOT

EVERY_MUTATION_OF_EVERY_NETWORK = 100
# Files of seed 7 that ended in an exception once: text that is not UTF-8 in an operator, beside it
# and in an attribute, an element type that there is not, and a kernel that is not the weight's.
ONCE_WRONG = (4005, 2607, 5409, 8705, 9305)


def fuzz(*arguments: int, kind: str = "networks") -> str:
    """In a process of its own, so that an engine that crashes is seen as such."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.driver", kind, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_no_traceback_and_no_crash() -> None:
    summary = fuzz(0, EVERY_MUTATION_OF_EVERY_NETWORK).splitlines()[-1]
    assert "answered" in summary and "refused" in summary  # both broken files and sound ones


def test_what_was_wrong_once_is_refused() -> None:
    assert fuzz(7, 0, *ONCE_WRONG).splitlines()[-1] == f"{len(ONCE_WRONG)} refused"


def test_tables_are_read_as_they_were_written_or_refused() -> None:
    pytest.importorskip("pyarrow")
    summary = fuzz(0, 100, kind="tables").splitlines()[-1]
    assert "answered" in summary and "refused" in summary
