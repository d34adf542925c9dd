"""What sources of cells' latencies have in common, the last of them, and what the gate takes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hybridlat.estimate.compose.composition import CALIBRATED_AT, Composition
from hybridlat.estimate.compose.posterior import CellPrior, convolves
from hybridlat.graph.operators import KINDS
from hybridlat.model.applicability_domain import PLAIN_ERROR, error_without_training
from hybridlat.model.conformal import USUAL, normal_quantile
from hybridlat.model.geometry import Geometry, View, geometry, start_us
from hybridlat.schema.structure import CellPrediction, LatencySource, OriginCode
from hybridlat.schema.target import Device

SHARED_ELSEWHERE = 0.95
"""Part of a cell's error variance that it shares with all other cells of its network, where what
predicts it is no model of its target."""
UNKNOWN_SPREAD = 0.5
"""Standard error of a model's prediction that comes without an interval."""
ROOFLINE_ERROR = (-1.6, 0.7)
"""Between these lie nine of ten ln(measured / roofline with launches) of the 10,713 cells and
random kernels of the shipped CPU pack."""
ROOFLINE_SPREAD = (ROOFLINE_ERROR[1] - ROOFLINE_ERROR[0]) / 2 / normal_quantile(0.9)

_FLOP_PER_BYTE = 16.0  # balance of a present machine; only the mix within a cell depends on it


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


@dataclass(frozen=True, slots=True)
class Origin:
    """What predictions rest on, for the reader; ``text`` is a sentence.

    ``batches`` are the least and the largest among the measurements behind it, ``typical_share``
    is how far off the farther end of an interval is for networks like those, where that is known.
    """

    code: OriginCode
    text: str
    batches: tuple[int, int] | None = None
    typical_share: float | None = None


@dataclass(frozen=True, eq=False)
class NetworkCells:
    """The distinct cells of one network; ``read_…`` are called where a source needs them."""

    signatures: tuple[str, ...]
    texts: tuple[str, ...]
    counts: tuple[int, ...]
    read_copied_bytes: Callable[[], float]
    read_hash: Callable[[], str] = str
    _laws: "dict[object, NetworkLaw]" = field(default_factory=dict)

    def law_of(
        self, source: object, work_out: "Callable[[NetworkCells], NetworkLaw]"
    ) -> "NetworkLaw":
        """What a source says of the network as a whole, worked out once."""
        if source not in self._laws:
            self._laws[source] = work_out(self)
        return self._laws[source]


@dataclass(frozen=True)
class NetworkLaw:
    """What a source that is no model of the target says of a network as a whole.

    ``cells_us`` are the latencies of all of its cells, NaN where unknown; ``beside_us`` is what a
    run costs beside them, ``spread_share`` the standard error of ln(latency of the network),
    ``dispatch_us`` what its host needs at least to enqueue it. Some know more: the constants that
    it is ``composed`` by, the ``covariance`` of the cells' errors, what is ``known`` of each;
    ``knows_whole``: with the network as it was measured elsewhere. ``reaches`` are half widths of
    intervals of ln(latency) at ``CALIBRATED_AT``.
    """

    cells_us: Sequence[float]
    beside_us: float
    spread_share: float
    composed: Composition | None = None
    covariance: NDArray[np.float64] | None = None
    known: Sequence[CellLatency | None] = ()
    knows_whole: bool = False
    reaches: tuple[float, ...] = ()
    dispatch_us: float = 0.0

    def composition(self, cells: NetworkCells, elsewhere: "Answers") -> Composition:
        """Constants and width by which the cells make the network.

        ``elsewhere`` are the cells that other targets and the data sheet answered for. The width
        is theirs, by their shares of the time, and the law's own for the rest.
        """
        if self.composed is not None:
            return self.composed
        each_us, spreads = np.array(self.cells_us), np.full(len(self.cells_us), self.spread_share)
        for i, cell in elsewhere.items():
            if cell.latency_us is not None:
                each_us[i], spreads[i] = cell.latency_us, cell.spread_share
        uses_us = np.nan_to_num(each_us * cells.counts)
        total_us = max(float(uses_us.sum()) + self.beside_us, 1e-9)
        whole = (float(uses_us @ spreads) + self.beside_us * self.spread_share) / total_us
        # What the cells' errors come to in the posterior; the rest of the width is none of theirs.
        parts = uses_us / total_us * spreads
        own_share = 1 - SHARED_ELSEWHERE
        cells_variance = SHARED_ELSEWHERE * parts.sum() ** 2 + own_share * float(parts @ parts)
        return Composition(
            overhead_us=self.beside_us,
            residual_share=math.sqrt(max(whole**2 - cells_variance, 0.0)),
            shared_share=SHARED_ELSEWHERE,
            quantiles=((0.0, normal_quantile(USUAL)),),
            levels=tuple(zip(CALIBRATED_AT, self.reaches, strict=bool(self.reaches))),
        )


Answers = Mapping[int, CellLatency]
"""Latencies of cells by their positions in a network."""


