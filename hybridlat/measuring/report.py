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
    """What measuring ``network`` on ``target`` added: ``records``, beside so many ``known`` cells.

    ``latency_us`` is that of the whole network, if measured, ``sum_of_cells_us`` that of the
    dispatch overhead and all cells; None where one has no latency. It took ``elapsed_s``.
    ``failures`` are sentences by signature, ``warnings`` of parts of the file that were not
    measured, and of a busy machine.
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
