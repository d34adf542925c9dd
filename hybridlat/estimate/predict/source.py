"""The protocol of all that knows latencies of cells, and the values that go in and out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from hybridlat.estimate.compose.composition import Composition, normal_quantile
from hybridlat.estimate.compose.posterior import Correlation
from hybridlat.graph.network import Network
from hybridlat.schema.estimate import CellPrediction, LatencySource

SHARED = 0.95
"""Part of a cell's error variance that it shares with all other cells of its network, where what
predicts it is no model of its target."""
UNKNOWN_SPREAD = 0.5
"""Standard error of a model's prediction that comes without an interval."""


@dataclass(frozen=True, slots=True)
class CellLatency:
    """The latency of one use of a cell, in µs; None where it was tried and cannot be measured.

    ``spread_share`` is the standard error of ln(latency). ``reason`` says what it rests on, where
    that is no record and not the target's own model; ``trusted`` is False far from all training.
    """

    latency_us: float | None
    spread_share: float
    reason: str = ""
    trusted: bool = True
    source: LatencySource = "predicted"


@dataclass(frozen=True, eq=False)
class NetworkCells:
    """The distinct cells of one network: their signatures, and how often it holds each.

    Texts of signatures, and the bytes of the network's inputs and outputs, are read when a source
    needs them. ``confidence`` is that of the estimate.
    """

    signatures: tuple[str, ...]
    counts: tuple[int, ...]
    confidence: float
    read_texts: Callable[[], Mapping[str, str]]
    read_copied_bytes: Callable[[], float]
    _laws: dict[int, NetworkLaw] = field(default_factory=dict)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The text of each signature."""
        texts = self.read_texts()
        return tuple([texts[signature] for signature in self.signatures])

    @cached_property
    def copied_bytes(self) -> float:
        """Bytes of the network's inputs and outputs."""
        return self.read_copied_bytes()

    def texts_at(self, positions: Sequence[int]) -> list[str]:
        """The texts of the cells at these positions."""
        return [self.texts[i] for i in positions]

    def law_of(self, source: object, work_out: Callable[[], NetworkLaw]) -> NetworkLaw:
        """What a source says of the network as a whole, worked out once."""
        if id(source) not in self._laws:
            self._laws[id(source)] = work_out()
        return self._laws[id(source)]


@dataclass(frozen=True)
class NetworkLaw:
    """What a source that is no model of the target says of a network as a whole.

    ``cells_us`` are the latencies of all of its cells, NaN where unknown; ``beside_us`` is what a
    run costs beside them,
    ``spread_share`` the standard error of ln(latency of the network).
    """

    cells_us: Sequence[float]
    beside_us: float
    spread_share: float

    def composition(self, cells: NetworkCells, elsewhere: Mapping[int, CellLatency]) -> Composition:
        """Constants and width by which the cells make the network.

        ``elsewhere`` are the cells that other targets and the data sheet answered for. The width
        is theirs, by their shares of the time, and the law's own for the rest.
        """
        total = widths = 0.0
        for i, (us, count) in enumerate(zip(self.cells_us, cells.counts, strict=True)):
            spread, cell = self.spread_share, elsewhere.get(i)
            if cell is not None and cell.latency_us is not None:
                us, spread = cell.latency_us, cell.spread_share
            if math.isnan(us):
                continue
            total += count * us
            widths += count * us * spread
        spread = widths / total if total > 0 else self.spread_share
        return Composition(
            overhead_us=self.beside_us,
            confidence=cells.confidence,
            residual_share=spread * (1 - SHARED) ** 0.5,
            correlation=Correlation(network=SHARED, kind=0.0, near=0.0),
        )


def copied_bytes(network: Network) -> float:
    """Bytes of a network's inputs and outputs."""
    outside = (*network.inputs, *network.outputs)
    return float(sum(network.type_of(name).bytes for name in outside))


class CellSource(Protocol):
    """Something that knows latencies of cells."""

    def predict(
        self, cells: NetworkCells, positions: Sequence[int]
    ) -> Sequence[CellLatency | None]:
        """The latency of each cell at ``positions``; None where the source has no answer."""

    def law(self, cells: NetworkCells) -> NetworkLaw | None:
        """What it says of the network as a whole; None for what knows single cells only."""


def stated(prediction: CellPrediction, confidence: float) -> CellLatency:
    """A model's prediction, whose interval is of that ``confidence``, as a latency with spread."""
    spread = UNKNOWN_SPREAD
    if prediction.interval_us is not None and prediction.interval_us[0] > 0:
        low_us, high_us = prediction.interval_us
        spread = max(math.log(high_us / low_us) / 2 / normal_quantile(confidence), 1e-3)
    return CellLatency(prediction.latency_us, spread, prediction.reason, prediction.trusted)
