"""Trains and ships the family models: models/family_tensorrt, family_torch, family_torch-compile.

    python experiments/14_family_models.py [--data DIR] [--cache DIR] [--family NAME] [--out DIR]

They learn from every row of the public table of whole networks (``../shared/data/whole_networks``)
that is not noted as suspect. Their intervals are calibrated on networks that were held out (five
folds by architecture), those of devices that no row is of on devices that were left out.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "experiments"))
sys.path.insert(0, str(ROOT))
from dataclasses import replace

from whole_networks_data import FAMILIES

from hybridlat.evaluation.splits import even_folds
from hybridlat.model.family.intervals import ELSEWHERE, Calibration, calibrate
from hybridlat.model.family.served import FamilyModel

whole_networks = importlib.import_module("13_whole_networks")


def calibration(world: whole_networks.World, kin: Path) -> Calibration:
    """Scores of networks held out by architecture, and of devices left out for all others.

    A family with one device alone has the latter from the model in ``kin``, of another family.
    """
    count = len(world.rows)
    folds = even_folds(row.architecture for row in world.rows)
    fold = np.array([folds[row.architecture] for row in world.rows])
    predicted, spread = np.zeros(count), np.zeros(count)
    for one in range(5):
        model = world.learn(fold != one)
        mine = np.flatnonzero(fold == one)
        predicted[mine], spread[mine] = world.predict(model, mine)
    known = world.counted
    names = [world.labels[i] for i in np.flatnonzero(known)]
    errors = world.data.log_us - np.log(predicted)
    held_out = calibrate(errors[known], spread[known], names)
    left_out = whole_networks.left_out(world)
    found = whole_networks.elsewhere(list(left_out.values()))
    if found is None:
        lent = _calibration_of(kin)
        spreads = held_out.spreads | {k: v for k, v in lent.spreads.items() if k == ELSEWHERE}
        return replace(held_out, pooled=lent.pooled, spreads=spreads)
    return replace(held_out, pooled=found.pooled, spreads=held_out.spreads | found.spreads)


def _calibration_of(folder: Path) -> Calibration:
    result = FamilyModel.load(folder).calibration
    if result is None:
        raise SystemExit(f"{folder} has no calibration: train that family first")
    return result


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
        model = world.learn(np.ones(len(world.rows), np.bool_))
        model = replace(model, calibration=calibration(world, given.out / "family_torch"))
        folder = given.out / f"family_{name}"
        folder.mkdir(parents=True, exist_ok=True)
        model.save(folder)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        print(f"{folder}: {size:.1f} MB, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
