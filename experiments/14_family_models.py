"""Trains and ships the family models: models/family_tensorrt, family_torch, family_torch-compile.

    python experiments/14_family_models.py [--data DIR] [--cache DIR] [--family NAME] [--out DIR]

The same as `13_whole_networks.py --models`, without its tables. They learn from every row of the
public table of whole networks (``../shared/data/whole_networks``) that is not noted as suspect.
Their intervals are calibrated on networks that were held out (five folds by architecture), those of
devices that no row is of on devices that were left out.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "experiments"))
sys.path.insert(0, str(ROOT))
from whole_networks_data import FAMILIES

whole_networks = importlib.import_module("13_whole_networks")


def main() -> None:
    """All families."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/whole_networks")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/whole_networks")
    parser.add_argument("--family", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--out", type=Path, default=ROOT / "models")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    for name in given.family:
        began = time.perf_counter()
        world = whole_networks.load(name, given.data, given.cache)
        folder = given.out / f"family_{name}"
        whole_networks.save(world, folder, given.out / "family_torch")
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        print(f"{folder}: {size:.1f} MB, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
