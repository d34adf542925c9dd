"""What other targets under the same engine know of a cell: other versions, and another CPU.

A cell that was measured on the device under the engine's last version, or at another precision,
tells more of the cell here than another device's does. It is believed as far as versions and
precisions were found to differ elsewhere.

A CPU without any model is answered by that of another one. What the two take for a cell differs
most of all by a factor that both machines' cells share: the other's model tells the proportions of
a network well and its pace badly. The estimate is as wide as that: enough to rank networks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hybridlat.estimate.compose.target_composition import composition_of
from hybridlat.estimate.lookup.models import model_folders, read_model, read_target, readable
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.estimate.partition import Partition
from hybridlat.estimate.predict.source import (
    CellLatency,
    CellSource,
    NetworkCells,
    NetworkLaw,
    roofline_us,
    stated,
)
from hybridlat.model.cell_model import CellModel
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target
from hybridlat.store import Store, packs

VERSION_SPREAD = {"torch": 0.15, "torch-compile": 0.15}
OTHER_VERSION_SPREAD = 0.3
"""Root mean square of ln(ratio) of two versions: PyTorch 0.04 to 0.2, TensorRT 0.28 to 0.32 from
one to the next and 0.6 over both (its grouped convolutions; whole networks on RTX 3090, 4090 and
V100: experiments/25_versions_apart.py, 2026-11-22)."""
PRECISION_SPREAD = 0.75
"""Of ln(FP16 / FP32) of single convolutions about what roofline and launch say: 0.76, TensorRT on
the V100 (the same)."""
PACE = (math.log(1.5), 0.74)
"""Mean and spread of ln(latency here / latency on another CPU) before anything was measured here:
nine of ten machines between half and five times. The shipped CPU is a quick one; on the one other
CPU that was measured the same cells took 1.4 to 5.3 times as long, 2.4 in the median (nine of ten
of 1,029 cells over 20 µs, on a busy EPYC of family 25)."""
CELL_SPREAD = 0.4
"""Spread of that of single cells about their machine's own pace, on that machine."""
NETWORK_SPREAD = 0.2
"""What is left of it in a network's sum: a guess, half of a cell's."""
LEAST_US = 20.0
"""Cells below that tell more of clocks than of a machine's pace."""
MOST_CELLS = 300


