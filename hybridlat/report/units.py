"""Quantities in words: latencies in the unit that fits, shares in percent, counts with nouns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hybridlat.schema.cell_estimate import half_width_share
from hybridlat.schema.shown import count_text as count_text


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit of time for one text or one column: ``unit_us`` microseconds make one ``name``."""

    name: str
    unit_us: float

    def number(self, latency_us: float, decimals: int | None = None) -> str:
        """The number alone; three significant digits unless ``decimals`` says otherwise."""
        value = latency_us / self.unit_us
        return f"{value:,.{_decimals(value) if decimals is None else decimals}f}"


RESOLUTION_US = 1.0
"""No clock resolves cells below this; their intervals mean nothing."""

NOTHING = "–"
_LOPSIDED = 1.2  # sides that differ by more are shown as a range
_NARROW = 0.02  # below it nobody minds

MICROSECONDS = Scale("µs", 1.0)
MILLISECONDS = Scale("ms", 1e3)
SECONDS = Scale("s", 1e6)


def scale_for(latencies_us: Iterable[float | None]) -> Scale:
    """The unit in which the largest of these reads best."""
    largest_us = max((abs(v) for v in latencies_us if v is not None), default=0.0)
    if largest_us >= 999_500:  # what would be written as 1,000 ms is 1.00 s
        return SECONDS
    return MILLISECONDS if largest_us >= 999.5 else MICROSECONDS


def latency_text(latency_us: float | None) -> str:
    """``8.12 ms``, ``812 µs``; a dash where there is none."""
    if latency_us is None:
        return NOTHING
    scale = scale_for([latency_us])
    return f"{scale.number(latency_us)} {scale.name}"


def each_text(scale: Scale, latency_us: float | None) -> str:
    """A cell's latency in a column of ``scale``; `< 1` below the resolution."""
    if latency_us is None:
        return "–"
    if latency_us < RESOLUTION_US:
        return f"< {RESOLUTION_US / scale.unit_us:g}"
    return scale.number(latency_us, {1.0: 1, 1e3: 3}.get(scale.unit_us, 6))


def interval_text(interval_us: tuple[float, float] | None) -> str:
    """``7.99 – 8.26 ms``, or ``at least 7.99 ms``; both ends with the decimals of the larger."""
    if interval_us is None:
        return "–"
    low_us, high_us = interval_us
    if math.isinf(high_us):
        return f"at least {latency_text(low_us)}"
    scale = scale_for(interval_us)
    decimals = _decimals(high_us / scale.unit_us)
    return f"{scale.number(low_us, decimals)} – {scale.number(high_us, decimals)} {scale.name}"


def percent_text(share: float | None, decimals: int = 1) -> str:
    """``7.0 %`` for 0.07; a dash where there is none."""
    return "–" if share is None else f"{100 * share:.{decimals}f} %"


def confidence_text(confidence: float) -> str:
    """``90 %``, ``99.9 %``: with the digits that were given."""
    return f"{100 * confidence:.12g} %"


def plus_minus_text(share: float | None) -> str:
    """``±1.3 %`` for a half width of 0.013; whole percents from ten up."""
    return NOTHING if share is None else f"±{100 * share:.{0 if share >= 0.0995 else 1}f} %"


def reach_text(latency_us: float | None, interval_us: tuple[float, float] | None) -> str:
    """``±1.3 %``: the half width of an interval; its range where the two sides differ much."""
    if not latency_us or interval_us is None:
        return "–"
    low, high = (end / latency_us for end in interval_us)
    short, long = sorted((1 - low, high - 1))
    if long > _LOPSIDED * short and long >= _NARROW:
        return interval_text(interval_us)
    return plus_minus_text(half_width_share(latency_us, interval_us))


def first_upper(sentence: str) -> str:
    """The sentence with its first letter as a capital, the rest as it stands."""
    return sentence[:1].upper() + sentence[1:]


def _decimals(value: float) -> int:
    """Decimals that show three significant digits, as the rounded number will be read."""
    return 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2


def fps_text(per_s: float | None) -> str:
    """``123 fps``; a dash where there is none."""
    return NOTHING if per_s is None else f"{per_s:,.{_decimals(per_s)}f} fps"
