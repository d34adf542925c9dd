"""Latencies of kernels learned from whole networks: every table of experiments/whole_networks.md.

    python experiments/13_whole_networks.py [--data DIR] [--cache DIR] [--family NAME ...]
        [--models DIR [--models-alone]] [--write]

``--data`` holds networks.parquet and nets.tar.gz (``../shared/data/whole_networks``). Lowered
networks are kept in ``--cache``; everything else is computed anew, and is the same every time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tarfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from public_data.kernel_tables import at_batch
from whole_networks_data import FAMILIES, Lowerer, read_rows
from whole_networks_few_shot import few_shot
from whole_networks_lines import Line, csv, line, markdown, summary

from hybridlat.engines import device_sheets
from hybridlat.evaluation.cross_fitting import FOLDS
from hybridlat.evaluation.families import FamilyRecords
from hybridlat.evaluation.family_regimes import HELD_OUT, HeldOut, Regimes
from hybridlat.model.baselines import Problem, Sums
from hybridlat.model.baselines import load as baseline_of
from hybridlat.model.family.dataset import Observation
from hybridlat.model.family.served import (
    BATCHES,
    ELSEWHERE,
    Calibration,
    FamilyModel,
    calibrate,
    relative_point,
)
from hybridlat.schema.progress import silent

Array = NDArray[np.float64]
NAMED = (
    "v100/paddle-tensorrt-8.0/fp32", "v100/tensorrt-8.2/fp16", "t4/paddle-tensorrt-2020/fp32",
    "t4/paddle-tensorrt-8.5/fp16", "t4/tensorrt/fp16", "t4/tensorrt-10-ultralytics/fp16",
    "orin-agx-32gb/tensorrt-trtutils/fp16", "orin-nano/tensorrt-trtutils/fp16",
    "rtx-3090/tensorrt-trtutils/fp16", "titan-rtx/tensorrt-trtutils/fp16",
    "rtx-3090/tensorrt-10.0/fp32",
    "rtx-4090/torch-compile-2.9/amp", "rtx-3090/torch-2.4/amp",
)  # fmt: skip
"""Targets that baselines are run on."""
BASELINES = ("flops_linear", "roofline", "per_kind_linear", "kernel_forest", "layerwise_learned")
_OLD = ("1.12", "1.13")  # the same networks on the same card as under 2.1: time, not knowledge


@dataclass(frozen=True)
class LeftOut:
    """What is said of a device's rows by the law of all others: errors are of the logarithm."""

    model: FamilyModel
    rows: NDArray[np.intp]
    errors: Array
    spreads: Array
    labels: NDArray[np.str_]


@dataclass(frozen=True, kw_only=True)
class World(FamilyRecords):
    """One engine family's published rows, and what the model sees of them."""

    lowerer: Lowerer

    @cached_property
    def observations(self) -> list[Observation]:
        return [self.lowerer.observation(row) for row in self.rows]

    @cached_property
    def truth(self) -> Array:
        return np.exp(self.log_us)

    @cached_property
    def log_us(self) -> Array:
        return np.log([row.latency_us for row in self.rows])

    @cached_property
    def labels(self) -> list[str]:
        return [f"{row.target} {row.layout}".strip() for row in self.rows]

    @cached_property
    def regimes(self) -> Regimes:
        """Five folds of each regime, fitted once."""
        return Regimes(self, silent)

    def errors(self, held_out: HeldOut) -> Array:
        """What is missed of the logarithms."""
        return self.log_us - np.log(held_out.medians_us)

    @cached_property
    def left_out(self) -> dict[str, LeftOut]:
        """Each device's rows as the law of all other devices says them; none where there is one."""
        found = {}
        for device in sorted({row.target.device for row in self.rows}):
            outside = np.array([row.target.device != device for row in self.rows])
            rows = np.flatnonzero(~outside & self.counted)
            if not (outside & self.counted).any() or not len(rows):
                continue
            model = self.learn(outside)
            predicted, spreads = self.predict(model, rows)
            errors = self.log_us[rows] - np.log(predicted)
            labels = np.array([self.labels[i] for i in rows])
            found[device] = LeftOut(model, rows, errors, spreads, labels)
        return found


def cross_validate(world: World, regime: str) -> list[Line]:
    """Five folds of a regime; intervals by the errors of the other folds."""
    result = world.regimes.held_out[regime]
    errors = world.errors(result)
    half = np.zeros(len(errors))
    for one in range(FOLDS):
        others = (result.folds != one) & world.counted
        names = [world.labels[i] for i in np.flatnonzero(others)]
        calibration = calibrate(errors[others], result.spreads[others], names)
        for i in np.flatnonzero(result.folds == one):
            half[i] = calibration.half_width(result.spreads[i], world.labels[i])
    points = result.medians_us * relative_point(result.spreads, result.seen)
    return _lines(world, regime, points, errors, half)


