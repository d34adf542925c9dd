"""Tables of public data sets as data frames."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas

from hybridlat.errors import StoreError
from hybridlat.graph.signature import Signature
from hybridlat.schema.measurement import Kind, Measurement
from hybridlat.schema.names import device_name
from hybridlat.schema.target import Target
from hybridlat.store.importers import ImportedRecords


def tables(path: Path, *patterns: str) -> Iterator[tuple[Path, Any]]:
    """The files under ``path`` (or ``path`` itself) that match, as data frames.

    Raises StoreError when there is none or one cannot be read.
    """
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


def rows(frame: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    """The rows of some columns as plain Python values."""
    columns = (frame[name].tolist() for name in names)
    return zip(*columns, strict=True)


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


class Collected(ImportedRecords):
    """Records of a data set while its rows are read."""

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
