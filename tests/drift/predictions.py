"""Predictions of all shipped networks on a dozen targets, and what of them moved against a table.

The table is ``predictions.csv`` beside this file; ``accepted.md`` says why it was written anew.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
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


@dataclass(frozen=True, slots=True)
class Prediction:
    """One answer: latency and interval in microseconds, and what share (0..1) is measured.

    A cell without a latency leaves ``latency_us`` NaN or the upper end infinite.
    """

    latency_us: float
    low_us: float
    high_us: float
    measured_share: float


Predictions = Mapping[tuple[str, str], Prediction | str]
"""By network and target; a text is a refusal."""


@dataclass(frozen=True, slots=True)
class Move:
    """What differs by more than the tolerance: the change as a share of the old value.

    A refusal, a latency that there was not, and a row that comes or goes change infinitely.
    """

    network: str
    target: str
    what: str
    old: str
    new: str
    change: float

    @property
    def is_lost(self) -> bool:
        """Whether an answer, or the latency in it, turned into none: no one may accept that."""
        return self.what in ("refused", "latency lost")

    def __str__(self) -> str:
        change = f"{100 * self.change:+.1f} %" if math.isfinite(self.change) else ""
        return (
            f"{self.network:24} {self.target:36} {self.what:14} {self.old} → {self.new}  {change}"
        )


def engine_version() -> str:
    """The engine that optimises the graphs for CPUs, such as ``onnxruntime-1.32``."""
    return "onnxruntime-" + ".".join(onnxruntime.__version__.split(".")[:2])


def predicted(targets: Iterable[str] = TARGETS) -> dict[tuple[str, str], Prediction | str]:
    """The predictions for this working tree, with nothing measured and an empty store."""
    paths = sorted(NETWORKS.glob("*.onnx"))
    made: dict[tuple[str, str], Prediction | str] = {}
    for target in targets:
        with Predictor(target, store="sqlite://", measure="never") as predictor:
            answers = predictor.predict_many(paths, errors="return")
            for path, answer in zip(paths, answers, strict=True):
                made[path.stem, target] = str(answer)
                if not isinstance(answer, Exception):
                    low, high = answer.interval_us or (math.nan, math.inf)
                    latency = math.nan if answer.latency_us is None else answer.latency_us
                    made[path.stem, target] = Prediction(latency, low, high, answer.measured_share)
    return made


def moves(old: Predictions, new: Predictions) -> list[Move]:
    """What moved by more than the tolerance, the largest change first."""
    each = [move for key in old.keys() | new.keys() for move in _moves(key, old, new)]
    return sorted(each, key=lambda m: (not m.is_lost, -abs(m.change), m.network, m.target, m.what))


def _moves(key: tuple[str, str], old: Predictions, new: Predictions) -> Iterator[Move]:
    before, after = old.get(key), new.get(key)
    if isinstance(before, Prediction) and isinstance(after, Prediction):
        for field in fields(Prediction):
            a, b = getattr(before, field.name), getattr(after, field.name)
            if field.name == "latency_us" and math.isnan(b) > math.isnan(a):
                yield Move(*key, "latency lost", f"{a:.4g}", "none", math.inf)
            elif change := _change(a, b, field.name == "measured_share"):
                yield Move(*key, field.name, f"{a:.4g}", f"{b:.4g}", change)
    elif before is None or after is None:
        what = "not in the table" if before is None else "no longer asked"
        yield Move(*key, what, "–", "–", math.inf)
    elif before != after:
        what = "refused" if isinstance(after, str) else "answered"
        yield Move(*key, what, _latency(before), _latency(after), math.inf)


def _latency(answer: Prediction | str) -> str:
    return answer if isinstance(answer, str) else f"{answer.latency_us:.4g}"


def _change(old: float, new: float, is_share: bool) -> float:
    """The change of a value as a share of it, of a share as it is; 0 within the tolerance."""
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    change = new - old if is_share else new / old - 1 if old else math.inf
    return 0.0 if abs(change) <= TOLERANCE else change if math.isfinite(change) else math.inf


def read_table() -> tuple[str, dict[tuple[str, str], Prediction | str]]:
    """The engine's version that the table was made with, and the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        engine = file.readline().removeprefix("#").strip()
        rows = list(csv.reader(file))[1:]
    table: dict[tuple[str, str], Prediction | str] = {}
    for network, target, *values in rows:
        is_answer = len(values) > 1
        table[network, target] = Prediction(*map(float, values)) if is_answer else values[0]
    return engine, table


def write_table(predictions: Predictions) -> None:
    """Write the table anew: sorted, numbers with four digits."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {engine_version()}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["network", "target", *(field.name for field in fields(Prediction))])
        for key, answer in sorted(predictions.items()):
            values = [answer] if isinstance(answer, str) else astuple(answer)
            shown = [v if isinstance(v, str) else f"{v:.{DIGITS}g}" for v in values]
            writer.writerow([*key, *shown])
