"""What a prediction says: the latency of a network, how sure it is, and where the time goes."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from hybridlat.schema.structure import Structure

ESTIMATE_FORMAT = 1
LatencySource = Literal["measured", "predicted", "unsupported"]
NetworkSource = Literal["measured", "composed"]
Grade = Literal["measured", "good", "rough", "order of magnitude"]
WarningCode = Literal[
    "missing-cells", "busy", "contradicted", "precision", "file", "model-unreadable",
    "batch-outside", "unlike-known", "device-unmeasured", "other-version", "other-device",
    "beyond-physics", "uncalibrated", "pace", "as-narrow-as-can-be", "network-hint",
    "no-data-sheet", "cannot-measure", "not-measured",
]  # fmt: skip
"""What a warning is about; docs/reference/troubleshooting.md says what to do about each."""
_GOOD_SHARE, _ROUGH_FACTOR = 0.2, 2.0


@dataclass(frozen=True, slots=True)
class EstimateWarning:
    """What a reader of an estimate must know besides its numbers.

    ``code`` is for programs, ``text`` one sentence for people. ``fix`` is a command ready to copy
    that would narrow the interval or end the doubt; empty where there is none.
    """

    code: WarningCode
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class CellEstimate:
    """One row of a report: all uses of one cell in the network.

    ``latency_us`` and ``interval_us`` are of one use, ``uses`` is how often the network holds the
    cell, ``share`` the part of the sum of cells that all uses take (0..1). ``nodes`` names every
    operator of the file in any of the uses. An unsupported cell has no latency.
    ``trusted`` is False where the prediction is far from all that its model was trained on;
    ``reason`` says so then, and else what a prediction rests on if not on the target's own model.
    """

    signature: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    uses: int
    latency_us: float | None
    interval_us: tuple[float, float] | None
    share: float
    source: LatencySource
    reason: str = ""
    trusted: bool = True

    @property
    def total_us(self) -> float | None:
        """The time of all uses; None where there is no latency."""
        return None if self.latency_us is None else self.uses * self.latency_us

    @property
    def count(self) -> int:
        """The old name of ``uses``."""
        warnings.warn("CellEstimate.count is now uses", DeprecationWarning, stacklevel=2)
        return self.uses


@dataclass(frozen=True)
class Estimate:
    """The answer for one network on one target; see the JSON of ``predict --json``.

    ``latency_us`` is None only when no cell of the network has a latency. ``interval_us`` holds
    the true latency with probability ``confidence``; it has no end (infinity) above where a cell
    has no latency. ``tolerance`` is what the gate works towards, ``tolerance_given`` says whether
    the user asked for it. ``measured_share`` is the part of the time that comes from measured
    cells; ``measured_now`` counts cells measured to answer this call.
    ``removed`` names the operators of the file that the engine does not run, and the last
    ``constants`` of them only make constants; every other one is in exactly one cell.
    ``to_measure`` are the signatures that the gate would measure next, to come within
    ``tolerance``. ``structure`` says what the cells are made of and where they stand, where that
    was asked for.

    ``source`` is ``measured`` where the latency is that of the network itself, measured whole, and
    ``reason`` says when; then all of the time counts as measured, and the cells are what is
    believed of them given that sum. It is ``composed`` where the latency is made of the cells.
    ``network_measured_now`` says that the whole network was measured to answer this call.
    ``pace_share`` is how far the interval would reach if nothing but the machine's own pace were
    unsure: what all latencies on it share, so that it tells no two of them apart. ``contradicted``
    says that the network and its cells were both measured and cannot both be right, ``busy`` that
    the machine had other work while it measured what the answer rests on.
    """

    network: str
    target: str
    batch: int
    latency_us: float | None
    interval_us: tuple[float, float] | None
    confidence: float
    within_tolerance: bool
    sum_of_cells_us: float
    measured_share: float
    measured_now: int
    elapsed_s: float
    cells: tuple[CellEstimate, ...]
    removed: tuple[str, ...] = ()
    constants: int = 0
    to_measure: tuple[str, ...] = ()
    tolerance: float | None = None
    tolerance_given: bool = False
    warnings: tuple[EstimateWarning, ...] = ()
    structure: Structure | None = field(default=None, compare=False, repr=False)
    source: NetworkSource = "composed"
    reason: str = ""
    network_measured_now: bool = False
    pace_share: float = 0.0
    contradicted: bool = False
    busy: bool = False

    @property
    def supported(self) -> bool:
        """True when every cell has a latency."""
        return all(cell.source != "unsupported" for cell in self.cells)

    @property
    def trusted(self) -> bool:
        """False where a cell has no latency, or measurements are of no use, or a tolerance fails.

        Measurements are of no use where they contradict each other or were made by a busy machine.
        A tolerance counts where the user gave one: the interval must keep it, and no cell may be
        unlike all that its model was trained on. A network measured whole needs no cells.
        """
        if self.busy or self.contradicted or self.latency_us is None:
            return False
        complete = self.supported or self.source == "measured"
        return complete and (self.within_tolerance or not self.tolerance_given)

    @property
    def grade(self) -> Grade | None:
        """How much the estimate is worth; None where a cell has no latency.

        ``measured``: the network was, or all of its cells. Else by the interval: ``good`` within
        20 % of the latency, ``rough`` within a factor of two, beyond it an order of magnitude.
        """
        if self.source == "measured":
            return "measured"
        if not self.supported or not self.latency_us or self.interval_us is None:
            return None
        if all(cell.source == "measured" for cell in self.cells):
            return "measured"
        low, high = (end / self.latency_us for end in self.interval_us)
        if low >= 1 - _GOOD_SHARE and high <= 1 + _GOOD_SHARE:
            return "good"
        rough = low >= 1 / _ROUGH_FACTOR and high <= _ROUGH_FACTOR
        return "rough" if rough else "order of magnitude"

    @property
    def low_us(self) -> float | None:
        """The lower end of the interval."""
        return None if self.interval_us is None else self.interval_us[0]

    @property
    def high_us(self) -> float | None:
        """The upper end of the interval, infinite where a cell has no latency."""
        return None if self.interval_us is None else self.interval_us[1]

    @property
    def throughput_per_s(self) -> float | None:
        """Items a second, one batch after another; None where there is no latency."""
        return self.batch * 1e6 / self.latency_us if self.latency_us else None

    @property
    def throughput_interval_per_s(self) -> tuple[float, float] | None:
        """What ``interval_us`` says of the items a second."""
        if self.interval_us is None or not self.interval_us[0] > 0:
            return None
        low_us, high_us = self.interval_us
        return self.batch * 1e6 / high_us, self.batch * 1e6 / low_us

    def to_json(self) -> dict[str, Any]:
        """The fixed JSON object of ``predict --json`` (format 1)."""
        body: dict[str, Any] = {"format": ESTIMATE_FORMAT}
        body |= {f.name: getattr(self, f.name) for f in fields(self) if f.name != "structure"}
        body["interval_us"] = (
            None if self.interval_us is None else [self.low_us, self.finite_high_us]
        )
        body["warnings"] = [warning.text for warning in self.warnings]
        body["cells"] = [self._cell_json(position) for position in range(len(self.cells))]
        body["throughput_per_s"] = self.throughput_per_s
        body["throughput_interval_per_s"] = self.throughput_interval_per_s
        body |= {"trusted": self.trusted, "grade": self.grade, "supported": self.supported}
        body |= {"low_us": self.low_us, "high_us": self.finite_high_us}
        body["remarks"] = [asdict(warning) for warning in self.warnings]
        return body

    @property
    def finite_high_us(self) -> float | None:
        """The upper end for what knows no infinity: None there."""
        return self.high_us if self.high_us is not None and math.isfinite(self.high_us) else None

    def _cell_json(self, position: int) -> dict[str, Any]:
        cell = self.cells[position]
        body = {{"uses": "count"}.get(key, key): value for key, value in asdict(cell).items()}
        if not cell.reason:
            del body["reason"]
        if self.structure is not None:
            made_of = self.structure.cells[position]
            limit = made_of.limit(cell.latency_us)
            body |= {
                "paths": self.structure.paths(position),
                "flop": made_of.flop,
                "bytes": made_of.bytes,
                "limit": limit[0] if limit else None,
                "limit_share": limit[1] if limit else None,
            }
        return body


@dataclass(frozen=True, slots=True)
class CellPrediction:
    """What the model says of one cell it has not seen measured.

    ``interval_us`` is at the model's stated confidence. ``trusted`` is False outside what the model
    was trained on, and ``reason`` then says why (``outside the training range: K=4608`` …);
    ``latency_us`` None means the model cannot say anything (an operator it has never seen).
    """

    latency_us: float | None
    interval_us: tuple[float, float] | None
    trusted: bool
    reason: str = ""
