"""Every command and every piece of Python on the pages runs as it stands there.

The pages are the README, CONTRIBUTING and those of ``docs/``. Every line of an ``sh`` block counts:

- ``hybridlat …`` is run, and ends with 0. Where another end is right too, a comment at the end of
  the line says so: ``# may end with 3: why``.
- ``make …`` is asked what it would do (``make -n``).
- ``pip install …`` must name an extra that there is.
- Any other line fails here, so that nothing is printed that nobody has tried.

Each ``python`` block is saved as a file in an empty folder, as a reader would, and run. A block
behind ``<!-- not run: reason -->`` is passed over, and the reason is there to be read.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n+)?```(\w+)\n(.*?)```", re.DOTALL)
MAY_END = re.compile(r"# may end with ([1-3]): \w")
OUTPUT = re.compile(r"<!-- output of the command above -->\n```text\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of a page that is to be run."""

    page: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def blocks(language: str) -> list[Block]:
    """The blocks of a language that are to be run, of all pages."""
    return [
        Block(page.name, number, body)
        for page in PAGES
        for number, (skipped, kind, body) in enumerate(
            BLOCK.findall(page.read_text(encoding="utf-8"))
        )
        if kind == language and not skipped
    ]


def lines(block: Block) -> list[str]:
    """The commands of a block; a line that ends with a backslash goes on in the next."""
    joined = block.text.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in joined if line.strip()]


def commands() -> dict[str, tuple[str, str]]:
    """Every line without its comment -> its page and itself; what several pages have comes once."""
    found: dict[str, tuple[str, str]] = {}
    for block in blocks("sh"):
        for line in lines(block):
            found.setdefault(line.partition(" #")[0].strip(), (str(block), line))
    return found


LINES = list(commands().values())
COMMANDS = [(page, line) for page, line in LINES if line.startswith("hybridlat ")]
OTHERS = [(page, line) for page, line in LINES if not line.startswith("hybridlat ")]


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HYBRIDLAT_STORE": f"sqlite:///{folder / 'store.db'}",
        "XDG_DATA_HOME": str(folder / "share"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "COLUMNS": "90",
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT),
    }


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """In a folder that is empty but for the repository's data, which the pages speak of."""
    link = folder / "data"
    if not link.exists():
        link.symlink_to(ROOT / "data")
    return subprocess.run(
        arguments, cwd=folder, env=environment(folder), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


def test_the_pages_have_commands_and_python() -> None:
    assert len(COMMANDS) >= 5
    assert len(blocks("python")) >= 2


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands(page: str, command: str, tmp_path: Path) -> None:
    words = shlex.split(command, comments=True)
    result = run([sys.executable, "-m", "hybridlat", *words[1:]], tmp_path)
    allowed = {0, *map(int, MAY_END.findall(command))}
    assert result.returncode in allowed, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout.strip()


@pytest.mark.parametrize(("page", "line"), OTHERS)
def test_other_lines_of_shell_blocks(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[:1] == ["make"]:
        if shutil.which("make") is None:
            pytest.skip("make is not installed")
        result = subprocess.run(
            ["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout.strip()
        return
    assert words[:2] == ["pip", "install"], f"{page}: say in a `not run` comment why not"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.findall(r"\[([a-z,]+)\]", words[-1])
    assert {e for group in extras for e in group.split(",")} <= project[
        "optional-dependencies"
    ].keys()


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python(block: Block, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(block.text, encoding="utf-8")
    result = run([sys.executable, "example.py"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_the_demo_predicts() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    result = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    command = result.stdout.splitlines()[-1].split()
    assert command[0].endswith("bin/hybridlat") and command[1] == "predict"
    assert (ROOT / command[2]).is_file()


def test_the_output_shown_is_what_the_command_says(tmp_path: Path) -> None:
    """The same first lines and the same cells; latencies within the interval that is shown."""
    shown = OUTPUT.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(shown) == 1
    command = next(line for _, line in COMMANDS if line.startswith("hybridlat predict"))
    words = shlex.split(command, comments=True)
    said = run([sys.executable, "-m", "hybridlat", *words[1:]], tmp_path).stdout
    latency = r"\s([0-9.]+) ms  ±([0-9.]+) %"
    found, printed = re.search(latency, said), re.search(latency, shown[0])
    assert found and printed
    assert float(found[1]) == pytest.approx(float(printed[1]), rel=float(printed[2]) / 100)

    def texts(output: str) -> list[str]:
        """Lines without numbers and bars, which follow the records and the model."""
        timed = re.sub(r"(answered in [0-9.]+) m?s", r"\1", output)  # a busy machine needs seconds
        rows = [re.sub(r"[0-9.,–█▏▎▍▌▋▊▉±]+", "#", line) for line in timed.splitlines()]
        return [" ".join(row.split()).removeprefix("# ") for row in rows]

    # Up to the notes: what an engine folds depends on its version.
    end = next(i for i, line in enumerate(texts(shown[0])) if line.startswith("Note"))
    assert sorted(texts(said)[:end]) == sorted(texts(shown[0])[:end])


def test_what_the_pages_point_at_is_there() -> None:
    missing = [
        f"{page.name}: {target}"
        for page in [*PAGES, ROOT / "experiments" / "README.md", ROOT / "CHANGELOG.md"]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not missing
