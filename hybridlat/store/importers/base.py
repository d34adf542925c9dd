"""What an importer gives back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hybridlat.graph.signature import Signature
from hybridlat.schema.measurement import Breakdown, Kind, Measurement
from hybridlat.schema.target import Target

Watch = Callable[[int, int], None]
"""Told now and then how many rows of a file were read, and how many there are."""


@dataclass
class ImportedRecords:
    """Records made from a data set, ready for a store.

    ``signatures`` maps hash to text of everything measured; ``skipped`` counts the rows that were
    left out, by reason. Whoever imports prints them: a row is never left out silently.
    """

    signatures: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    breakdowns: list[Breakdown] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        target: Target,
        signature: Signature | None,
        latency_us: float,
        *,
        protocol: str,
        kind: Kind = "cell",
        spread_share: float = 0.0,
        labels: Mapping[str, str] | None = None,
    ) -> bool:
        """Keep one row, or count why it cannot be kept; True when it was kept."""
        if signature is None:
            self.skipped["shape makes no sense"] += 1
            return False
        kept = self._keep(
            target, signature.hash, latency_us, protocol, kind, spread_share, labels or {}
        )
        if kept:
            self.signatures[signature.hash] = signature.text
        return kept

    def add_network(
        self,
        target: Target,
        signature: str,
        kernels: Sequence[tuple[Signature, int]],
        name: str,
        latency_us: float,
        *,
        protocol: str,
    ) -> bool:
        """Keep a whole network's latency, and how the network falls into kernels.

        ``signature`` is the hash alone: the breakdown says all that is ever asked of a network,
        and the texts of ten thousands of networks would fill the store.
        """
        labels = {"network": name}
        if not self._keep(target, signature, latency_us, protocol, "network", 0.0, labels):
            return False
        cells = tuple((s.hash, count) for s, count in kernels)
        texts = {s.hash: s.text for s, _ in kernels}
        self.describe(Breakdown(target, name, signature, cells), texts)
        return True

    def describe(self, breakdown: Breakdown, texts: Mapping[str, str]) -> None:
        """Keep how a network falls into cells, and the signature texts of those cells."""
        self.signatures.update(texts)
        self.breakdowns.append(breakdown)

    def _keep(
        self,
        target: Target,
        signature: str,
        latency_us: float,
        protocol: str,
        kind: Kind,
        spread_share: float,
        labels: Mapping[str, str],
    ) -> bool:
        if not (math.isfinite(latency_us) and latency_us > 0):
            self.skipped["latency is not a positive number"] += 1
            return False
        self.measurements.append(
            Measurement(
                target, signature, kind, float(latency_us),
                spread_share=spread_share if math.isfinite(spread_share) else 0.0,
                protocol=protocol, labels=labels,
            )
        )  # fmt: skip
        return True
