"""The report on the measurement of one network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hybridlat.engines import registry
from hybridlat.graph.builder import null_network
from hybridlat.graph.signature import sign
from hybridlat.schema.measurement import Measurement, busiest
from hybridlat.schema.target import Target
from hybridlat.store import LatencyStats, Store, packs
from hybridlat.store.packs import PackLookup

What = Literal["cells", "network", "both"]


@dataclass(frozen=True)
class MeasureReport:
    """The result of ``measure``.

    Attributes:
        network: its name.
        target: what it was measured on.
        records: what is new.
        known: the number of cells that were known before.
        latency_us: of the whole network, in microseconds; None where it was not measured.
        sum_of_cells_us: the dispatch overhead and every use of every cell, in microseconds; None
            where a cell has no latency.
        elapsed_s: what measuring took, in seconds.
        failures: a sentence by the signature of what could not be measured.
        warnings: the parts of the file that were not measured, and a busy machine.
    """

    network: str
    target: str
    records: tuple[Measurement, ...]
    known: int
    latency_us: float | None
    sum_of_cells_us: float | None
    elapsed_s: float
    failures: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def report_of(
    network: str,
    target: Target,
    records: Sequence[Measurement],
    *,
    known: int,
    sum_of_cells_us: float | None,
    elapsed_s: float,
    warnings: tuple[str, ...] = (),
    shown_ratio: float = 1.0,
) -> MeasureReport:
    """The report on one network from its records; ``shown_ratio`` is the composition's."""
    load = busiest(r.environment for r in records)
    latency_us = next((r.latency_us for r in records if r.kind == "network"), None)
    return MeasureReport(
        network=network,
        target=str(target),
        records=tuple(records),
        known=known,
        latency_us=None if latency_us is None else shown_ratio * latency_us,
        sum_of_cells_us=None if sum_of_cells_us is None else shown_ratio * sum_of_cells_us,
        elapsed_s=elapsed_s,
        failures={r.signature: r.failure for r in records if r.failure is not None},
        warnings=warnings if load is None else (*warnings, load.sentence),
    )


def sum_of_cells_us(store: Store, target: Target, cells: Sequence[tuple[str, int]]) -> float | None:
    """The dispatch overhead and ``cells`` (signature hash, uses) of one network; None if unknown.

    From the store and the shipped packs, of the target and of those that share its cells.
    """
    overhead = sign(null_network(1)).hash
    stats: dict[str, LatencyStats] = {}
    for one in (target, *registry.same_cell_targets(target)):
        sources: list[Store | PackLookup] = [store, *packs.packs_for(one)]
        for source in sources:
            missing = [h for h in {overhead, *(h for h, _ in cells)} if h not in stats]
            stats.update(source.latencies(one, missing) if missing else {})
    total_us = (stats[overhead].latency_us or 0.0) if overhead in stats else 0.0
    for hash_, uses in cells:
        latency_us = stats[hash_].latency_us if hash_ in stats else None
        if latency_us is None:
            return None
        total_us += uses * latency_us
    return total_us
