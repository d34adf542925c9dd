"""The records of the GPU that we measured: the published error of sums, and the shipped pack."""

import sys
from pathlib import Path

import pytest

from hybridlat.store.packs import PackLookup
from tests.experiments.scripts import load
from tests.pages import ROOT

SHIPPED = ROOT / "data" / "packs" / "h200_tensorrt-8.6_fp16"


def test_the_records_give_the_published_figure_and_the_shipped_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load("own_gpu")
    monkeypatch.setattr(sys, "argv", ["own_gpu.py"])
    script.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last in (ROOT / "experiments" / "own_gpu.md").read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["own_gpu.py", "--packs", str(tmp_path)])
    script.main()
    written, shipped = (PackLookup(folder) for folder in (tmp_path / SHIPPED.name, SHIPPED))
    assert [*written.measurements(written.target)] == [*shipped.measurements(shipped.target)]
    assert [*written.breakdowns(written.target)] == [*shipped.breakdowns(shipped.target)]
