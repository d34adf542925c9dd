"""Networks that come along are written as files."""

from __future__ import annotations

from pathlib import Path

from tests.cli.shell import ROOT, process

SHIPPED = ROOT / "data" / "nets"


def test_all_of_them_or_those_named(tmp_path: Path) -> None:
    done = process("examples", "-o", "nets/new", "squeezenet", "resnet18", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["nets/new/squeezenet.onnx", "nets/new/resnet18.onnx"]
    written = tmp_path / "nets" / "new" / "resnet18.onnx"
    assert written.read_bytes() == (SHIPPED / "resnet18.onnx").read_bytes()
    assert process("examples", "-o", "all", cwd=tmp_path).returncode == 0
    names = sorted(path.name for path in (tmp_path / "all").iterdir())
    assert names == sorted(path.name for path in SHIPPED.glob("*.onnx"))


def test_an_unknown_name_writes_nothing_and_is_told_the_choices(tmp_path: Path) -> None:
    done = process("examples", "-o", "nets", "resnet18", "resnet-18", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown example 'resnet-18'; choose from" in done.stderr
    assert not (tmp_path / "nets").exists()