def _lines(world: World, regime: str, predicted: Array, errors: Array, half: Array) -> list[Line]:
    lines = []
    for label in sorted(set(world.labels)):
        rows = [i for i, name in enumerate(world.labels) if name == label and world.counted[i]]
        if len(rows) < 8:
            continue
        result = line(label, regime, "hybridlat", predicted[rows], world.truth[rows])
        inside = np.abs(errors[rows]) <= half[rows]
        width = statistics.median(np.exp(half[rows]) - np.exp(-half[rows]))
        lines.append(Line(*list(vars(result).values())[:7], float(inside.mean()), float(width)))
    return lines


def baselines(world: World, regime: str, fold: NDArray[np.intp]) -> list[Line]:
    """The other methods on the same folds."""
    lines = []
    for label in sorted(set(world.labels)):
        rows = [i for i, name in enumerate(world.labels) if name == label]
        target = world.rows[rows[0]].target
        if str(target) not in NAMED:
            continue
        device = device_sheets.load(target.device)
        own = [world.rows[i] for i in rows]
        truth, counted = world.truth[rows], world.counted[rows]
        names = tuple(r.architecture for r in own)
        fused = Sums.of_networks([at_batch(world.lowerer.table(r), r.batch) for r in own])
        layers = Sums.of_networks([at_batch(world.lowerer.layers(r), r.batch) for r in own])
        for name in BASELINES:
            sums = layers if name == "layerwise_learned" else fused
            predicted = np.zeros(len(rows))
            for one in range(FOLDS):
                out = fold[rows] == one
                method = baseline_of(name)(device, target.precision)
                method.fit(Problem(sums, truth, names).take(np.flatnonzero(~out & counted)))
                predicted[out] = method.predict(sums.take(np.flatnonzero(out)))
            lines.append(line(label, regime, name, predicted[counted], truth[counted]))
    return lines


def other_devices(world: World) -> list[Line]:
    """A device left out: nothing of it, then a few of its networks, chosen or at random."""
    lines = []
    all_devices = world.left_out
    for device, found in all_devices.items():
        calibration = elsewhere([one for name, one in all_devices.items() if name != device])
        for label in sorted({world.labels[i] for i in found.rows}):
            rows = [int(i) for i in found.rows if world.labels[i] == label]
            if len(rows) >= 8:
                lines.append(_zero_shot(world, found.model, calibration, label, rows))
                lines += few_shot(world, found.model, label, rows)
    return lines


def elsewhere(devices: Sequence[LeftOut], rows_each: int = 40) -> Calibration | None:
    """Intervals for a device that no row is of, by the errors on devices that were left out.

    Each table counts alike, however many networks it holds: what is foretold is a table of its own.
    None without any.
    """
    if not devices:
        return None
    errors, spreads = [], []
    for one in devices:
        for label in np.unique(one.labels):
            mine = np.flatnonzero(one.labels == label)
            ordered = mine[np.argsort(np.abs(one.errors[mine]) / one.spreads[mine], kind="stable")]
            chosen = ordered[np.linspace(0, len(ordered) - 1, rows_each).round().astype(int)]
            errors.append(one.errors[chosen])
            spreads.append(one.spreads[chosen])
    names = [ELSEWHERE] * sum(map(len, errors))
    return calibrate(np.concatenate(errors), np.concatenate(spreads), names)


def _zero_shot(
    world: World,
    model: FamilyModel,
    calibration: Calibration | None,
    label: str,
    rows: list[int],
) -> Line:
    predicted, spreads = world.predict(model, rows)
    zero = line(label, "zero_shot", "hybridlat", predicted, world.truth[rows])
    if calibration is None:
        return zero
    half = np.array([calibration.half_width(one, ELSEWHERE) for one in spreads])
    inside = np.abs(world.log_us[rows] - np.log(predicted)) <= half
    width = statistics.median(np.exp(half) - np.exp(-half))
    return replace(zero, coverage=float(inside.mean()), width=float(width))


