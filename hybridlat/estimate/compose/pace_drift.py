"""How much a machine's own pace drifts: from the reference network that runs around every visit.

Records are on the scale of one pace: that at which the reference network takes what it took
when the machine was first measured, on the quick side of that run. Every visit's ``drift`` says how
much slower or quicker the machine was then. Within a process drift is divided out; a
run at another time is one process among those on record. So a latency is shown at their usual pace,
and on the scale of the median of runs, where records hold a low quantile.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hybridlat.schema.measurement import Measurement, was_busy

LARGE_SHARE = 0.03
"""From here on an estimate says that the machine's pace varies."""
LEAST_VISITS = 2
"""A process with fewer visits in a run says more of single visits than of the machine."""
_USUAL_SHARE = 0.02  # what is taken for likely before a machine's processes say so
_USUAL_PROCESSES = 2
_FAR_OUT = 3.0
_LEAST_USUAL = 0.01
MOST_MEDIAN_RATIO = 1.03
"""Quiet machines show 1.00 to 1.03; what lies above is other work and not the machine."""


@dataclass(frozen=True, slots=True)
class PaceDrift:
    """How far processes were from the machine's usual pace.

    ``share`` is the root mean square of ln(pace / usual) over ``processes`` of measuring, those far
    out drawn in to three times the usual distance, pooled with two processes of 2 %; ``slowest``
    and ``quickest`` are the extremes (1.05: 5 % slower than usual) and ``latest`` the last. Without
    any process nothing is known, and ``share`` is 0. ``usual_pace`` is the middle of the processes'
    paces in that of the records; ``median_ratio`` how far the median of a visit's samples lies
    above the level of records, 1 where no network was measured.
    """

    share: float = 0.0
    processes: int = 0
    quickest: float = 1.0
    slowest: float = 1.0
    latest: float = 1.0
    usual_pace: float = 1.0
    median_ratio: float = 1.0

    @property
    def shown_ratio(self) -> float:
        """What is shown of a network, in what its record tells."""
        return self.usual_pace * self.median_ratio

    @property
    def is_large(self) -> bool:
        return self.share > LARGE_SHARE

    def sentence(self) -> str:
        """The warning about it."""
        return (
            f"this machine's pace varies by ±{100 * self.share:.0f} % from run to run "
            f"({100 * (self.quickest - 1):+.0f} to {100 * (self.slowest - 1):+.0f} % in "
            f"{self.processes} measuring processes), and the interval includes that; the latency "
            f"is for its usual pace, and its last run was {_slower(self.latest)}"
        )


def _slower(pace: float) -> str:
    percent = 100 * (pace - 1)
    if abs(percent) < 1:
        return "at that pace"
    return f"{abs(percent):.0f} % {'slower' if percent > 0 else 'quicker'}"


class Paces:
    """Collects the paces of measuring processes from records, as they come.

    Records of one run bear the time at which it ended, so a process is named by that time, to the
    minute, and its number.
    """

    def __init__(self) -> None:
        self._drifts: dict[tuple[str, int], list[float]] = {}
        self._median_ratios: list[float] = []

    def add(self, record: Measurement) -> None:
        """Take the drifts of a record's visits.

        Failures, and records that were made while the machine was busy, say nothing of its pace.
        """
        if record.failure is not None or record.labels.get("role"):
            return
        if was_busy(record.environment):
            return
        for visit in record.visits:
            key = record.measured_at[:16], visit.process
            self._drifts.setdefault(key, []).append(math.log(visit.drift))
        if record.kind == "network" and record.visits and record.latency_us:
            medians = [statistics.median(v.samples_us) / v.drift for v in record.visits
                       if v.samples_us]  # fmt: skip
            if medians:
                above_us = statistics.median(medians) - record.overhead_us
                self._median_ratios.append(above_us / record.latency_us)

    def by_process(self) -> list[tuple[str, int, float]]:
        """(when, visits, pace) of every measuring process, oldest first."""
        return [
            (when, len(drifts), math.exp(statistics.median(drifts)))
            for (when, _), drifts in sorted(self._drifts.items())
            if len(drifts) >= LEAST_VISITS
        ]

    @property
    def median_ratio(self) -> float:
        """How far medians of whole networks' samples lie above what their records say, typically.

        A record's level is a low quantile, which repeats best and serves to compare; who times a
        network sees the median. 1 without a network, and between 1 and ``MOST_MEDIAN_RATIO``.
        """
        ratios = self._median_ratios
        return min(max(statistics.median(ratios), 1.0), MOST_MEDIAN_RATIO) if ratios else 1.0


def paces_of(records: Iterable[Measurement]) -> Paces:
    """The paces in these records."""
    paces = Paces()
    for record in records:
        paces.add(record)
    return paces


def pace_drift_of(paces: Sequence[tuple[str, int, float]], median_ratio: float = 1.0) -> PaceDrift:
    """The wandering that the paces of processes show."""
    if not paces:
        return PaceDrift(median_ratio=median_ratio)
    usual = statistics.median(pace for _, _, pace in paces)
    values = [pace / usual for _, _, pace in paces]
    sizes = [abs(math.log(pace)) for pace in values]
    most = _FAR_OUT * max(1.4826 * statistics.median(sizes), _LEAST_USUAL)
    squares = math.fsum(min(size, most) ** 2 for size in sizes)
    squares += _USUAL_PROCESSES * _USUAL_SHARE**2
    share = math.sqrt(squares / (len(values) + _USUAL_PROCESSES))
    return PaceDrift(share, len(values), min(values), max(values), values[-1], usual, median_ratio)
