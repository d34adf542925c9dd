"""What other targets under the same engine know of a cell: other versions, and another CPU.

A cell that was measured on the device under the engine's last version tells more of the cell here
than another device's does. It is believed as far as versions were found to differ elsewhere.

A CPU without any model is answered by that of another one. What the two take for a cell differs
most of all by a factor that both machines' cells share: the other's model tells the proportions of
a network well and its pace badly. The estimate is as wide as that: enough to rank networks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hybridlat.estimate.compose.target_composition import composition_of
from hybridlat.estimate.lookup.asked_target import recorded
from hybridlat.estimate.lookup.models import model_folders, read_model, read_target, readable
from hybridlat.estimate.lookup.target_data import TargetData, per_state
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.estimate.partition import Partition
from hybridlat.estimate.predict.source import (
    CellLatency,
    CellSource,
    NetworkCells,
    NetworkLaw,
    Origin,
    stated,
)
from hybridlat.model.cell_model import CellModel
from hybridlat.schema.target import Target
from hybridlat.store import Store

VERSION_SPREAD = {"torch": 0.15, "torch-compile": 0.15}
OTHER_VERSION_SPREAD = 0.3
"""Root mean square of ln(ratio) of two versions: PyTorch 0.04 to 0.2, TensorRT 0.28 to 0.32 from
one to the next and 0.6 over both (its grouped convolutions; whole networks on RTX 3090, 4090 and
V100: experiments/25_versions_apart.py, 2026-11-22)."""
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
    """Another version of a target's engine, and what is known there.

    Where a ``rival`` is surer of the network, this one leaves the cells to it. ``untrusted`` takes
    the model's word far from its training as well.
    """

    data: TargetData
    rival: CellSource | None = None
    untrusted: bool = False

    @property
    def target(self) -> Target:
        """Where the cells are known."""
        return self.data.target

    @property
    def spread(self) -> float:
        """Standard error of ln(latency here / latency there), which all cells share."""
        return VERSION_SPREAD.get(self.target.engine, OTHER_VERSION_SPREAD)

    @property
    def origin(self) -> Origin:
        text = f"No data for this version, taken from {self.target}."
        return Origin("other-version", text)

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        """See ``CellSource``: the records there, and for the rest the model there."""
        law = None if self.rival is None else self.rival.law(cells)
        if law is not None and self.spread >= law.spread_share:
            return [None] * len(positions)
        where = f"{self.target}: another version of the engine"
        records = self.data.known([cells.signatures[i] for i in positions])
        there: dict[int, CellLatency] = {}
        for i in positions:
            stats = records.get(cells.signatures[i])
            if stats is not None and stats.latency_us is not None:
                reason = f"measured as {where}"
                there[i] = CellLatency(stats.latency_us, stats.spread_share, reason)
        rest = [i for i in positions if i not in there]
        model = self.data.model if rest else None
        if model is not None:
            for i, guess in zip(rest, model.predict([cells.texts[i] for i in rest]), strict=True):
                if guess.latency_us is not None and (guess.trusted or self.untrusted):
                    doubt = "" if guess.trusted else f", {guess.reason}"
                    reason = f"predicted by the model of {where}{doubt}"
                    there[i] = replace(stated(guess, model.confidence), reason=reason)
        here = {
            i: replace(cell, spread_share=math.hypot(self.spread, cell.spread_share))
            for i, cell in there.items()
        }
        return [here.get(i) for i in positions]

    def law(self, cells: NetworkCells) -> NetworkLaw | None:
        """See ``CellSource``: the rival's, else what a run costs there beside its cells."""
        if self.rival is not None:
            return self.rival.law(cells)
        return NetworkLaw(
            [0.0] * len(cells.signatures), composition_of(self.data).overhead_us, self.spread
        )

    def whole(self, signature: str) -> WholeLatency | None:
        """A network as it was measured there: evidence here."""
        latency = self.data.whole(signature)
        if latency is None:
            return None
        noise = math.hypot(latency.noise_share, self.spread)
        basis = f"{latency.basis}, {self.target}"
        return replace(latency, noise_share=noise, is_exact=False, basis=basis)


@per_state
def relatives_of(data: TargetData) -> tuple[Target, ...]:
    """Other versions and precisions of a target's engine on its device, the nearest first.

    Those that the store has records of, and those that have a model or a shipped pack. Precisions
    that share their cells anyway (see `registry.same_cell_targets`) are none.
    """
    here = data.target
    same = (here.device, here.engine, here.threads)
    others = [
        other
        for other in sorted(recorded(data.store) - {here, *data.related})
        if (other.device, other.engine, other.threads) == same
    ]
    return tuple(
        sorted(others, key=lambda o: (o.precision != here.precision, o.version != here.version))
    )


def versions_of(data: TargetData) -> list[OtherVersion]:
    """The relatives of a target at its own precision: those that know its cells."""
    precision = data.target.precision
    return [
        OtherVersion(data.neighbour(other))
        for other in relatives_of(data)
        if other.precision == precision
    ]


def whole_network(data: TargetData, partition: Partition) -> WholeLatency | None:
    """What is recorded of a network as a whole, here or on another version; None without any.

    The network is not signed where no record can be of it.
    """
    own = data.whole(partition.whole) if data.may_be_measured(partition) else None
    if own is not None:
        return own
    latencies = (version.whole(partition.whole) for version in versions_of(data))
    return next((one for one in latencies if one is not None), None)


@dataclass(frozen=True, eq=False)
class OtherCpu(CellSource):
    """``model`` of ``target``, for another machine that runs the engine with ``threads``.

    ``pace`` are mean and spread of ln(latency here / latency there).
    """

    target: Target
    model: CellModel
    threads: int
    pace: tuple[float, float] = PACE

    @property
    def origin(self) -> Origin:
        text = f"Learned from another CPU, {self.target.device}: how the two compare is a guess."
        return Origin("other-device", text)

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
        return cells.law_of(self, partial(self._network, cells))

    def _network(self, cells: NetworkCells) -> NetworkLaw:
        factor = math.exp(self.pace[0])
        latencies_us = [
            math.nan if p.latency_us is None else p.latency_us * factor
            for p in self.model.predict(cells.texts)
        ]
        threads = math.log(self.threads / (self.target.threads or 1))
        return NetworkLaw(latencies_us, 0.0, math.hypot(self.pace[1], NETWORK_SPREAD, threads))

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
    read = [(readable(read_target, folder), folder) for folder in model_folders(None)]
    others = [
        (other, folder)
        for other, folder in read
        if other is not None
        and other.device != target.device
        and (other.engine, other.precision) == (target.engine, target.precision)
    ]
    for other, folder in sorted(others, key=lambda pair: pair[0].threads != target.threads):
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
