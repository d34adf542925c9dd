"""The long parts of an estimate: its rows, what the engine leaves out, what to measure next.

A search looks at the latencies of thousands of networks and at the details of a few. So an estimate
carries what its details follow from, as plain values that are cheap to keep and to send.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hybridlat.estimate import gate
from hybridlat.estimate.composition import Composition, normal_quantile
from hybridlat.estimate.posterior import CellPrior, ErrorPosterior, Matrix
from hybridlat.schema.deferred import Deferred
from hybridlat.schema.estimate import CellEstimate, Estimate, LatencySource


class Basis(NamedTuple):
    """What the latency of a cell rests on; see ``CellEstimate``."""

    source: LatencySource
    reason: str = ""
    trusted: bool = True


MEASURED = Basis("measured")
PREDICTED = Basis("predicted")


@dataclass(frozen=True, slots=True)
class EstimateDetails:
    """What the details follow from; every tuple but ``names`` has an item for each distinct cell.

    ``names`` are those of the file's operators; ``nodes``, ``removed`` and ``constants``
    count in them. ``latencies_us`` are of one use of a cell, NaN where unknown, ``uses_us`` of all.
    ``covariance`` holds that of the cells' errors, as float64, row by row. ``required`` and
    ``refused`` are positions of cells that must be measured, and that cannot be; ``asks`` says
    whether anybody should measure.
    """

    names: tuple[str, ...]
    signatures: tuple[str, ...]
    ops: tuple[tuple[str, ...], ...]
    nodes: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]
    bases: tuple[Basis, ...]
    latencies_us: tuple[float, ...]
    uses_us: tuple[float, ...]
    costs_s: tuple[float, ...]
    covariance: bytes
    required: tuple[int, ...]
    refused: tuple[int, ...]
    removed: tuple[int, ...]
    constants: frozenset[int]
    composition: Composition
    tolerance: float
    confidence: float
    asks: bool

    def rows(self) -> tuple[CellEstimate, ...]:
        """What is known of each distinct cell, in order."""
        names, total = self.names, float(np.array(self.uses_us).sum())
        z = normal_quantile(self.confidence)
        variances = self._covariance.diagonal().tolist()
        rows = []
        for i, basis in enumerate(self.bases):
            latency: float | None = None
            interval = None
            if basis.source != "unsupported":
                latency = self.latencies_us[i]
                factor = math.exp(min(z * math.sqrt(max(variances[i], 0.0)), 20.0))
                interval = (latency / factor, latency * factor)
            rows.append(
                CellEstimate(
                    signature=self.signatures[i],
                    ops=self.ops[i],
                    nodes=tuple([names[n] for n in self.nodes[i]]),
                    count=self.counts[i],
                    latency_us=latency,
                    interval_us=interval,
                    share=self.uses_us[i] / total if total > 0 else 0.0,
                    source=basis.source,
                    reason=basis.reason,
                    trusted=basis.trusted,
                )
            )
        return tuple(rows)

    def not_run(self) -> tuple[str, ...]:
        """Names of the operators that the engine does not run; those of constants stand last."""
        return tuple([self.names[i] for i in sorted(self.removed, key=self.constants.__contains__)])

    def to_measure(self) -> tuple[str, ...]:
        """Signatures of the cells that the gate would measure next."""
        if not self.asks:
            return ()
        plan = gate.plan(self._posterior, self.composition, self.tolerance, self.refused)
        return tuple([self.signatures[i] for i in plan.positions])

    @property
    def _covariance(self) -> Matrix:
        count = len(self.bases)
        return np.frombuffer(self.covariance).reshape(count, count)

    @property
    def _posterior(self) -> ErrorPosterior:
        """What is believed of the cells, as far as the gate asks for it."""
        priors = [
            CellPrior(
                signature, count, None if math.isnan(latency_us) else latency_us, 0.0,
                trusted=i not in self.required, source=basis.source, cost_s=cost_s,
            )
            for i, (signature, count, latency_us, basis, cost_s) in enumerate(zip(
                self.signatures, self.counts, self.latencies_us, self.bases, self.costs_s,
                strict=True,
            ))
        ]  # fmt: skip
        covariance, mean = self._covariance, np.zeros(len(priors))
        correlation = self.composition.correlation
        return ErrorPosterior(tuple(priors), correlation, {}, covariance, mean, covariance)


class PackedDetails(NamedTuple):
    """Details in a thirtieth of the room; read when they are looked at."""

    data: bytes

    def rows(self) -> tuple[CellEstimate, ...]:
        """See ``EstimateDetails``."""
        return self.opened().rows()

    def not_run(self) -> tuple[str, ...]:
        """See ``EstimateDetails``."""
        return self.opened().not_run()

    def to_measure(self) -> tuple[str, ...]:
        """See ``EstimateDetails``."""
        return self.opened().to_measure()

    def opened(self) -> EstimateDetails:
        """The details themselves."""
        from msgspec import msgpack

        return msgpack.decode(zlib.decompress(self.data), type=EstimateDetails)


def with_details(estimate: Estimate, details: EstimateDetails | PackedDetails) -> Estimate:
    """The estimate with its long parts, to be made when somebody looks at them."""
    return replace(
        estimate, cells=Deferred(details.rows), removed=Deferred(details.not_run),
        to_measure=Deferred(details.to_measure),
    )  # fmt: skip


class PackedEstimate(NamedTuple):
    """An estimate as it is kept or sent; ``short`` is all of it but its long parts."""

    short: bytes
    details: PackedDetails

    @classmethod
    def of(cls, estimate: Estimate) -> PackedEstimate:
        """Pack an estimate of ``estimate_network``; details that are packed stay so."""
        from msgspec import msgpack

        details = _origin_of(estimate)
        if isinstance(details, EstimateDetails):
            details = PackedDetails(zlib.compress(msgpack.encode(details), 1))
        short = replace(estimate, cells=(), removed=(), to_measure=())
        return cls(msgpack.encode(short), details)

    def opened(self) -> Estimate:
        """The estimate, its long parts still packed."""
        from msgspec import msgpack

        return with_details(msgpack.decode(self.short, type=Estimate), self.details)


def all_measured(estimate: Estimate) -> bool:
    """Whether each cell of an estimate of ``estimate_network`` was measured."""
    origin = _origin_of(estimate)
    details = origin.opened() if isinstance(origin, PackedDetails) else origin
    return all(basis.source == "measured" for basis in details.bases)


def _origin_of(estimate: Estimate) -> EstimateDetails | PackedDetails:
    assert isinstance(estimate.cells, Deferred)
    origin = estimate.cells.origin
    assert isinstance(origin, EstimateDetails | PackedDetails)
    return origin
