"""Features: a golden table, and the properties that their formulas promise."""

import json
from pathlib import Path

import numpy as np
import pytest

from hybridlat.engines import device_sheets
from hybridlat.model import features
from hybridlat.model.geometry import TILES, View, geometry
from tests.model.test_geometry import conv_text

GOLDEN = Path(__file__).parents[1] / "golden" / "features.json"
CELLS = {
    "resnet 3x3": {"batch": 1, "c_in": 64, "size": (56, 56), "c_out": 64, "kernel": (3, 3),
                   "stride": 1, "pads": (1, 1, 1, 1)},
    "depthwise": {"batch": 1, "c_in": 144, "size": (28, 28), "c_out": 144, "kernel": (3, 3),
                  "stride": 2, "pads": (1, 1, 1, 1), "groups": 144},
    "odd channels": {"batch": 8, "c_in": 30, "size": (14, 14), "c_out": 50, "kernel": (1, 1),
                     "stride": 1, "pads": (0, 0, 0, 0), "add": True},
}  # fmt: skip


def table(name: str, precision: str = "fp16") -> dict[str, float]:
    view = View(geometry([conv_text(**CELLS[name])]), device_sheets.load("v100"), precision)
    row = features.matrix(view)[0]
    return dict(zip(features.NAMES, row.tolist(), strict=True))


def test_golden_table() -> None:
    """Values as they were; a changed formula needs a new model format and a new table."""
    made = {name: {k: round(v, 4) for k, v in table(name).items()} for name in CELLS}
    assert made == json.loads(GOLDEN.read_text())


def test_values_by_hand() -> None:
    row = table("resnet 3x3")
    flop = 2 * 56 * 56 * 64 * 64 * 9
    assert row["log2_flop"] == pytest.approx(np.log2(flop), rel=1e-6)
    moved = 2 * (2 * 64 * 56 * 56 + 64 * 64 * 9 + 64)  # two bytes an item at FP16
    roofline_us = max(flop / 125e12, moved / 900e9) * 1e6
    assert row["log2_roofline"] == pytest.approx(np.log2(roofline_us), rel=1e-5)
    tiles = np.ceil(56 * 56 / 64) * 1
    assert row["log2_waves_64x64"] == np.log2(np.ceil(tiles / 80))
    assert row["fill_64x64"] == pytest.approx(tiles / 80)
    assert (row["align_c_in"], row["align_c_out"], row["winograd"]) == (6, 6, 1)
    assert (table("depthwise")["depthwise"], row["depthwise"]) == (1, 0)
    assert table("odd channels")["align_c_out"] == 1


@pytest.mark.parametrize("name", ["c_out", "batch", "size"])
def test_roofline_and_waves_never_fall_when_a_kernel_grows(name: str) -> None:
    sizes = [(n, n) for n in range(8, 72)] if name == "size" else list(range(1, 65))
    texts = [conv_text(**{**CELLS["resnet 3x3"], name: value}) for value in sizes]
    view = View(geometry(texts), device_sheets.load("v100"), "fp32")
    assert (np.diff(view.roofline_us) >= 0).all()
    for tile in TILES:
        assert (np.diff(view.waves(tile)) >= 0).all()


def test_shares_are_shares() -> None:
    texts = [conv_text(**{**CELLS["odd channels"], "c_out": c}) for c in range(1, 300)]
    view = View(geometry(texts), device_sheets.load("t4"), "fp32")
    rows = features.matrix(view)
    for place, feature in enumerate(features.FEATURES):
        if feature.unit.startswith("share"):
            assert rows[:, place].min() >= 0, feature.name
            assert rows[:, place].max() <= 1, feature.name
    assert np.isfinite(rows).all()
