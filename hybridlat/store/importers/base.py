"""What an importer gives back, and what importers share: reading tables."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridlat.errors import MissingExtra, StoreError
from hybridlat.graph.signature import Signature
from hybridlat.schema.device_names import device_name
from hybridlat.schema.measurement import Breakdown, Kind, Measurement
from hybridlat.schema.target import Target

Watch = Callable[[int, int], None]
"""Told now and then how many rows of a file were read, and how many there are."""
_WATCH_EVERY = 256


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


def tables(path: Path, *patterns: str) -> Iterator[tuple[Path, Any]]:
    """The files under ``path`` (or ``path`` itself) that match, as data frames.

    Raises StoreError when there is none or one cannot be read, MissingExtra without pandas.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "train", "importing public data") from None
    if not path.exists():
        raise StoreError(f"{path} does not exist: give the folder that holds {patterns[0]}")
    files = [path] if path.is_file() else sorted({f for p in patterns for f in path.rglob(p)})
    if not files:
        raise StoreError(f"{path} holds no {' or '.join(patterns)}: is it another data set?")
    for file in files:
        try:
            read = pandas.read_csv if file.suffix == ".csv" else pandas.read_parquet
            yield file, read(file)
        except (OSError, ValueError) as error:
            raise StoreError(f"{file} cannot be read as a table: {error}") from None


def need_columns(file: Path, frame: Any, *names: str) -> None:
    """StoreError naming the columns that ``frame`` lacks."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise StoreError(f"{file} lacks the columns {', '.join(missing)}: is it another data set?")


def rows(frame: Any, *names: str, watch: Watch | None = None) -> Iterator[tuple[Any, ...]]:
    """The rows of some columns as plain Python values."""
    columns = (frame[name].tolist() for name in names)
    for index, row in enumerate(zip(*columns, strict=True)):
        if watch is not None and index % _WATCH_EVERY == 0:
            watch(index, len(frame))
        yield row


def whole(*values: Any) -> bool:
    """True when every value is a whole number (a missing one is read as NaN)."""
    return all(isinstance(v, int) or (isinstance(v, float) and v.is_integer()) for v in values)


def latency_columns(file: Path, frame: Any) -> list[tuple[str, str, int]]:
    """Columns named ``<device>_<batch>_us``: the column, the device, the batch."""
    columns = [
        (str(c), device_name(m[1]), int(m[2]))
        for c in frame.columns
        if (m := re.fullmatch(r"(.+)_([0-9]+)_us", str(c)))
    ]
    if not columns:
        raise StoreError(f"{file} has no column <device>_<batch>_us: is it another data set?")
    return columns
