"""Cells far from all that a target's own model was trained on: who tells them better?

    python experiments/26_strange_cells.py [cells] [networks] [answers] [--data DIR] [--cache DIR]

``cells``: regions of shapes are kept out of the V100's convolutions, the model is fitted to what is
left and asked about the region. The family, which has learned no convolution alone, is asked about
the same cells: how far each is off.
``networks``: the tables of V100 as sums of cells, the family without their architectures; cells
far from training as the model says them, as the family does, or both by inverse variances.
``answers``: what `predict` says of ``data/nets`` on seven GPUs: networks with all cells told, those
with a cell far from training, the tolerance that all intervals meet, latencies below the peak's.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "experiments"))
sys.path.insert(0, str(ROOT))

from hybridlat.api import Predictor
from hybridlat.engines import device_sheets, registry
from hybridlat.estimate.compose.composition import normal_quantile
from hybridlat.estimate.predict.family import Family
from hybridlat.graph.cells import cut
from hybridlat.graph.signature import sign
from hybridlat.model.cell_model import load_model
from hybridlat.model.family import shipped
from hybridlat.model.fit import fit_model
from hybridlat.model.geometry import View, geometry
from hybridlat.model.training_problem import FitConfig
from hybridlat.onnx_io import read_network
from hybridlat.schema.estimate import CellPrediction
from hybridlat.schema.target import Target

outside = importlib.import_module("11_outside_the_range")
whole_networks = importlib.import_module("13_whole_networks")
Array = np.ndarray[Any, np.dtype[Any]]
CONFIDENCE = 0.9
OWN_FACTOR = 1.8
"""By which a model's errors of the regions of ``cells`` exceed what it states: their median."""
MOST_TRAINED, MOST_ASKED = 3000, 300
NETS = ROOT / "data" / "nets"
TARGETS = (
    "v100/tensorrt/fp16", "v100/tensorrt/fp32", "t4/tensorrt/fp16", "xavier-agx/tensorrt/fp16",
    "l4/tensorrt/fp16", "a100/tensorrt/fp16", "orin-agx/tensorrt/fp16",
    "rtx-5090/torch-compile/amp",
)  # fmt: skip
TABLES = ("v100/paddle-tensorrt-8.0/fp32", "v100/paddle-tensorrt-2020/fp32",
          "v100/paddle-tensorrt-2020/fp16")  # fmt: skip


@dataclass(frozen=True)
class Opinion:
    """Log-errors of one way of telling a latency, and the standard errors that it states."""

    errors: Array
    spreads: Array

    def words(self) -> str:
        """Median error, root mean square, and how often the interval of 90 % holds."""
        inside = np.abs(self.errors) <= normal_quantile(CONFIDENCE) * self.spreads
        off = np.abs(np.expm1(-self.errors))
        rms = math.sqrt(float(np.mean(self.errors**2)))
        return f"{100 * np.median(off):.0f} % / {rms:.2f} / {100 * inside.mean():.0f} %"


def opinion(predictions: Sequence[CellPrediction], truth: Array) -> Opinion:
    """What predictions of cells are off by."""
    told = np.array([p.latency_us or math.nan for p in predictions])
    widths = np.array([log_half_width(p) for p in predictions])
    return Opinion(np.log(truth / told), widths / normal_quantile(CONFIDENCE))


def by_family(law: Family, texts: Sequence[str]) -> list[CellPrediction]:
    """Each cell as the family says it."""
    found = []
    for text in texts:
        answer = law.network([text], [1], 0.0, CONFIDENCE)
        us, factor = (
            float(answer.cells_us[0]),
            math.exp(answer.spread_share * normal_quantile(CONFIDENCE)),
        )
        found.append(CellPrediction(us, (us / factor, us * factor), True, law.basis))
    return found


def law_of(target: Target) -> Family:
    """The shipped family's law for a target."""
    name = shipped.family_name(target.engine)
    model = shipped.load(ROOT / "models" / f"family_{name}")
    device = device_sheets.load(target.device)
    return Family(model, device, target.precision, shipped.task_of(target, model.tasks))


def log_half_width(guess: CellPrediction) -> float:
    """Half the width of an interval of the logarithm."""
    return math.log(guess.interval_us[1] / guess.interval_us[0]) / 2 if guess.interval_us else 1.0


def _together(own: CellPrediction, us: float, half: float) -> float:
    """The mean of two logarithms by inverse variances; the model errs by more than it states."""
    mine = OWN_FACTOR * log_half_width(own)
    return us * ((own.latency_us or us) / us) ** (half**2 / (half**2 + mine**2))


WAYS: dict[str, Callable[[CellPrediction, float, float], float]] = {
    "all by the family": lambda own, us, half: us,
    "far ones by the model": lambda own, us, half: own.latency_us or us,
    "far ones by the family": lambda own, us, half: (own.trusted and own.latency_us) or us,
    "far ones by both": lambda own, us, half: (
        own.latency_us if own.trusted and own.latency_us else _together(own, us, half)
    ),
}
"""What is said of a cell, from the model's word and the family's latency and half-width; cells that
the model has no latency for are the family's in all of them."""