class CellSource:
    """Something that knows latencies of cells; ``learns`` more of them from what is measured."""

    learns = False

    @property
    def origin(self) -> Origin | None:
        """Where they come from; None for the target's own records and model."""
        return None

    def predict(
        self, cells: NetworkCells, positions: Sequence[int]
    ) -> Sequence[CellLatency | None]:
        """The latency of each cell at ``positions``; None where the source has no answer."""
        raise NotImplementedError

    def law(self, cells: NetworkCells) -> NetworkLaw | None:
        """What it says of the network as a whole; None for what knows single cells only."""
        return None


def stated(prediction: CellPrediction, confidence: float) -> CellLatency:
    """A model's prediction, whose interval is of that ``confidence``, as a latency with spread."""
    spread = UNKNOWN_SPREAD
    if prediction.interval_us is not None and prediction.interval_us[0] > 0:
        low_us, high_us = prediction.interval_us
        spread = max(math.log(high_us / low_us) / 2 / normal_quantile(confidence), 1e-3)
    return CellLatency(prediction.latency_us, spread, prediction.reason, prediction.trusted)


def roofline_us(
    texts: Sequence[str], device: Device, precision: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What the device needs for each cell's kernels and their launches, in µs; its standard error.

    On a CPU some kinds of kernel are far slower than any roofline, how much hardly anyone knows.
    """
    cells = geometry(texts)
    kernels_us = View(cells.values, device, precision).roofline_us + start_us(device)
    centre, half = error_without_training(cells)
    slow = (device.kind == "cpu") & (centre > PLAIN_ERROR[0])
    kernels_us *= np.exp(np.where(slow, centre, 0.0))
    errors = np.where(slow, half / normal_quantile(0.9), ROOFLINE_SPREAD) * kernels_us
    each_us = np.asarray(np.bincount(cells.cell, kernels_us, cells.cells), np.float64)
    return each_us, np.bincount(cells.cell, errors, cells.cells) / np.maximum(each_us, 1e-9)


@dataclass(frozen=True, eq=False)
class Roofline(CellSource):
    """The source that answers where nothing like the cell was measured."""

    device: Device
    precision: str
    origin = Origin("data-sheet-only", "Guessed from the data sheet: nothing like it was measured.")

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        reason = "guessed from the device's peak, bandwidth and launch time: no similar record"
        texts = [cells.texts[i] for i in positions]
        each = roofline_us(texts, self.device, self.precision)
        return [CellLatency(us, s, reason) for us, s in zip(*map(list, each), strict=True)]


def measuring_cost_s(latency_us: float | None, is_network: bool = False) -> float:
    """Device seconds of building a cell or a network, and of six visits or three runs in each."""
    build_s, visit_s = (0.5, 0.2) if is_network else (0.1, 0.025)
    return build_s + 6 * max(visit_s, 3 * ((latency_us or 0.0) * 1e-6))


def work_bytes(cells: Geometry) -> NDArray[np.float64]:
    """Each kernel's work, the larger of its bytes moved and its FLOP, counted as 16 to a byte."""
    moved = sum(cells.column(name) for name in ("in_bytes", "weight_bytes", "out_bytes"))
    return np.maximum(np.maximum(cells.column("flop") / _FLOP_PER_BYTE, moved), 1.0)


@lru_cache(maxsize=65_536)
def kinds_of(text: str) -> tuple[tuple[str, float], ...]:
    """Shares of a cell's work by kind of kernel."""
    cells = geometry([text])
    names = ("op", "kind", "c_in", "k_h", "k_w", "groups")
    op, kind, c_in, k_h, k_w, groups = map(cells.column, names)
    works = work_bytes(cells)
    shares = works / math.fsum(works)
    kinds: dict[str, float] = {}
    for i, share in enumerate(shares.tolist()):
        name = cells.ops[int(op[i])]
        if kind[i] == KINDS["conv"]:
            if groups[i] > 1:
                name += " depthwise" if groups[i] == c_in[i] else " grouped"
            else:
                name += " 1x1" if k_h[i] * k_w[i] == 1 else " kxk"
        kinds[name] = kinds.get(name, 0.0) + share
    return tuple(sorted(kinds.items()))


@lru_cache(maxsize=16_384)
def prior_of(signature: str, text: str, count: int, latency: CellLatency) -> CellPrior:
    """A cell with this latency, as the gate works on it; the text of a predicted one matters."""
    us, source = latency.latency_us, latency.source
    stated = CellPrior(
        signature=signature,
        count=count,
        latency_us=us,
        spread_share=latency.spread_share,
        trusted=latency.trusted and us is not None,
        source=source,
        convolves=convolves(text),
    )
    if us is None or source == "measured":
        return stated
    cost_s, kinds = measuring_cost_s(us), kinds_of(text)
    return replace(stated, cost_s=cost_s, kinds=kinds, reason=latency.reason)


def priors_of(cells: NetworkCells, answers: Answers) -> list[CellPrior]:
    """The cells of a network with the latencies at their positions, unknown without one."""
    unknown = CellLatency(None, 1.0)
    each = zip(cells.signatures, cells.texts, cells.counts, strict=True)
    return [prior_of(*cell, answers.get(i, unknown)) for i, cell in enumerate(each)]
