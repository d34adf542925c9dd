"""What is known of one cell: a row of a report, and what a model says of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

LatencySource = Literal["measured", "predicted", "unsupported"]


@dataclass(frozen=True, slots=True)
class CellEstimate:
    """One row of a report: all uses of one cell in the network.

    Attributes:
        signature: 32 hex digits of what the cell computes, without names and weights.
        ops: its kernels in order, such as ``Conv+Relu``.
        nodes: every operator of the file in any of the uses.
        uses: how often the network runs it.
        latency_us: of one use, in microseconds; None where it is unsupported.
        interval_us: the ends of the interval of one use, in microseconds.
        share: the part of the sum of cells that all uses take, 0..1.
        source: ``measured``, ``predicted`` or ``unsupported``.
        reason: what a prediction rests on, if not on the target's own model, or why it is doubtful.
        trusted: False where the prediction is far from all that its model was trained on.
    """

    signature: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...] = field(repr=False)
    uses: int
    latency_us: float | None
    interval_us: tuple[float, float] | None
    share: float
    source: LatencySource
    reason: str = ""
    trusted: bool = True

    @property
    def total_us(self) -> float | None:
        """The time of all uses in microseconds; None where there is no latency."""
        return None if self.latency_us is None else self.uses * self.latency_us


@dataclass(frozen=True, slots=True)
class CellPrediction:
    """What the model says of one cell it has not seen measured."""

    latency_us: float | None
    interval_us: tuple[float, float] | None
    trusted: bool
    reason: str = ""


def half_width_share(
    latency_us: float | None, interval_us: tuple[float, float] | None
) -> float | None:
    """The farther end of the interval from the latency, over the latency (0..)."""
    if not latency_us or interval_us is None or math.isinf(interval_us[1]):
        return None
    low_us, high_us = interval_us
    return max(high_us - latency_us, latency_us - low_us) / latency_us
