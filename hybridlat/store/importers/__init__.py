"""Latencies that others measured, as records.

Tables and logs are read here. Another package offers an importer of its own as a module under the
entry point group ``hybridlat.importers``: ``load(name).read(path)`` gives its ``ImportedRecords``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from hybridlat.errors import InputError
from hybridlat.graph.signature import Signature
from hybridlat.schema.measurement import Breakdown, Kind, Measurement
from hybridlat.schema.plugins import Plugins
from hybridlat.schema.target import Target

__all__ = ["ImportedRecords", "Importer", "Watch", "load", "names"]


Watch = Callable[[int, int], None]
"""Called now and then with how many rows of a file were read, and how many there are."""


@dataclass
class ImportedRecords:
    """Records that an importer made, ready for a store.

    ``signatures`` maps hash to text of everything measured; ``skipped`` counts the rows that were
    left out, by reason: a row is never left out silently.
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
        """Add one row, or count why it cannot be; True when it was added."""
        if signature is None:
            self.skipped["shape makes no sense"] += 1
            return False
        if not 0 < latency_us < math.inf:
            self.skipped["latency is not a positive number"] += 1
            return False
        self.signatures[signature.hash] = signature.text
        self.measurements.append(
            Measurement(
                target, signature.hash, kind, latency_us,
                spread_share=spread_share if math.isfinite(spread_share) else 0.0,
                protocol=protocol, labels=labels or {},
            )
        )  # fmt: skip
        return True

    def describe(self, breakdown: Breakdown, texts: Mapping[str, str]) -> None:
        """Add how a network falls into cells, and the signature texts of those cells."""
        self.signatures.update(texts)
        self.breakdowns.append(breakdown)


class Importer(Protocol):
    """What the module of another package offers."""

    def read(self, path: Path, watch: Watch | None = None) -> ImportedRecords:
        """Everything under ``path`` as records; StoreError when it is not this data set."""


TABLES = ("networks", "trtexec")
"""What hybridlat reads itself: tables of whole networks, and logs of trtexec."""
IMPORTERS = Plugins("hybridlat.importers")


def names() -> tuple[str, ...]:
    """What can be imported: tables and logs, then what other packages read."""
    return (*TABLES, *IMPORTERS.names())


def load(name: str) -> Importer:
    """The importer of that name; InputError names the choices."""
    try:
        return cast(Importer, IMPORTERS.load(name))
    except KeyError:
        choices = ", ".join(names())
        raise InputError(f"{name!r} is not an importer: choose one of {choices}") from None