def of_cells(data: Path) -> None:
    """Convolutions of regions that the model was kept out of."""
    print("| region kept out | cells | own | family |")
    print("|---|---:|---|---|")
    target = Target.parse("v100/tensorrt/fp32")
    texts, latencies = outside.rows_of(data / "v100_tensorrt_conv", target)
    cells, law = geometry(texts), law_of(target)
    scores: list[Opinion] = []
    for case in outside.CASES:
        draw = np.random.default_rng(0)
        inside = case.inside(cells.column)
        train = draw.permutation(np.flatnonzero(~inside))[:MOST_TRAINED]
        known = [texts[i] for i in train.tolist()]
        config = FitConfig(device_sheets.load(target.device), target.precision, 0)
        model = fit_model(known, latencies[train], known, config)
        asked = draw.permutation(np.flatnonzero(inside))[:MOST_ASKED].tolist()
        own = model.predict([texts[i] for i in asked])
        strange = [i for i, guess in enumerate(own) if not guess.trusted]
        if len(strange) < outside.LEAST:
            continue
        truth = latencies[[asked[i] for i in strange]]
        mine = opinion([own[i] for i in strange], truth)
        theirs = opinion(by_family(law, [texts[asked[i]] for i in strange]), truth)
        scores.append(mine)
        print(f"| {case.words} | {len(strange)} | {mine.words()} | {theirs.words()} |", flush=True)
    ratios = [math.sqrt(float(np.mean((s.errors / s.spreads) ** 2))) for s in scores]
    print(f"own error over what is stated, by region: median {np.median(ratios):.2f}")


def cells_of(network: Path, target: Target) -> tuple[list[str], list[int], float]:
    """(texts, counts, copied bytes) of a network's cells."""
    read = read_network(network)
    lowered = registry.lower(read, target)
    counts = Counter(sign(cell.network).text for cell in cut(lowered, read))
    outer = (*lowered.network.inputs, *lowered.network.outputs)
    copied = sum(lowered.network.type_of(name).bytes for name in outer)
    return list(counts), list(counts.values()), float(copied)


def of_networks(data: Path, cache: Path) -> None:
    """The V100's tables at batch 1: cells by the own model, by the family, by both."""
    world = whole_networks.load("tensorrt", data / "whole_networks", cache)
    fold = world.held_out("unseen").fold
    models = {p: load_model(ROOT / "models" / f"v100_tensorrt_{p}") for p in ("fp32", "fp16")}
    device = device_sheets.load("v100")
    found: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    for one in range(5):
        law = world.learn(fold != one)
        for i in np.flatnonzero((fold == one) & world.counted):
            row = world.rows[i]
            if str(row.target) not in TABLES or row.batch != 1 or row.plain_relu:
                continue
            texts, counts, copied = cells_of(cache / "nets" / f"{row.onnx}.onnx", row.target)
            prior = Family(law, device, row.target.precision, row.task)
            answer = prior.network(texts, counts, copied, CONFIDENCE)
            half_width = answer.spread_share * normal_quantile(CONFIDENCE)
            own = models[row.target.precision].predict(texts)
            far = any(guess.latency_us and not guess.trusted for guess in own)
            pairs = list(zip(own, answer.cells_us, counts, strict=True))
            for way, says in WAYS.items():
                each = [count * says(guess, us, half_width) for guess, us, count in pairs]
                error = math.log(row.latency_us / (math.fsum(each) + answer.beside_us))
                found.setdefault((str(row.target), way), []).append((error, far))
    print("| table | cells | networks | median ln(true / told) | its spread | median error % |")
    print("|---|---|---:|---:|---:|---:|")
    for (table, way), rows in sorted(found.items()):
        errors = np.array([error for error, far in rows if far])
        middle = float(np.median(errors))
        print(
            f"| {table} | {way} | {len(errors)} | {middle:+.2f} | {errors.std():.2f} | "
            f"{100 * np.median(np.abs(np.expm1(-errors))):.1f} |"
        )


def of_answers(targets: Iterable[str]) -> None:
    """What the sixty networks come to on GPUs that nobody here has."""
    print(
        "| target | networks | all cells told | far | largest half-width | typical | below peak |"
    )
    print("|---|---:|---:|---:|---:|---:|---|")
    for name in targets:
        target = Target.parse(name)
        device = device_sheets.load(target.device)
        widths, told, strange, below, count = [], 0, 0, [], 0
        with (
            tempfile.TemporaryDirectory() as folder,
            Predictor(name, store=f"{folder}/none.db", measure="never") as predictor,
        ):
            for file in sorted(NETS.glob("*.onnx")):
                estimate = predictor.predict(file)
                count += 1
                told += estimate.supported
                strange += any(not cell.trusted for cell in estimate.cells)
                if estimate.latency_us is None or estimate.interval_us is None:
                    continue
                widths.append(estimate.interval_us[1] / estimate.latency_us - 1)
                texts, counts, _ = cells_of(file, target)
                cells = geometry(texts)
                view = View(cells, device, target.precision)
                floor = float(np.dot(view.compute_us, np.array(counts)[cells.cell]))
                if estimate.latency_us < floor:
                    below.append(file.stem)
        print(
            f"| {name} | {count} | {told} | {strange} | {100 * max(widths):.0f} % | "
            f"{100 * float(np.median(widths)):.0f} % | {', '.join(below) or 'none'} |",
            flush=True,
        )


def main() -> None:
    """All parts, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["cells", "networks", "answers"])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/whole_networks")
    parser.add_argument("--target", nargs="*", default=list(TARGETS))
    given = parser.parse_args()
    if "cells" in given.parts:
        of_cells(given.data)
    if "networks" in given.parts:
        given.cache.mkdir(parents=True, exist_ok=True)
        of_networks(given.data, given.cache)
    if "answers" in given.parts:
        of_answers(given.target)


if __name__ == "__main__":
    main()
