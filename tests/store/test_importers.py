"""Importers of other packages are found, and what they read is stored once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hybridlat.errors import InputError
from hybridlat.store import importers
from tests.cli.shell import process
from tests.fakes import fake_importer


def test_what_another_package_reads_is_imported_once(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("10 11 -1 nan ?")
    command = ("store", "import", "--from", "fake", "lines.txt", "--store", "s.db", "--json")
    first, again = (json.loads(process(*command, cwd=tmp_path).stdout) for _ in range(2))
    assert first == {
        "read": 2, "measurements": 2, "breakdowns": 0, "signatures": 1,
        "skipped": {"latency is not a positive number": 2, "shape makes no sense": 1},
        "targets": [str(fake_importer.TARGET)],
    }  # fmt: skip
    assert again == {**first, "measurements": 0, "signatures": 0}


def test_an_unknown_name_gives_the_choices() -> None:
    with pytest.raises(InputError, match="networks, trtexec, fake"):
        importers.load("imagenet")
