"""What records say together: one answer per thing measured, one row per target."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from hybridlat.schema.measurement import BUSY_SPREAD_SHARE
from hybridlat.schema.target import Target

#: latency_us, spread_share, measured_at and failure of one record.
LatencyRow = tuple[float | None, float, str, str | None]


@dataclass(frozen=True, slots=True)
class LatencyStats:
    """What the records of one thing say together.

    ``latency_us`` is the median of its ``records`` good records. ``spread_share`` is the relative
    standard error of that median: the median of what the records say of themselves, or what they
    differ from each other by where that is more. Where all records are failures ``latency_us`` is
    None and ``failure`` the newest reason: it was tried, and need not be tried again.
    """

    latency_us: float | None
    spread_share: float
    records: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class TargetStats:
    """What a store holds of one target.

    ``cells``, ``networks`` and ``layers`` count different things with a latency; ``records`` and
    ``failures`` count records; ``first`` and ``last`` are ISO 8601 times; ``bytes`` is the size of
    the compressed records, of more than 500 of a kind as 500 of them say.
    """

    target: Target
    cells: int
    networks: int
    layers: int
    records: int
    failures: int
    first: str
    last: str
    bytes: int


def aggregate(records: Iterable[LatencyRow]) -> LatencyStats:
    """One answer from the records of one thing.

    Records as unsure as those of a busy machine count only where there are no others.
    """
    rows = list(records)
    good = [(latency, spread) for latency, spread, _, _ in rows if latency is not None]
    good = [row for row in good if row[1] < BUSY_SPREAD_SHARE] or good
    if not good:
        newest = max(rows, key=lambda record: record[2])
        return LatencyStats(None, 0.0, 0, newest[3] or "no reason was recorded")
    latencies = [latency for latency, _ in good]
    middle = statistics.median(latencies)
    spread = statistics.median([spread for _, spread in good])
    if len(good) > 1:
        between = statistics.stdev(latencies) / middle / len(good) ** 0.5
        spread = max(spread, between)
    return LatencyStats(middle, spread, len(good))
