"""The scripts of the lab book: each loads, and what they say of committed records stays so."""

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import own_gpu
from hybridlat.schema.workers import silent
from hybridlat.store.packs import PackLookup
from tests.pages import ROOT

FOLDER = ROOT / "experiments"
SHIPPED = ROOT / "data" / "packs" / "h200_tensorrt-8.6_fp16"


def test_the_records_give_the_published_figure_and_the_shipped_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["own_gpu.py"])
    own_gpu.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last in (ROOT / "experiments" / "own_gpu.md").read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["own_gpu.py", "--packs", str(tmp_path)])
    own_gpu.main()
    written, shipped = (PackLookup(folder) for folder in (tmp_path / SHIPPED.name, SHIPPED))
    assert [*written.measurements(written.target)] == [*shipped.measurements(shipped.target)]
    assert [*written.breakdowns(written.target)] == [*shipped.breakdowns(shipped.target)]


pytest.importorskip("pandas")
DATA = FOLDER.parents[1] / "shared/data"
TABLES = [DATA / name for name in ("whole_networks", "gpu_networks", "gpu_networks2")]


@pytest.mark.skipif(not TABLES[-1].is_dir(), reason="no public tables beside the checkout")
def test_no_network_is_quicker_than_its_bytes(tmp_path: Path) -> None:
    """Of cards with large last caches, whose memory alone would take longer than was measured."""
    generations, whole_networks = map(
        importlib.import_module, ("experiments.generations", "experiments.whole_networks")
    )
    world = whole_networks.load("tensorrt", TABLES, tmp_path, re.compile(""), silent)
    generation, cards = generations.BY["generation"], ("ada", "blackwell", "hopper")
    new = [row for row in world.rows if generation(row.target.device) in cards]
    world = replace(world, rows=tuple(new))
    whole, left = zip(*(generations.memory_shares(world, i) for i in range(len(new))), strict=True)
    assert max(whole) > 1 > max(left)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in FOLDER.glob("*.py") if "def main(" in path.read_text())
)
def test_a_script_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for extra in ("matplotlib", "optuna", "pandas"):
        pytest.importorskip(extra)
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    assert callable(importlib.import_module(f"experiments.{name}").main)


def test_the_lab_book_names_every_script() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    wild = re.findall(r"`(\w+)_\*\.py`", page)
    scripts = [path.name for path in FOLDER.glob("*.py") if not path.name.startswith(tuple(wild))]
    endings = re.findall(r"`(_\w+\.py)`", page)
    assert not [name for name in scripts if name not in page and not name.endswith(tuple(endings))]