def spreads_at(world: World, rows_each: int = 20) -> dict[str, tuple[float, ...]]:
    """What laws that have not seen them are unsure of a task's networks, at each of ``BATCHES``."""
    folds = world.regimes.held_out["unseen"].folds
    laws = [world.learn(folds != fold) for fold in range(FOLDS)]
    medians = {}
    for label in sorted(set(world.labels)):
        own = [i for i in np.flatnonzero(world.counted) if world.labels[i] == label]
        found = []
        for i in {own[int(k)] for k in np.linspace(0, len(own) - 1, rows_each)} if own else ():
            row, law = world.rows[i], laws[folds[i]]
            sets = [world.lowerer.kernels(replace(row, batch=batch)) for batch in BATCHES]
            equations = np.stack([law.equation(one, row.task)[1] for one in sets])
            found.append(law.spreads(equations, [row.task] * len(sets)))
        if found:
            medians[label] = tuple(np.median(found, axis=0).round(4).tolist())
    return medians


def save(world: World, folder: Path, kin: Path) -> None:
    """The model of all rows, with intervals by networks and by devices that were held out.

    A family with one device alone has the latter from the model in ``kin``, of another family.
    """
    known = world.counted
    held_out = world.regimes.held_out["unseen"]
    names = [world.labels[i] for i in np.flatnonzero(known)]
    calibration = calibrate(world.errors(held_out)[known], held_out.spreads[known], names)
    found = elsewhere(list(world.left_out.values())) or FamilyModel.load(kin).calibration
    if found is None:
        raise SystemExit(f"{kin} has no calibration: train that family first")
    lent = {name: spread for name, spread in found.spreads.items() if name == ELSEWHERE}
    calibration = replace(
        calibration, pooled=found.pooled, spreads=calibration.spreads | lent,
        spreads_at=spreads_at(world),
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    sizes = defaultdict(list)
    for i in np.flatnonzero(known):
        sizes[str(world.rows[i].target)].append(world.rows[i].batch)
    batches = {target: (min(some), max(some)) for target, some in sorted(sizes.items())}
    replace(world.learn(known), calibration=calibration, batches=batches).save(folder)


def load(name: str, folders: Sequence[Path], cache: Path) -> World:
    """The rows of an engine family; the networks are unpacked into the cache once.

    From here on linear algebra has one thread, so that the digits do not hang on how many there
    are.
    """
    threadpool_limits(1, user_api="blas")
    for folder in folders:
        if not (cache / folder.name / "nets").is_dir():
            with tarfile.open(folder / "nets.tar.gz") as packed:
                packed.extractall(cache / folder.name, filter="data")
    rows = [r for r in read_rows(folders, FAMILIES[name]) if r.target.version not in _OLD]
    rows.sort(key=lambda r: (r.onnx, str(r.task), r.batch, r.folder))
    return World(name, tuple(rows), {}, lowerer=Lowerer(cache))


def main() -> None:
    """All families, all regimes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", default=[
        ROOT.parent / "shared/data" / name for name in ("whole_networks", "gpu_networks")
    ])  # fmt: skip
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/whole_networks")
    parser.add_argument("--family", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--no-baselines", action="store_true")
    parser.add_argument("--models", type=Path, help="a folder to write the models to")
    parser.add_argument("--models-alone", action="store_true", help="no tables")
    parser.add_argument(
        "--write", action="store_true", help="write the figures of whole_networks.md"
    )
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    for name in given.family:
        began = time.perf_counter()
        world = load(name, given.data, given.cache)
        print(f"{name}: {len(world.rows)} rows, {time.perf_counter() - began:.0f} s", flush=True)
        if given.models:
            save(world, given.models / f"family_{name}", given.models / "family_torch")
            print(f"models: {time.perf_counter() - began:.0f} s", flush=True)
        if given.models_alone:
            continue
        parts: list[Line] = []
        for regime in HELD_OUT:
            result = cross_validate(world, regime)
            parts += result
            print(markdown(result), f"{time.perf_counter() - began:.0f} s", flush=True)
            if regime == "unseen" and not given.no_baselines:
                result = baselines(world, regime, world.regimes.held_out[regime].folds)
                parts += result
                print(markdown(result), f"{time.perf_counter() - began:.0f} s", flush=True)
        result = other_devices(world)
        parts += result
        print(markdown(result), f"{time.perf_counter() - began:.0f} s", flush=True)
        lines += parts
    if given.write:
        page = ROOT / "experiments" / "whole_networks.md"
        full = ROOT / "experiments" / "figures" / "whole_networks.csv"
        full.write_text(csv(lines), encoding="utf-8")
        text, mark, rest = page.read_text(encoding="utf-8").partition("## Figures\n")
        sentence = rest.strip().partition("\n")[0]
        page.write_text(f"{text}{mark}\n{sentence}\n\n{summary(lines)}", encoding="utf-8")


if __name__ == "__main__":
    main()
