"""A device as the model sees it: how fast it computes, how fast it reads, how wide it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Device:
    """The few numbers of a data sheet (or of a micro-benchmark) that features are made from.

    ``peak_flops`` is FLOP per second by precision (a multiply-add counts two);
    ``bandwidth_bytes_per_s`` that of the main memory; ``units`` the streaming multiprocessors of a
    GPU or the cores of a CPU that one inference may use; ``cache_bytes`` from the nearest cache to
    the last (per unit, shared last); ``source`` names where the numbers come from.
    """

    name: str
    kind: Literal["gpu", "cpu"]
    peak_flops: Mapping[str, float]
    bandwidth_bytes_per_s: float
    units: int
    clock_hz: float
    cache_bytes: tuple[int, ...] = ()
    source: str = ""
    title: str = ""
    extras: Mapping[str, float] = field(default_factory=dict)

    def peak(self, precision: str) -> float:
        """FLOP per second at a precision; FP32's where the sheet has none of its own.

        Automatic mixed precision (``amp``) computes its products in FP16.
        """
        unit = "fp16" if precision == "amp" else precision
        return self.peak_flops.get(unit, self.peak_flops["fp32"])