@dataclass(frozen=True, eq=False)
class OtherVersion(CellSource):
    """A target that differs from ``here`` in version or precision alone, and what is known of it.

    ``spread`` is the standard error of ln(latency here / latency there), which all cells share.
    ``device`` None is one without a data sheet. Where a ``rival`` is surer of the network, this one
    leaves the cells to it. ``untrusted`` takes the model's word far from its training as well.
    """

    here: Target
    data: TargetData
    spread: float
    device: Device | None = None
    rival: CellSource | None = None
    untrusted: bool = False

    @property
    def target(self) -> Target:
        """Where the cells are known."""
        return self.data.target

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        """See ``CellSource``: the records there, and for the rest the model there.

        Between precisions they scale as the roofline does; without a data sheet only targets of
        the same precision answer.
        """
        scales = self.device is not None or self.target.precision == self.here.precision
        law = None if self.rival is None else self.rival.law(cells)
        if not scales or (law is not None and self.spread >= law.spread_share):
            return [None] * len(positions)
        latencies = self._there(cells, positions)
        factors = iter(self._factors(cells.texts_at(list(latencies))))
        return [
            None if (there := latencies.get(i)) is None
            else replace(
                there,
                latency_us=(there.latency_us or 0.0) * next(factors),
                spread_share=math.hypot(self.spread, there.spread_share),
            )
            for i in positions
        ]  # fmt: skip

    def law(self, cells: NetworkCells) -> NetworkLaw | None:
        """See ``CellSource``: the rival's, else what a run costs there beside its cells."""
        if self.rival is not None:
            return self.rival.law(cells)
        return NetworkLaw(
            [0.0] * len(cells.signatures), composition_of(self.data).overhead_us, self.spread
        )

    def whole(self, signature: str) -> WholeLatency | None:
        """A network as it was measured there: evidence here, at the same precision alone."""
        if self.target.precision != self.here.precision:
            return None
        latency = self.data.whole(signature)
        if latency is None:
            return None
        noise = math.hypot(latency.noise_share, self.spread)
        basis = f"{latency.basis} as {self.target}"
        return replace(latency, noise_share=noise, is_exact=False, basis=basis)

    def _there(self, cells: NetworkCells, positions: Sequence[int]) -> dict[int, CellLatency]:
        """The latencies as they are known there, in the order of positions, with reasons here."""
        differs = [
            *(["version of the engine"] if self.target.version != self.here.version else []),
            *(["precision"] if self.target.precision != self.here.precision else []),
        ]
        where = f"{self.target}: another {' and '.join(differs)}"
        records = self.data.known([cells.signatures[i] for i in positions])
        latencies: dict[int, CellLatency] = {}
        for i in positions:
            stats = records.get(cells.signatures[i])
            if stats is not None and stats.latency_us is not None:
                reason = f"measured as {where}"
                latencies[i] = CellLatency(stats.latency_us, stats.spread_share, reason)
        rest = [i for i in positions if i not in latencies]
        model = self.data.model if rest else None
        if model is not None:
            for i, guess in zip(rest, model.predict(cells.texts_at(rest)), strict=True):
                if guess.latency_us is not None and (guess.trusted or self.untrusted):
                    doubt = "" if guess.trusted else f", {guess.reason}"
                    reason = f"predicted by the model of {where}{doubt}"
                    latencies[i] = replace(stated(guess, model.confidence), reason=reason)
        return dict(sorted(latencies.items()))

    def _factors(self, texts: Sequence[str]) -> list[float]:
        """Latency here / latency there of each cell."""
        if self.device is None or self.target.precision == self.here.precision or not texts:
            return [1.0] * len(texts)
        here, there = (
            roofline_us(texts, self.device, target.precision) for target in (self.here, self.target)
        )
        factors: list[float] = (here / there).tolist()
        return factors


def versions_of(data: TargetData) -> tuple[OtherVersion, ...]:
    """Other versions and precisions of a target's engine on its device, the surest first.

    Those that the store has records of, and those that have a model or a shipped pack. Precisions
    that share their cells anyway (see `registry.same_cell_targets`) are none.
    """

    def work_out() -> tuple[OtherVersion, ...]:
        here = data.target
        known = {*data.store.targets(), *(pack.target for pack in packs.shipped_packs())}
        models = (readable(read_target, folder) for folder in model_folders(None))
        known.update(one for one in models if one is not None)
        same = (here.device, here.engine, here.threads)
        others = [
            OtherVersion(here, data.neighbour(other), spread_between(here, other))
            for other in sorted(known - {here, *data.related})
            if (other.device, other.engine, other.threads) == same
        ]
        return tuple(sorted(others, key=lambda other: other.spread))

    return data.at_this_state("other versions", work_out)


def whole_network(data: TargetData, partition: Partition) -> WholeLatency | None:
    """What is recorded of a network as a whole, here or on another version; None without any.

    The network is not signed where no record can be of it.
    """
    own = data.whole(partition.whole) if data.may_be_measured(partition) else None
    if own is not None:
        return own
    latencies = (version.whole(partition.whole) for version in versions_of(data))
    return next((one for one in latencies if one is not None), None)


def spread_between(here: Target, there: Target) -> float:
    """Standard error of ln(latency here / latency there) for two targets of one engine."""
    version = 0.0
    if here.version != there.version:
        version = VERSION_SPREAD.get(here.engine, OTHER_VERSION_SPREAD)
    return math.hypot(version, PRECISION_SPREAD * (here.precision != there.precision))


@dataclass(frozen=True, eq=False)
class OtherCpu(CellSource):
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
        return [
            None if math.isnan(us) else CellLatency(us, law.spread_share, reason)
            for us in [law.cells_us[i] for i in positions]
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
