"""The rows of an estimate: the latency of each distinct cell, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hybridlat.estimate.compose.composition import normal_quantile
from hybridlat.estimate.compose.posterior import ErrorPosterior
from hybridlat.estimate.partition.partition import Partition
from hybridlat.schema.estimate import CellEstimate, LatencySource


class Basis(NamedTuple):
    """What the latency of a cell rests on; see ``CellEstimate``."""

    source: LatencySource
    reason: str = ""
    trusted: bool = True


MEASURED = Basis("measured")


def cell_rows(
    partition: Partition,
    names: Sequence[str],
    bases: Sequence[Basis],
    posterior: ErrorPosterior,
    confidence: float,
) -> tuple[CellEstimate, ...]:
    """The rows of the partition's cells, in order; ``names`` are those of the file's operators."""
    z, total_us = normal_quantile(confidence), posterior.sum_us
    latencies_us, uses_us = posterior.latencies_us.tolist(), posterior.uses_us.tolist()
    variances = posterior.covariance.diagonal().tolist()
    rows = []
    for i, (use, basis) in enumerate(zip(partition.uses, bases, strict=True)):
        latency_us: float | None = None
        interval_us = None
        if basis.source != "unsupported":
            latency_us = latencies_us[i]
            factor = math.exp(min(z * math.sqrt(max(variances[i], 0.0)), 20.0))
            interval_us = (latency_us / factor, latency_us * factor)
        rows.append(
            CellEstimate(
                signature=use.signature,
                ops=use.ops,
                nodes=tuple([names[n] for n in use.nodes]),
                count=use.count,
                latency_us=latency_us,
                interval_us=interval_us,
                share=uses_us[i] / total_us if total_us > 0 else 0.0,
                source=basis.source,
                reason=basis.reason,
                trusted=basis.trusted,
            )
        )
    return tuple(rows)
