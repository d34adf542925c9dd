"""The command line in processes of its own, on the fake engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def run_import(*words: str) -> Result:
    """``hybridlat import`` in this process, into the store ``s.db``."""
    return CliRunner().invoke(import_, ["--store", "s.db", *words])
