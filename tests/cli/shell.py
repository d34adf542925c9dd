"""The command line in processes of its own, on the fake engine."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.testing import CliRunner, Result

from hybridlat.cli import main
from hybridlat.cli.importing import import_
from tests.networks import ROOT

FAKE = "fake/fake-1.0/fp32/1t"


def python(*words: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, not on a terminal."""
    how: Any = {"capture_output": True, "text": True, "timeout": 120}
    how["env"] = os.environ | environment
    return subprocess.run([sys.executable, *words], cwd=cwd, check=False, **how)


def process(*words: str, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line as from a shell."""
    return python("-m", "hybridlat", *words, cwd=cwd, **{"COLUMNS": "100"} | more)


class Printed(NamedTuple):
    """What a command wrote to standard output and to standard error."""

    out: str
    err: str

    @property
    def body(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)


def call(*words: str, code: int = 0, or_code: int | None = None) -> Printed:
    """The command line in this process, which ends with one of the codes."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        end = main.run([*words])
    assert end in (code, or_code), err.getvalue()
    return Printed(out.getvalue(), err.getvalue())


def run(command: click.Command, *words: str, code: int | None = 0) -> Result:
    """A command in this process; whatever its exit code where ``code`` is None."""
    result = CliRunner().invoke(command, words)
    assert code in (None, result.exit_code), result.output + repr(result.exception)
    return result


def run_import(*words: str) -> Result:
    """``hybridlat import`` in this process, into the store ``s.db``."""
    return run(import_, "--store", "s.db", *words, code=None)
