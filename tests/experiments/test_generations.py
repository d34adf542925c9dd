"""What caches keep, on public tables beside the checkout."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hybridlat.schema.progress import silent
from tests.experiments.scripts import FOLDER, load

pytest.importorskip("pandas")
DATA = FOLDER.parents[1] / "shared/data"
TABLES = [DATA / name for name in ("whole_networks", "gpu_networks", "gpu_networks2")]


@pytest.mark.skipif(not TABLES[-1].is_dir(), reason="no public tables beside the checkout")
def test_no_network_is_quicker_than_its_bytes(tmp_path: Path) -> None:
    """Of cards with large last caches, whose memory alone would take longer than was measured."""
    script, tables = load("generations"), load("whole_networks")
    world = tables.load("tensorrt", TABLES, tmp_path, re.compile(""), silent)
    generation, cards = script.BY["generation"], ("ada", "blackwell", "hopper")
    new = [row for row in world.rows if generation(row.target.device) in cards]
    world = replace(world, rows=tuple(new))
    whole, left = zip(*(script.memory_shares(world, i) for i in range(len(new))), strict=True)
    assert max(whole) > 1 > max(left)
