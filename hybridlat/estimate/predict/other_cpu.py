"""The model of another CPU under the same engine, for a machine without any model.

What a CPU takes for a cell beside another one differs most of all by a factor that both machines'
cells share. So the other's model tells the proportions of a network well and its pace badly. The
estimate is as wide as that: enough to rank networks and to see orders of magnitude.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hybridlat.estimate.lookup.models import model_folders, read_model, read_target, readable
from hybridlat.estimate.predict.source import CellLatency, NetworkCells, NetworkLaw
from hybridlat.model.cell_model import CellModel
from hybridlat.schema.target import Target
from hybridlat.store import Store

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


@dataclass(frozen=True, eq=False)
class OtherCpu:
    """``model`` of ``target``, for another machine that runs the engine with ``threads``.

    ``pace`` are mean and spread of ln(latency here / latency there).
    """

    target: Target
    model: CellModel
    threads: int
    pace: tuple[float, float] = PACE

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        """See ``CellSource``: every cell errs with the machine's pace."""
        law = self.law(cells)
        reason = (
            f"predicted from the model of {self.target}, another device: "
            "how its pace compares is a guess"
        )
        latencies_us = [law.cells_us[i] for i in positions]
        return [
            None if math.isnan(us) else CellLatency(us, law.spread_share, reason)
            for us in latencies_us
        ]

    def law(self, cells: NetworkCells) -> NetworkLaw:
        """See ``CellSource``: nothing beside the cells. Other threads are one more doubt."""

        def work_out() -> NetworkLaw:
            factor = math.exp(self.pace[0])
            latencies_us = [
                math.nan if p.latency_us is None else p.latency_us * factor
                for p in self.model.predict(cells.texts)
            ]
            threads = math.log(self.threads / (self.target.threads or 1))
            return NetworkLaw(latencies_us, 0.0, math.hypot(self.pace[1], NETWORK_SPREAD, threads))

        return cells.law_of(self, work_out)

    def after(self, latencies_us: Mapping[str, float]) -> OtherCpu:
        """The same after these cells (text → µs) were measured here: they tell the pace."""
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


def other_cpu(target: Target) -> OtherCpu | None:
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
            return OtherCpu(other, model, target.threads or 1)
    return None


def paced_cpu(target: Target, store: Store) -> OtherCpu | None:
    """``other_cpu``, its pace as the cells tell it that the store knows of the target."""
    other = other_cpu(target)
    if other is None:
        return None
    measured = {
        record.signature: record.latency_us
        for record in store.measurements(target, "cell")
        if record.latency_us is not None
    }
    texts = store.signature_texts(measured)
    return other.after({text: measured[signature] for signature, text in texts.items()})
