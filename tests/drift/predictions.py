"""Predictions of all shipped networks on a dozen targets, and what of them moved against a table.

The table is ``predictions.csv`` beside this file; ``accepted.md`` says why it was written anew.
"""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import onnxruntime

from hybridlat import Predictor

FOLDER = Path(__file__).parent
TABLE = FOLDER / "predictions.csv"
NETWORKS = FOLDER.parents[1] / "data" / "nets"
TARGETS = (
    "epyc-26-2/onnxruntime-1.31/fp32/1t",  # the shipped pack's
    "i7-12700h/onnxruntime-1.31/fp32/1t",  # a CPU without a pack
    "t4/tensorrt/fp16",
    "t4/tensorrt/int8",
    "l4/tensorrt/fp16",
    "orin-nano/tensorrt/fp16",
    "orin-agx/tensorrt/fp16",
    "rtx-4090/tensorrt/fp16",
    "rtx-4090/torch-2.9/amp",
    "rtx-4090/torch-compile-2.9/amp",
    "v100/tensorrt/fp16",
    "v100/tensorrt/fp32",
    "a100/tensorrt/fp16",
    "h100/tensorrt/fp16",
)
TOLERANCE = 0.01
DIGITS = 4


Key = tuple[str, str]
"""A network and a target."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One answer: latency and interval in microseconds, and what share (0..1) is measured.

    A cell without a latency leaves ``latency_us`` NaN or the upper end infinite.
    """

    latency_us: float
    low_us: float
    high_us: float
    measured_share: float


@dataclass(frozen=True, slots=True)
class Move:
    """A value that differs by more than the tolerance: ``change`` is a share of the old one.

    What is not a number on one side, and a row that comes or goes, change infinitely.
    """

    network: str
    target: str
    what: str
    old: float
    new: float
    change: float

    @property
    def is_lost(self) -> bool:
        """Whether a latency turned into none: no one may accept that."""
        return self.what == "latency_us" and math.isnan(self.new)

    def __str__(self) -> str:
        change = f"{100 * self.change:+.1f} %" if math.isfinite(self.change) else ""
        values = f"{self.old:.4g} → {self.new:.4g}"
        return f"{self.network:24} {self.target:36} {self.what:14} {values}  {change}"


def engine_version() -> str:
    """The engine that optimises the graphs for CPUs, such as ``onnxruntime-1.32``."""
    return "onnxruntime-" + ".".join(onnxruntime.__version__.split(".")[:2])


def predicted(targets: Iterable[str] = TARGETS, store: str = "sqlite://") -> dict[Key, Prediction]:
    """The predictions for this working tree, with nothing measured and no record in the store."""
    paths = sorted(NETWORKS.glob("*.onnx"))
    made: dict[Key, Prediction] = {}
    for target in targets:
        with Predictor(target, store=store, measure="never") as predictor:
            for path, answer in zip(paths, predictor.predict_many(paths), strict=True):
                low, high = answer.interval_us or (math.nan, math.inf)
                latency = math.nan if answer.latency_us is None else answer.latency_us
                made[path.stem, target] = Prediction(latency, low, high, answer.measured_share)
    return made


def moves(old: Mapping[Key, Prediction], new: Mapping[Key, Prediction]) -> list[Move]:
    """What moved by more than the tolerance, the largest change first."""
    each = [Move(*key, "row", key in old, key in new, math.inf) for key in old.keys() ^ new.keys()]
    for key in old.keys() & new.keys():
        for field in fields(Prediction):
            a, b = getattr(old[key], field.name), getattr(new[key], field.name)
            if change := _change(a, b, field.name == "measured_share"):
                each.append(Move(*key, field.name, a, b, change))
    return sorted(each, key=lambda m: (not m.is_lost, -abs(m.change), m.network, m.target, m.what))


def _change(old: float, new: float, is_share: bool) -> float:
    """The change of a value as a share of it, of a share as it is; 0 within the tolerance."""
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    change = new - old if is_share else new / old - 1 if old else math.inf
    return 0.0 if abs(change) <= TOLERANCE else change if math.isfinite(change) else math.inf


def read_table() -> tuple[str, dict[Key, Prediction]]:
    """The engine's version that the table was made with, and the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        engine = file.readline().removeprefix("#").strip()
        rows = list(csv.reader(file))[1:]
    return engine, {(row[0], row[1]): Prediction(*map(float, row[2:])) for row in rows}


def write_table(predictions: Mapping[Key, Prediction]) -> None:
    """Write the table anew: sorted, numbers with four digits."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {engine_version()}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["network", "target", *(field.name for field in fields(Prediction))])
        for key, answer in sorted(predictions.items()):
            writer.writerow([*key, *(f"{value:.{DIGITS}g}" for value in astuple(answer))])
