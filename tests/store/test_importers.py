"""Importers of other packages are found, and what they read is stored once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hybridlat.errors import InputError
from hybridlat.store import importers
from tests.cli.shell import process
from tests.fakes import fake_importer


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("10 11 -1 nan ?")
    return path


def test_another_package_offers_one(lines: Path) -> None:
    assert importers.names() == ("networks", "trtexec", "fake")
    seen: list[tuple[int, int]] = []
    imported = importers.load("fake").read(lines, lambda done, of: seen.append((done, of)))
    assert [m.latency_us for m in imported.measurements] == [10.0, 11.0]
    assert dict(imported.skipped) == {
        "latency is not a positive number": 2,
        "shape makes no sense": 1,
    }
    assert seen[-1] == (4, 5)


def test_the_command_imports_once(lines: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    command = ("store", "import", "--from", "fake", str(lines), "--store", store, "--json")
    first, again = (json.loads(process(*command).stdout) for _ in range(2))
    assert first == {
        "read": 2, "measurements": 2, "breakdowns": 0, "signatures": 1,
        "skipped": {"latency is not a positive number": 2, "shape makes no sense": 1},
        "targets": [str(fake_importer.TARGET)],
    }  # fmt: skip
    assert again == {**first, "measurements": 0, "signatures": 0}


def test_an_unknown_name_gives_the_choices() -> None:
    with pytest.raises(InputError, match="networks, trtexec, fake"):
        importers.load("imagenet")
