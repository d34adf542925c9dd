"""The one analysis of all protocols: from raw samples to a latency and its spread.

A record means the same under every protocol: ``latency_us`` is the median over visits of their
levels, drift divided out and overhead taken off; ``spread_share`` its relative standard error.
"""

from __future__ import annotations

import datetime
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from hybridlat.schema import measurement
from hybridlat.schema.measurement import Measurement, Visit

# A visit's level is this quantile of its kept samples. Disturbance only ever adds time, and on a
# shared machine it comes and goes within a visit, so the lower part is what repeats.
LEVEL_QUANTILE = 0.2
# The reference network is run around every visit of a run; three in ten of these are quick.
USUAL_QUANTILE = 0.3
# A cell that the noise hides still takes some time.
FLOOR_US = 0.05
SINGLE_VISIT_SPREAD = 0.05
_MOST_SPREAD = 10.0
_OF_FLICKER, _FLICKER_DEGREES = 1.15, 2.0
"""A visit errs by so much of its run's flicker, which counts as so many degrees of freedom. By the
moments of ln(variance) of visits in one run of the shipped CPU's records (Smyth, "Linear models and
empirical Bayes methods", 2004): 1.15 and 1.3 for 5,437 cells, 1.16 and 2.0 for 232 networks."""
_LEAST_FLICKER = 0.01  # a few visits that agree do not show a steadier machine


@dataclass(frozen=True, slots=True)
class Result:
    """``latency_us`` with its relative standard error; ``below_noise``: below twice of that."""

    latency_us: float
    spread_share: float
    below_noise: bool = False


def level_us(samples_us: Sequence[float], quantile: float = LEVEL_QUANTILE) -> float:
    """The quantile of one or more samples, linear between the k-th smallest at k/(n + 1).

    Hyndman & Fan, "Sample quantiles in statistical packages", 1996, type 6.
    """
    ordered = sorted(samples_us)
    rank = min(max(quantile * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (rank - low) * (ordered[high] - ordered[low])


def usual_us(references_us: Sequence[float]) -> float:
    """The reference's latency in a run while nothing slows the machine; 1 without references."""
    return level_us(references_us, USUAL_QUANTILE) if references_us else 1.0


def difference(timed_us: Sequence[float], taken_off_us: Sequence[float]) -> tuple[float, ...]:
    """Samples of a cell: those of it and its predecessor, less the level of the predecessor's."""
    level = level_us(taken_off_us)
    return tuple(round(sample - level, 3) for sample in timed_us)


def flicker_share(*processes_us: Sequence[float]) -> float:
    """How much the machine's pace changes from one visit of a process to the next.

    The robust standard deviation of the steps of the references' logarithms, over √2.
    """
    pairs = [pair for of_process in processes_us for pair in itertools.pairwise(of_process)]
    steps = [abs(math.log(after / before)) for before, after in pairs if before > 0 < after]
    return 1.4826 * statistics.median(steps) / math.sqrt(2) if steps else 0.0


def combine(visits: Sequence[Visit], overhead_us: float = 0.0, flicker: float = 0.0) -> Result:
    """The median over visits of their levels, drift divided out, less the dispatch overhead.

    The spread is the standard error of a median over the processes, pooled with how their visits
    differ, these with what ``flicker`` and the samples tell of one visit.
    """
    levels: dict[int, list[float]] = {}  # by process
    for visit in visits:
        level = level_us(visit.samples_us) / visit.drift
        levels.setdefault(visit.process, []).append(level)
    middle_us = statistics.median(itertools.chain(*levels.values()))
    # A difference is small beside the samples that it comes from: these tell how unsure it is.
    several = [(v.samples_us, v.drift) for v in visits if len(v.samples_us) > 1]
    among = [_median_error(len(us)) * float(np.std(us, ddof=1)) / drift for us, drift in several]
    least = SINGLE_VISIT_SPREAD if len(visits) < 2 else _LEAST_FLICKER
    usual_us = max(_OF_FLICKER * flicker, least) * abs(middle_us)
    of_visit_us = _pooled(max(usual_us, statistics.median(among or [0.0])), levels.values())
    of_median_us = of_visit_us * _median_error(len(visits) / len(levels))
    of_process_us = _pooled(of_median_us, [[statistics.median(each) for each in levels.values()]])
    error_us = of_process_us * _median_error(len(levels))
    latency_us = max(middle_us - overhead_us, FLOOR_US)
    spread = min(_MOST_SPREAD, error_us / latency_us)
    return Result(latency_us, spread, below_noise=middle_us - overhead_us <= 2 * error_us)


def _pooled(usual: float, groups: Iterable[Sequence[float]]) -> float:
    """Standard deviation within groups, pooled with what is ``usual``.

    s² = (ν₀·usual² + Σ(x − mean)²)/(ν₀ + n − groups): the conjugate analysis of a normal variance
    (Gelman et al., "Bayesian Data Analysis", 2013, section 3.3).
    """
    each = [np.array(group) for group in groups]
    squares = _FLICKER_DEGREES * usual**2 + sum(float(((g - g.mean()) ** 2).sum()) for g in each)
    return math.sqrt(squares / (_FLICKER_DEGREES + sum(len(g) - 1 for g in each)))


def _median_error(count: float) -> float:
    """Standard error of the median of so many normal numbers, in their standard deviation.

    √(π/2n) of many, exact for 1 and 2 (where it is the mean), within 1.3 % in between.
    """
    few = (math.pi / 2 - 1) * (1 if count % 2 else 2)
    return math.sqrt(math.pi / 2 / (count + few))


def now() -> str:
    """The time at which a record is made, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def record_of(
    subject: Measurement,
    visits: Sequence[Visit],
    overhead_us: float = 0.0,
    flicker: float = 0.0,
) -> Measurement:
    """The record of visits, with the latency that they show; ``subject`` has all else."""
    result = combine(visits, overhead_us, flicker)
    # On a busy machine all may be slow alike.
    least = measurement.BUSY_SPREAD_SHARE if measurement.was_busy(subject.environment) else 0.0
    return structs.replace(
        subject,
        latency_us=result.latency_us,
        spread_share=max(result.spread_share, least),
        visits=tuple(visits),
        overhead_us=overhead_us,
        labels={**subject.labels, **({"below_noise": "yes"} if result.below_noise else {})},
    )
