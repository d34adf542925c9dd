"""Rows of JSON objects in files: JSON Lines (``.jsonl``, ``.jsonl.gz``) and Parquet.

The Parquet is for people with data frames; pyarrow is loaded when it is used.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from hybridlat.errors import MissingExtra, StoreError
from hybridlat.schema import wire

T = TypeVar("T")
Form = Literal["jsonl", "parquet"]
ENDINGS: Mapping[Form, str] = {"jsonl": "jsonl.gz", "parquet": "parquet"}
_BATCH = 5000
#: Fields that Parquet keeps as JSON text, for their keys differ from record to record, and pairs.
_AS_JSON = ("environment", "labels")
_PAIRS = ("cells", "layers")


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of up to ``size`` items."""
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part


def write(folder: Path, table: str, form: Form, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a table's rows into ``folder``; how many. Raises MissingExtra without pyarrow."""
    path = folder / f"{table}.{ENDINGS[form]}"
    partial = path.with_name(f"{path.name}.partial")
    count = (_write_parquet if form == "parquet" else write_gzip)(partial, rows)
    partial.replace(path)
    return count


def write_gzip(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """The same rows give the same bytes: there is no time and no name in the header."""
    count = 0
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as file,
    ):
        for row in rows:
            text = json.dumps(row, separators=(",", ":"), allow_nan=False)
            file.write(text.encode() + b"\n")
            count += 1
    return count


def read(path: Path) -> Iterator[Any]:
    """The rows of a file; StoreError where it is damaged, MissingExtra without pyarrow."""
    number = 0
    try:
        if path.suffix == ".parquet":
            for row in read_parquet(path):
                number += 1
                yield _nested(row)
            return
        opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as lines:
            for line in lines:
                number += 1
                if line.strip():
                    yield wire.decode(line, object)
    except (OSError, EOFError, zlib.error, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path} is damaged near line {max(number, 1)}: {error}") from error


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train", "reading and writing Parquet") from error
    return pyarrow


def _write_parquet(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Part by part, for as columns they take a fifth of the memory."""
    pa = _pyarrow()
    parts = [pa.Table.from_pylist(part) for part in batches(map(_flat, rows), _BATCH)]
    # A column without a value in one part gets the type that it has in others.
    table = pa.concat_tables(parts or [pa.table({})], promote_options="permissive")
    pa.parquet.write_table(table, path, compression="zstd")
    return int(table.num_rows)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(row)
    for name in flat.keys() & _AS_JSON:
        flat[name] = json.dumps(flat[name], sort_keys=True)
    for name in flat.keys() & _PAIRS:
        flat[name] = [{"signature": h, "count": n} for h, n in flat[name]]
    return flat


def read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of any Parquet file."""
    pa = _pyarrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        first = str(error).split("\n")[0]
        raise StoreError(f"{path} cannot be read as Parquet: {first}") from error


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    for name in row.keys() & _AS_JSON:
        row[name] = json.loads(row[name])
    for name in row.keys() & _PAIRS:
        row[name] = [[pair["signature"], pair["count"]] for pair in row[name]]
    return row
