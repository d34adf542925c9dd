"""Every script of the lab book can be loaded: what it imports is where it looks for it."""

import re
import sys

import pytest

from tests.experiments.scripts import FOLDER, load


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in FOLDER.glob("*.py") if "def main(" in path.read_text())
)
def test_a_script_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for extra in ("matplotlib", "optuna", "pandas"):
        pytest.importorskip(extra)
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    assert callable(load(name).main)


def test_the_lab_book_names_every_script() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    wild = re.findall(r"`(\w+)_\*\.py`", page)
    scripts = [path.name for path in FOLDER.glob("*.py") if not path.name.startswith(tuple(wild))]
    endings = re.findall(r"`(_\w+\.py)`", page)
    assert not [name for name in scripts if name not in page and not name.endswith(tuple(endings))]
