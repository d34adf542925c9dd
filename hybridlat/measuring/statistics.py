"""The one analysis of all protocols: from raw samples to a latency and its spread.

A record means the same under every protocol: ``latency_us`` is the median over visits of
their levels, drift divided out and overhead taken off; ``spread_share`` its relative standard
error.
"""

from __future__ import annotations

import datetime
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybridlat.schema.measurement import (
    BUSY_SPREAD_SHARE,
    Kind,
    Launch,
    MachineLoad,
    Measurement,
    Visit,
)
from hybridlat.schema.target import Target

# A visit's level is this quantile of its kept samples. Disturbance only ever adds time, and on a
# shared machine it comes and goes within a visit, so the lower part is what repeats.
LEVEL_QUANTILE = 0.2
# The reference network is run around every visit of a run; three in ten of these are quick.
USUAL_QUANTILE = 0.3
# A cell that the noise hides still takes some time.
FLOOR_US = 0.05
SINGLE_VISIT_SPREAD = 0.05
_MOST_SPREAD = 10.0
# A process that is so far from the others was disturbed for all of its life.
OUTLIER_SHARE = 0.15
_LEAST_PROCESSES = 3  # of two that differ none is known to be right
_MEDIAN_ERROR = 1.2533  # standard error of a median of normal numbers, in those of their mean


@dataclass(frozen=True, slots=True)
class Result:
    """``latency_us`` with its relative standard error; ``below_noise``: below twice of that."""

    latency_us: float
    spread_share: float
    below_noise: bool = False


def level_us(samples_us: Sequence[float], quantile: float = LEVEL_QUANTILE) -> float:
    """The quantile of the samples (linear between neighbours); ValueError without samples."""
    if not samples_us:
        raise ValueError("a visit without samples has no level")
    ordered = sorted(samples_us)
    rank = quantile * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (rank - low) * (ordered[high] - ordered[low])


def usual_us(references_us: Sequence[float]) -> float:
    """The reference's latency in a run while nothing slows the machine; 1 without references."""
    return level_us(references_us, USUAL_QUANTILE) if references_us else 1.0


def difference(timed_us: Sequence[float], taken_off_us: Sequence[float]) -> tuple[float, ...]:
    """Samples of a cell: those of it and its predecessor, less the level of the predecessor's.

    Single samples may be below zero. ValueError where the predecessor has no samples.
    """
    level = level_us(taken_off_us)
    return tuple(round(sample - level, 3) for sample in timed_us)


def flicker_share(*processes_us: Sequence[float]) -> float:
    """How much the machine's pace changes from one visit of a process to the next.

    The robust standard deviation of the steps of the references' logarithms, over √2: slow drift is
    not in it.
    """
    pairs = [pair for of_process in processes_us for pair in itertools.pairwise(of_process)]
    steps = [abs(math.log(after / before)) for before, after in pairs if before > 0 < after]
    return 1.4826 * statistics.median(steps) / math.sqrt(2) if steps else 0.0


def combine(
    visits: Sequence[Visit],
    overhead_us: float = 0.0,
    single_visit_spread: float = SINGLE_VISIT_SPREAD,
) -> Result:
    """The median over visits of their levels, drift divided out, less the dispatch overhead.

    The spread is the standard error of a median (1.2533 s/sqrt(n)) over the visits, or over the
    processes where these differ more; that of one visit is ``single_visit_spread``, or the spread
    of its samples. A result is never below ``FLOOR_US``. ValueError without visits.
    """
    above_us = statistics.median(map(_level, visits)) - overhead_us
    error_us = _standard_error_us(visits, single_visit_spread)
    latency_us = max(above_us, FLOOR_US)
    spread = min(_MOST_SPREAD, error_us / latency_us)
    return Result(latency_us, spread, below_noise=above_us <= 2 * error_us)


def _level(visit: Visit) -> float:
    return level_us(visit.samples_us) / visit.drift


def without_outliers(visits: Sequence[Visit]) -> list[Visit]:
    """The visits of processes within ``OUTLIER_SHARE`` of the median process, where most are.

    All where there are fewer than three processes or no majority. Not for differences.
    """
    middles = {p: statistics.median(levels) for p, levels in _levels_by_process(visits).items()}
    if len(middles) < _LEAST_PROCESSES:
        return list(visits)
    usual = statistics.median(middles.values())
    near = {p for p, level in middles.items() if abs(level - usual) <= OUTLIER_SHARE * abs(usual)}
    if 2 * len(near) <= len(middles):
        return list(visits)
    return [visit for visit in visits if visit.process in near]


def _levels_by_process(visits: Sequence[Visit]) -> dict[int, list[float]]:
    by_process: dict[int, list[float]] = {}
    for visit in visits:
        by_process.setdefault(visit.process, []).append(_level(visit))
    return by_process


def _standard_error_us(visits: Sequence[Visit], single_visit_spread: float) -> float:
    by_process = _levels_by_process(visits)
    levels = [level for group in by_process.values() for level in group]
    if len(levels) < 2:
        among = _error_of_mean(visits[0].samples_us)
        return max(single_visit_spread * abs(levels[0]), _MEDIAN_ERROR * among / visits[0].drift)
    middles = [statistics.median(group) for group in by_process.values()]
    return _MEDIAN_ERROR * max(_error_of_mean(levels), _error_of_mean(middles))


def _error_of_mean(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Subject:
    """All of a record but the visits: the thing measured, and how; by default now."""

    target: Target
    signature: str
    kind: Kind
    protocol: str
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    measured_at: str = ""
    load: MachineLoad | None = None
    launch: Launch | None = None

    def record(
        self, latency_us: float | None, labels: Mapping[str, str] | None = None, **result: Any
    ) -> Measurement:
        """The record with this result; the load stands in its environment."""
        load = {} if self.load is None else self.load.environment()
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return Measurement(
            self.target, self.signature, self.kind, latency_us,
            protocol=self.protocol,
            environment={**self.environment, **load},
            measured_at=self.measured_at or now,
            labels={**self.labels, **(labels or {})},
            launch=self.launch,
            **result,
        )  # fmt: skip


def record_of(
    subject: Subject,
    visits: Sequence[Visit],
    overhead_us: float = 0.0,
    single_visit_spread: float = SINGLE_VISIT_SPREAD,
    counted: Sequence[Visit] | None = None,
) -> Measurement:
    """The record that visits make, with the latency of the ``counted`` ones; ValueError without.

    On a busy machine all may be slow alike: the spread is then at least ``BUSY_SPREAD_SHARE``.
    """
    result = combine(visits if counted is None else counted, overhead_us, single_visit_spread)
    is_busy = subject.load is not None and subject.load.is_busy
    return subject.record(
        result.latency_us,
        {"below_noise": "yes"} if result.below_noise else {},
        spread_share=max(result.spread_share, BUSY_SPREAD_SHARE if is_busy else 0.0),
        visits=tuple(visits),
        overhead_us=overhead_us,
    )
