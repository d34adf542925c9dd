"""The pages as their readers have them: blocks of code, and a folder to run them in.

A page's blocks run from top to bottom in one folder that is empty at first, each saved as a file:
``sh`` by ``sh -e``, ``python`` by Python, ``toml`` only where a comment at its head names the file
that it is. So what a block writes is there for the next one. Around the folder stands

- ``hybridlat`` and ``python``, of this checkout (forked from a process that has loaded it,
  ``fakes/shell/fork.py``) or of the environment in ``HYBRIDLAT_PYTHON``;
- ``pip install …``, which checks that the extras exist, and ``make …``, which is asked what it
  would do (``make -n``);
- a board: ``ssh user@board`` leads to a folder of its own, in which a stand-in for ``trtexec``
  answers as TensorRT 8.6 does, in one round;
- a home without a store, models or data sheets.

What may end otherwise than with 0 says so at the end of its line: ``# ends with 1: why`` or
``# may end with 3: why``. A block that cannot be run here follows a line that every reader sees,
``*Not run by the tests: reason.*``.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hybridlat.engines import host

ROOT = Path(__file__).resolve().parents[1]
FAKES = ROOT / "tests" / "fakes" / "shell"
FAKE_TRTEXEC = ROOT / "tests" / "board" / "fake_trtexec.py"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(
    r"(?P<skipped>\*Not run by the tests: [^*]+\*\n\n)?"
    r"^(?P<fence>```+)(?P<language>[^`\n]*)\n(?P<text>.*?)^(?P=fence)$"
    r"(\n\n<!-- output of the command above -->\n```text\n(?P<shown>.*?)```)?",
    re.DOTALL | re.MULTILINE,
)
NAMED = re.compile(r"# ([\w./-]+\.toml)\n")
ENDS = re.compile(r" *# (?P<may>may end|ends) with (?P<code>[1-3]): \w.*$", re.MULTILINE)
RUN = ("sh", "python", "toml")


@dataclass(frozen=True)
class Block:
    """A block of a page that is to be run, or to be a file."""

    page: Path
    number: int
    language: str
    text: str
    shown: str = ""
    """What the page says that it prints."""

    @property
    def file_name(self) -> str:
        """What a reader would call it, in the page's folder."""
        named = NAMED.match(self.text) if self.language == "toml" else None
        return named[1] if named else f"block-{self.number}.{self.language}"

    @property
    def script(self) -> str:
        """The text with the exit codes that its comments expect."""
        if self.language != "sh":
            return self.text
        return ENDS.sub(_expect, self.text)


def _expect(match: re.Match[str]) -> str:
    wanted = f" && exit 99 || test $? -eq {match['code']}"
    return wanted if match["may"] == "ends" else f" || test $? -eq {match['code']}"


def name_of(page: Path) -> str:
    """The page as the repository calls it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are to be run, in their order."""
    return [
        Block(page, number, match["language"], match["text"], match["shown"] or "")
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")))
        if match["language"] in RUN and not match["skipped"]
    ]


def skeleton(output: str) -> list[str]:
    """The lines of an output without numbers and bars, which follow records, model and machine.

    Without notes as well: what an engine folds depends on its version.
    """
    timed = re.sub(r"(answered in [0-9.]+) m?s", r"\1", output)  # a busy machine needs seconds
    before, _, _ = timed.partition("\nNot run: ")[0].partition("\nNote: ")
    rows = [re.sub(r"[0-9.,–█▏▎▍▌▋▊▉±]+", "#", line) for line in before.splitlines()]
    return sorted(" ".join(row.split()).removeprefix("# ") for row in rows)


@dataclass(frozen=True)
class Place:
    """A folder for one page, with a home and commands around it."""

    around: Path

    @property
    def folder(self) -> Path:
        return self.around / "here"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command in the folder, as a reader would give it."""
        return subprocess.run(
            words, cwd=self.folder, env=self._environment(), capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip

    def run_block(self, block: Block) -> subprocess.CompletedProcess[str] | None:
        """Save a block as a file and run it; None for one that is only a file."""
        path = self.folder / block.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.script, encoding="utf-8")
        if block.language == "toml":
            return None
        shell = ("sh", "-e") if block.language == "sh" else ("python",)
        return self.run(*shell, path.name)

    def _environment(self) -> dict[str, str]:
        own = ("HYBRIDLAT_", "MLFLOW_", "XDG_")
        machine = (host.IDENTITY_VARIABLE, host.PROC_VARIABLE)
        kept = {k: v for k, v in os.environ.items() if k in machine or not k.startswith(own)}
        settings = {
            "HOME": str(self.around / "home"),
            "PATH": os.pathsep.join([str(self.around / "bin"), "/usr/bin", "/bin"]),
            "COLUMNS": "90",
            "NO_COLOR": "1",
            "FAKE_TRTEXEC": "8.6",
            "HYBRIDLAT_LOCK": str(self.around / "lock"),
            "ROUNDS": "1",
            "OMP_NUM_THREADS": "1",
        }
        environment = {**kept, **settings}
        environment.pop("PYTHONPATH", None)
        if "HYBRIDLAT_PYTHON" not in os.environ:
            environment["PYTHONPATH"] = str(ROOT)
        return environment


@contextmanager
def forking(socket: Path) -> Iterator[None]:
    """The process that the pages' commands are forked from."""
    with subprocess.Popen(
        [sys.executable, FAKES / "fork.py", "serve", socket],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    ) as server:  # fmt: skip
        assert server.stdout and server.stdout.readline() == b"ready\n"
        yield


def asking(socket: Path) -> str:
    """The start of a shell's line that has a command forked."""
    return f'exec "{sys.executable}" -I -S "{FAKES / "fork.py"}" ask "{socket}"'


def place(around: Path, socket: Path) -> Place:
    """An empty folder with the commands that the pages use around it."""
    python, hybridlat = (f'{asking(socket)} {name} "$@"' for name in ("python", "hybridlat"))
    if installed := os.environ.get("HYBRIDLAT_PYTHON"):
        python, hybridlat = f'exec "{installed}" "$@"', f'exec "{installed}" -m hybridlat "$@"'
    board = around / "board"
    for name in ("here", "home", "bin", "board"):
        (around / name).mkdir()
    commands = {
        "hybridlat": hybridlat,
        "python": python,
        "pip": f'exec "{sys.executable}" "{FAKES / "pip.py"}" "{ROOT / "pyproject.toml"}" "$@"',
        "make": f'exec "{shutil.which("make")}" --no-print-directory -n -C "{ROOT}" "$@"',
        "ssh": (FAKES / "ssh.sh").read_text(encoding="utf-8").replace("BOARD", str(board)),
        "trtexec": f'exec "{sys.executable}" -I -S "{FAKE_TRTEXEC}" "$@"',
    }
    for name, text in commands.items():
        (around / "bin" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (around / "bin" / name).chmod(0o755)
    return Place(around)
