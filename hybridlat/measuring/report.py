"""The report on the measurement of one network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hybridlat.schema.measurement import Measurement, busiest
from hybridlat.schema.target import Target

What = Literal["cells", "network", "both"]


@dataclass(frozen=True)
class MeasureReport:
    """The result of ``measure``.

    Attributes:
        network: its name.
        target: what it was measured on.
        records: what is new.
        known: the number of cells that were known before.
        latency_us: of the whole network; None where it was not measured.
        sum_of_cells_us: the dispatch overhead and all cells; None where one has no latency.
        elapsed_s: what measuring took.
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
