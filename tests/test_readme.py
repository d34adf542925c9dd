"""Every command and every piece of Python in the README runs as it stands.

A block behind ``<!-- not run: reason -->`` is passed over, and the reason is there to be read.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n+)?```(\w+)\n(.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    """The bodies of the README's blocks of a language that are to be run."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [body for skipped, kind, body in BLOCK.findall(text) if kind == language and not skipped]


def commands() -> list[str]:
    return [
        line.removeprefix("$ ")
        for body in blocks("sh")
        for line in body.replace("\\\n", " ").splitlines()
        if line.removeprefix("$ ").startswith("hybridlat ")
    ]


def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HYBRIDLAT_STORE": f"sqlite:///{tmp_path / 'store.db'}",
        "XDG_DATA_HOME": str(tmp_path),
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT),
    }


def run(arguments: list[str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """In a copy of the layout that the README speaks of: data/ seen from the current folder."""
    for name in ("data", "models", "experiments"):
        link = tmp_path / name
        if not link.exists():
            link.symlink_to(ROOT / name)
    return subprocess.run(
        arguments, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


def test_the_readme_has_commands_and_python() -> None:
    assert len(commands()) >= 4
    assert len(blocks("python")) >= 1


@pytest.mark.parametrize("command", commands())
def test_commands(command: str, tmp_path: Path) -> None:
    words = shlex.split(command, comments=True)
    result = run([sys.executable, "-m", "hybridlat", *words[1:]], tmp_path)
    # 3 says that nothing trustworthy can be said on this machine: an answer, not a failure.
    assert result.returncode in (0, 3), result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout.strip()


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python(number: int, tmp_path: Path) -> None:
    result = run([sys.executable, "-c", blocks("python")[number]], tmp_path)
    assert result.returncode == 0, result.stderr
