"""The latency of every block of a search space at every position: what look-up tables hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

TABLE_FORMAT = 1
NONE = "none"
"""The block that stands for nothing, where a position may be left out."""


@dataclass(frozen=True, slots=True)
class BlockLatency:
    """A block at a position of a search space.

    ``latency_us`` is what it adds to a network, with the layout changes before it; None where one
    of its cells has no latency, and ``reason`` says why. ``interval_us`` is that of the block
    alone: the interval of a sum is narrower than the sum of these. ``key`` is the same for two
    blocks with the same cells. ``networks`` counts the networks looked at that hold it.
    ``trusted`` is False where the interval is wider than the tolerance and not all is measured.
    """

    position: str
    block: str
    key: str
    latency_us: float | None
    interval_us: tuple[float, float] | None
    measured_share: float
    trusted: bool
    networks: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SumCheck:
    """Networks of the space, drawn at random: the sum of their blocks beside their own cells.

    Shares are of the network's own latency, 0..1.
    """

    networks: int
    mean_share: float
    worst_share: float


@dataclass(frozen=True)
class BlockTable:
    """An additive table: a network takes ``constant_us`` and the rows of its blocks, summed.

    ``constant_us`` is what a run costs besides its cells, ``networks`` how many were looked at.
    ``check`` compares sums with networks of given blocks; None for blocks of whole networks.
    """

    target: str
    batch: int
    confidence: float
    constant_us: float
    rows: tuple[BlockLatency, ...]
    networks: int
    check: SumCheck | None = None
    warnings: tuple[str, ...] = ()

    @property
    def trusted(self) -> bool:
        """Whether every row is."""
        return all(row.trusted for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``table --json`` (format 1)."""
        return {"format": TABLE_FORMAT, **asdict(self)}
