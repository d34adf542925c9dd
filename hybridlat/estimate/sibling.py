"""The model of another device under the same engine: what is known of a machine nobody measured.

What a CPU takes for a cell beside another one differs most of all by a factor that both machines'
cells share, so the other's model tells the proportions of a network well and its pace badly. The
answer is as wide as that: enough to rank networks and to see orders of magnitude.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.composition import normal_quantile
from hybridlat.estimate.family_prior import FamilyAnswer
from hybridlat.estimate.model_folders import model_folders, read_model, read_target, readable
from hybridlat.model.cell_model import CellModel
from hybridlat.schema.target import Target

PACE = (math.log(1.5), 0.74)
"""Mean and spread of ln(latency here / latency there) before anything was measured here: nine of
ten machines between half and five times. The shipped CPU is a quick one; on the one other CPU that
was measured the same cells took 1.4 to 5.3 times as long, 2.4 in the median (nine of ten of 1,029
cells over 20 µs, on a busy EPYC of family 25)."""
CELL_SPREAD = 0.4
"""Spread of that of single cells about their machine's own pace, on that machine."""
NETWORK_SPREAD = 0.2
"""What is left of it in a network's sum: a guess, half of a cell's."""
LEAST_US = 20.0
"""Cells below that tell more of clocks than of a machine's pace."""
MOST_CELLS = 300


@dataclass(frozen=True)
class SiblingModel:
    """``model`` of ``target``, asked about the device of another target of the same engine."""

    target: Target
    model: CellModel
    threads: int
    pace: tuple[float, float] = PACE

    def measured(self, latencies_us: Mapping[str, float]) -> SiblingModel:
        """The same after these cells (text → µs) were measured here: they tell its pace."""
        chosen = [text for text, us in latencies_us.items() if us >= LEAST_US][:MOST_CELLS]
        theirs = [p.latency_us for p in self.model.predict(chosen)]
        logs = [
            math.log(latencies_us[text] / us) for text, us in zip(chosen, theirs, strict=True) if us
        ]
        mean, spread = self.pace
        weight = len(logs) / CELL_SPREAD**2
        certainty = weight + spread**-2
        # The median: some cells are fused or blocked otherwise on another machine.
        middle = statistics.median(logs) if logs else 0.0
        pace = (weight * middle + mean * spread**-2) / certainty
        return replace(self, pace=(pace, certainty**-0.5))

    def cells_us(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Latencies of cells here, in µs; nan where the model has no answer."""
        predictions = self.model.predict(list(texts))
        given = [math.nan if p.latency_us is None else p.latency_us for p in predictions]
        return np.array(given, dtype=np.float64) * math.exp(self.pace[0])

    def answer(self, cells_us: NDArray[np.float64], confidence: float) -> FamilyAnswer:
        """The answer that cells make which take so long. Other threads are one more doubt."""
        threads = math.log(self.threads / (self.target.threads or 1))
        spread = math.hypot(self.pace[1], NETWORK_SPREAD, threads)
        half = spread * normal_quantile(confidence)
        kin = f"the model of {self.target}, another device: how its pace compares is a guess"
        return FamilyAnswer(cells_us.tolist(), 0.0, half, confidence, kin)


def sibling_of(target: Target) -> SiblingModel | None:
    """The model of another CPU, with the engine and precision of ``target``.

    GPUs differ by more than a factor could tell: they have families. Of several models the one
    whose threads agree, then the user's own, then the first by name. None where there is no such
    model, or none that can be read.
    """
    candidates: dict[str, tuple[bool, Target, Path]] = {}
    for folder in reversed(model_folders(None)):
        other = readable(read_target, folder)
        if (
            other is not None
            and other.device != target.device
            and (other.engine, other.precision) == (target.engine, target.precision)
        ):
            candidates[other.folder] = (other.threads != target.threads, other, folder)
    for _, other, folder in sorted(candidates.values()):
        model = readable(read_model, folder)
        if model is not None and model.device.kind == "cpu":
            return SiblingModel(other, model, target.threads or 1)
    return None
