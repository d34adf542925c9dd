"""The command line in processes of its own, on the fake engine."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from hybridlat.cli.importing import import_
from tests.networks import ROOT

FAKE = "fake/fake-1.0/fp32/1t"


def process(
    *arguments: str, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command line as from a shell, not on a terminal."""
    words, env = [sys.executable, "-m", "hybridlat"], {**os.environ, "COLUMNS": "100"}
    how: Any = {"capture_output": True, "text": True, "timeout": 120, "env": env | environment}
    return subprocess.run([*words, *arguments], cwd=cwd, check=False, **how)


def known(nets: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in the folder ``nets``, whose store knows the networks there on ``FAKE``."""
    return process(*words, "--store", "known.db", cwd=nets, **environment)


def run(command: click.Command, *words: str, code: int | None = 0) -> Result:
    """A command in this process; whatever its exit code where ``code`` is None."""
    result = CliRunner().invoke(command, words)
    assert code in (None, result.exit_code), result.output + repr(result.exception)
    return result


def run_import(*words: str) -> Result:
    """``hybridlat import`` in this process, into the store ``s.db``."""
    return run(import_, "--store", "s.db", *words, code=None)
