"""Files of trtexec: the text of a log, and the times of single inferences that it exports."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path

from hybridlat.schema.files import read_bytes
from hybridlat.store.importers.cells import MOST_US
from hybridlat.store.importers.sheets import encoding_of
from hybridlat.store.importers.table import Refusal
from hybridlat.store.importers.trtexec_options import PRINTED

_MOST_APART = 1.25  # the times may hold the warm-up, which the log's median leaves out
_MOST_AT_ONCE = 1.5  # of the medians of all inferences to the time from first to last


def text_of(file: Path) -> str:
    """The text of a file, without what steers a terminal; a carriage return ends a line."""
    data = read_bytes(file)
    text = re.sub("\r+\n?", "\n", data.decode(encoding_of(data), "replace"))
    return re.sub(PRINTED["escape"], "", text)


def read_times(path: Path, log_us: float | None = None) -> tuple[float, ...]:
    """GPU compute time of every inference in ``--exportTimes``, microseconds.

    Raises Refusal, also where their median is not that of the log.
    """
    try:
        entries = json.loads(text_of(path), strict=False)
        times = [entry.get("computeMs", entry.get("compute")) for entry in entries]
        times_us = tuple(1e3 * time for time in times if time is not None)
        odd = [time_us for time_us in times_us if not 0 < time_us < MOST_US]
        if odd or not times_us:
            of = f"{len(odd)} of {len(times_us)} times out of range"
            raise ValueError(of if odd else "no entry states computeMs: a profile, perhaps")
        begun = [entry["startComputeMs"] for entry in entries if "startComputeMs" in entry]
        span_us = 1e3 * (max(begun) - min(begun)) if len(begun) > 1 else math.inf
    except (OSError, AttributeError, OverflowError, TypeError, ValueError, RecursionError) as error:
        why, fix = "the file holds no times of trtexec", "give what --exportTimes wrote"
        value = "no list of inferences" if isinstance(error, AttributeError) else str(error)[:80]
        raise Refusal(why, value, fix) from None
    median_us = statistics.median(times_us)
    if (len(begun) - 1) * median_us > _MOST_AT_ONCE * span_us:
        value = f"{len(begun)} of {median_us / 1e3:g} ms in {span_us / 1e3:g} ms"
        raise Refusal("several inferences run at once", value, "run trtexec without --infStreams")
    if not 1 / _MOST_APART < median_us / (log_us or median_us) < _MOST_APART:
        value = f"a median of {median_us / 1e3:g} ms, in the log {(log_us or 0) / 1e3:g} ms"
        raise Refusal("the times are of another run than the log", value, "keep both of one run")
    return times_us
