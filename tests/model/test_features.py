"""Features: a golden table, and the properties that their formulas promise."""

import json
from pathlib import Path

import numpy as np

from hybridlat.engines import device_sheets
from hybridlat.model import features
from hybridlat.model.geometry import View, geometry
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


def test_shares_are_shares() -> None:
    texts = [conv_text(**{**CELLS["odd channels"], "c_out": c}) for c in range(1, 300)]
    view = View(geometry(texts), device_sheets.load("t4"), "fp32")
    rows = features.matrix(view)
    for place, (name, unit, _) in enumerate(features.FEATURES):
        if unit.startswith("share"):
            assert 0 <= rows[:, place].min() <= rows[:, place].max() <= 1, name
    assert np.isfinite(rows).all()
