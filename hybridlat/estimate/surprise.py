"""Latencies of whole networks that are far from their estimates: a wrong unit, perhaps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

from hybridlat.errors import HybridlatError
from hybridlat.estimate.belief import prior_belief
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import MeasuredNetwork
from hybridlat.estimate.predict.source import NetworkCells
from hybridlat.estimate.warnings import MOST_RATIO, latency_text
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.importers import ImportedRecords

_CONFIDENCE = 0.9
_FAR = 2.0  # times beyond an end of the interval
_UNITS = 100.0  # units are a thousand apart, and estimates ten at most


def surprise(data: TargetData, one: MeasuredNetwork, batch: int = 1) -> str:
    """``553 ms where 1.05 ms are expected; wrong unit?``, or nothing for a latency that is near.

    ``data`` must not know of the latency yet.
    """
    copied_bytes, hash_ = (lambda: one.copied_bytes), (lambda: one.signature)
    cells = NetworkCells(one.cells, one.texts, one.counts, _CONFIDENCE, copied_bytes, hash_)
    belief = prior_belief(data, cells)
    if not belief.posterior.complete or not 0 < belief.posterior.sum_us < math.inf:
        return ""
    interval = belief.interval
    (low_us, high_us), ratio = interval.interval_us, one.latency_us / interval.latency_us
    if 1 / MOST_RATIO < ratio < MOST_RATIO or low_us / _FAR < one.latency_us < high_us * _FAR:
        return ""
    off, hint = max(ratio, 1 / ratio), ""
    if batch >= MOST_RATIO / _FAR and 1 / _FAR < off / batch < _FAR:
        hint = f"; of one image, or of all {batch}?"
    elif off > _UNITS:
        hint = "; wrong unit?"
    expected = latency_text(interval.latency_us)
    return f"{latency_text(one.latency_us)} where {expected} are expected{hint}"


def surprises(store: Store, new: ImportedRecords) -> Iterator[str]:
    """A sentence, or nothing, for each record of a network that ``store`` does not hold yet."""
    known: dict[Target, TargetData] = {}
    parts = {(item.target, item.signature): item for item in new.breakdowns}
    for record in new.measurements:
        item, text = parts.get((record.target, record.signature)), ""
        if item is not None and record.latency_us is not None and not record.suspect:
            data = known.setdefault(record.target, TargetData(record.target, store))
            batch = item.labels.get("batch", "")
            with suppress(HybridlatError, KeyError, ValueError):  # of what cannot be estimated
                one = MeasuredNetwork.of(item, new.signatures, record.latency_us)
                text = surprise(data, one, int(batch) if batch.isdigit() else 1)
        yield text and f"{item.network if item else ''} on {record.target}: {text}"


def contradictions(new: ImportedRecords) -> list[str]:
    """A sentence for each network whose new records, of one kind, are twice as long as others."""
    alike: dict[tuple[object, ...], list[float]] = {}
    for record in new.measurements:
        if record.kind == "network" and record.latency_us is not None and not record.suspect:
            name = f"{record.labels.get('network', 'a network')} on {record.target}"
            how = record.labels.get("layout"), record.launch, record.copies
            alike.setdefault((name, record.signature, *how), []).append(record.latency_us)
    return [
        f"{name}: {latency_text(min(us))} and {latency_text(max(us))} contradict each other"
        for (name, *_), us in alike.items()
        if max(us) > _FAR * min(us)
    ]
