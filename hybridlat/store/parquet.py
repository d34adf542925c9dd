"""Records as Parquet files, for people with data frames. pyarrow is loaded when it is used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat.errors import MissingExtra, StoreError

if TYPE_CHECKING:
    import pyarrow as pa

_PURPOSE = "reading and writing Parquet"
_BATCH = 5000
#: Fields that are kept as JSON text: their keys differ from record to record.
_AS_JSON = ("environment", "labels")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train", _PURPOSE) from error
    return pyarrow


def _schema(pa: Any, table: str) -> pa.Schema:
    text, number, whole = pa.string(), pa.float64(), pa.int64()
    visit = pa.struct([("samples_us", pa.list_(number)), ("drift", number), ("process", whole)])
    counted = pa.list_(pa.struct([("signature", text), ("count", whole)]))
    return pa.schema(
        {
            "signatures": [("hash", text), ("text", text)],
            "measurements": [
                ("format", whole), ("target", text), ("signature", text), ("kind", text),
                ("latency_us", number), ("spread_share", number), ("visits", pa.list_(visit)),
                ("overhead_us", number), ("protocol", text), ("environment", text),
                ("measured_at", text), ("failure", text), ("labels", text),
            ],
            "breakdowns": [
                ("format", whole), ("target", text), ("network", text), ("signature", text),
                ("cells", counted), ("layers", counted), ("labels", text),
            ],
        }[table]
    )  # fmt: skip


def write_rows(path: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write the JSON rows of one table; how many. Raises MissingExtra without pyarrow."""
    pa = _pyarrow()
    schema = _schema(pa, table)
    count = 0
    with pa.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(_flat(row))
            count += 1
            if len(batch) == _BATCH:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema=schema))
    return count


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(row)
    for name in _AS_JSON:
        if name in flat:
            flat[name] = json.dumps(flat[name], sort_keys=True)
    for name in ("cells", "layers"):
        if name in flat:
            flat[name] = [{"signature": h, "count": n} for h, n in flat[name]]
    return flat


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON rows of a Parquet file that ``write_rows`` wrote; StoreError where it is damaged."""
    pa = _pyarrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                for row in batch.to_pylist():
                    yield _nested(row)
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        first = str(error).split("\n")[0]
        raise StoreError(f"{path} cannot be read as Parquet records: {first}") from error


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    for name in _AS_JSON:
        if name in row:
            row[name] = json.loads(row[name])
    for name in ("cells", "layers"):
        if name in row:
            row[name] = [[pair["signature"], pair["count"]] for pair in row[name]]
    return row
