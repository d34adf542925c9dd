"""Cells of which only the sum was measured: runs that were one cell before they were cut on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

RUN_NOISE_SHARE = 0.035
"""How far cells that were measured one by one sum up to what they take behind each other."""


@dataclass(frozen=True, slots=True)
class CellSum:
    """What ``uses`` of each cell take together; ``noise_share``: standard error of ln(sum)."""

    uses: tuple[int, ...]
    latency_us: float
    noise_share: float


def sums_of_runs(
    runs: Iterable[tuple[str, Sequence[str]]],
    measured: Mapping[str, tuple[float, float]],
    signatures: Sequence[str],
) -> list[CellSum]:
    """The sums that are ``measured``: latency in µs and relative noise, by a run's signature.

    ``runs`` have a signature and the cells that they are made of; ``signatures`` are those of all
    distinct cells of the network.
    """
    sums = []
    for run, cells in runs:
        if run in measured:
            latency_us, noise = measured[run]
            uses = Counter(cells)
            counts = tuple([uses[signature] for signature in signatures])
            sums.append(CellSum(counts, latency_us, math.hypot(noise, RUN_NOISE_SHARE)))
    return sums
