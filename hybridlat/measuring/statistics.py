"""From raw samples to one latency: what a visit says, what visits say together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from hybridlat.schema.measurement import Visit

# A visit's level is this quantile of its kept samples. Disturbance only ever adds time, and on a
# shared machine it comes and goes within a visit, so the lower part is what repeats.
LEVEL_QUANTILE = 0.2
NULL_CHAINS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Result:
    """``latency_us`` with its relative standard error ``spread_share``."""

    latency_us: float
    spread_share: float


def level_us(samples_us: Sequence[float], quantile: float = LEVEL_QUANTILE) -> float:
    """The quantile of the samples (linear between neighbours); ValueError without samples."""
    if not samples_us:
        raise ValueError("a visit without samples has no level")
    ordered = sorted(samples_us)
    place = quantile * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def combine(visits: Sequence[Visit], overhead_us: float = 0.0) -> Result:
    """The median over visits of their levels, drift divided out, less the engine's entry cost.

    The spread is the standard error of a median (1.2533 s/sqrt(n)) over the visits; visits of one
    process share what that process was given (addresses, cores), so n counts processes when those
    differ more between than within. A result is never below a hundredth of its level, however
    large the overhead. ValueError without visits.
    """
    levels = [level_us(v.samples_us) / v.drift for v in visits if v.samples_us]
    if not levels:
        raise ValueError("no visit has samples")
    middle = statistics.median(levels)
    latency = max(middle - overhead_us, 0.01 * middle)
    return Result(latency, _standard_error(visits) / latency)


def _standard_error(visits: Sequence[Visit]) -> float:
    by_process: dict[int, list[float]] = {}
    for visit in visits:
        if visit.samples_us:
            by_process.setdefault(visit.process, []).append(
                level_us(visit.samples_us) / visit.drift
            )
    levels = [level for group in by_process.values() for level in group]
    if len(levels) < 2:
        return 0.05 * levels[0]  # one visit says nothing of its own spread
    within = statistics.stdev(levels) / math.sqrt(len(levels))
    between = 0.0
    if len(by_process) > 1:
        middles = [statistics.median(group) for group in by_process.values()]
        between = statistics.stdev(middles) / math.sqrt(len(middles))
    return 1.2533 * max(within, between)


def entry_cost_us(chain_lengths: Sequence[int], levels_us: Sequence[float]) -> float:
    """What entering the engine costs: latency of a chain of no operators, by least squares.

    ``levels_us[i]`` is the latency of a chain of ``chain_lengths[i]`` tiny operators.
    """
    mean_x, mean_y = statistics.fmean(chain_lengths), statistics.fmean(levels_us)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(chain_lengths, levels_us, strict=True))
    below = sum((x - mean_x) ** 2 for x in chain_lengths)
    return max(0.0, mean_y - above / below * mean_x)
