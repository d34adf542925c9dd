"""How the latencies of two networks compare: their ratio, and how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from hybridlat.schema.estimate import Estimate

_LEAST_SD = 0.002  # of a ratio's logarithm: no two sessions are nearer


@dataclass(frozen=True)
class Ratio:
    """A network's latency in that of the first: the ratio, its interval, and P(it is faster)."""

    ratio: float
    interval: tuple[float, float]
    probability_faster: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval says which of the two is faster."""
        return not self.interval[0] <= 1 <= self.interval[1]


def ratio_to(first: Estimate, other: Estimate, correlation: float | None = None) -> Ratio | None:
    """How ``other`` compares with ``first``; None where either lacks a cell, and so an upper end.

    The logarithm of a ratio has the variance a² + b² - 2ρab of those of two latencies. Without the
    ``correlation`` ρ of their errors, it is that of cells that both hold, and of the machine's
    pace, which is the same for all that runs there.
    """
    pair = first, other
    if not all(each.latency_us and each.finite_high_us is not None for each in pair):
        return None
    if first is other:
        return Ratio(1.0, (1.0, 1.0), 0.5)
    ratio = (other.latency_us or 0.0) / (first.latency_us or 1.0)
    z = NormalDist().inv_cdf((1 + first.confidence) / 2)
    a, b = (_log_sd(each.interval_us, z) for each in pair)
    uses = [{(c.signature, c.uses) for c in each.cells} for each in pair]
    common = 1.0 if first.target == other.target and uses[0] == uses[1] else correlation
    if common is None:
        common = _covariance(first, other, z) / max(a * b, 1e-12)
    sd = math.sqrt(max(a**2 + b**2 - 2 * min(common, 1.0) * a * b, _LEAST_SD**2))
    reach = math.exp(z * sd)
    return Ratio(ratio, (ratio / reach, reach * ratio), NormalDist(0, sd).cdf(-math.log(ratio)))


def _log_sd(interval_us: tuple[float, float] | None, z: float) -> float:
    low, high = interval_us or (1.0, 1.0)
    return math.log(high / low) / 2 / z if 0 < low < high < math.inf else 0.0


def _covariance(first: Estimate, other: Estimate, z: float) -> float:
    """Of two estimates' errors, as logarithms."""
    if first.target != other.target:
        return 0.0
    shares = {cell.signature: cell.share for cell in other.cells}
    cells = sum(
        cell.share * shares.get(cell.signature, 0.0) * _log_sd(cell.interval_us, z) ** 2
        for cell in first.cells
    )
    return cells + math.log1p(first.pace_share) * math.log1p(other.pace_share) / z**2
