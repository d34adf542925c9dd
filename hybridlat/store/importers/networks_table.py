"""Tables of whole-network latencies, CSV or Parquet, whatever their columns are called."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from hybridlat.errors import MissingExtra, StoreError
from hybridlat.schema.target import Target
from hybridlat.store.importers.network_rows import (
    Misfit,
    NetworkRow,
    Refusal,
    Rows,
    positive_number,
    size_of,
    target_of,
    whole_number,
)
from hybridlat.store.importers.table_columns import ColumnMap, Layout, as_text, layout_of

ENDINGS = (".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class Table:
    """A file's columns and its rows, each column's name → text, from row 1 on."""

    header: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]


def read_networks(
    paths: Iterable[Path], columns: ColumnMap | None = None, default: Target | None = None
) -> Rows:
    """The rows of all tables at ``paths`` (files or folders), and those that cannot be read.

    ``default`` is the target of what the rows do not state. Raises StoreError for a file that is
    no such table, MissingExtra where reading Parquet needs a package.
    """
    columns = columns or ColumnMap()
    rows: list[NetworkRow] = []
    refused: list[Refusal] = []
    for file in files_at(paths, ENDINGS, "tables"):
        table = read_table(file)
        layout = layout_of(file, table.header, columns)
        for number, row in enumerate(table.rows, start=1):
            where = f"{file.name}, row {number}"
            try:
                rows.append(_row(where, row, layout, columns, default))
            except Misfit as misfit:
                refused.append(misfit.at(where))
    return Rows(tuple(rows), tuple(refused))


def files_at(paths: Iterable[Path], endings: Sequence[str], what: str) -> list[Path]:
    """The files at ``paths``, folders searched for these endings; StoreError for none."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(f for f in path.rglob("*") if f.suffix.lower() in endings)
            if not inside:
                raise StoreError(f"{path} holds no {what}: nothing in it ends in "
                                 + ", ".join(endings))  # fmt: skip
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise StoreError(f"{path} does not exist: give files or folders of {what}")
    return list(dict.fromkeys(files))


def read_table(file: Path) -> Table:
    """A CSV (comma, semicolon or tab) or Parquet file as texts; StoreError, MissingExtra."""
    if file.suffix.lower() == ".parquet":
        return _read_parquet(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StoreError(f"{file} is not text in UTF-8: save it so, or as Parquet") from None
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    try:
        lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        header = tuple(name.strip() for name in lines.fieldnames or ())
        lines.fieldnames = header
        rows = tuple({n: as_text(row.get(n)) for n in header} for row in lines)
    except csv.Error as error:
        raise StoreError(f"{file} cannot be read as CSV: {error}") from None
    if not header:
        raise StoreError(f"{file} is empty: the first line names the columns")
    return Table(header, rows)


def _read_parquet(file: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "train", "reading Parquet") from None
    try:
        table = pyarrow.parquet.read_table(file)
        rows = tuple({k: as_text(v) for k, v in row.items()} for row in table.to_pylist())
    except (OSError, pyarrow.ArrowException) as error:
        first = str(error).split("\n")[0]
        raise StoreError(f"{file} cannot be read as Parquet: {first}") from None
    return Table(tuple(table.column_names), rows)


def _row(
    where: str, row: Mapping[str, str], layout: Layout, columns: ColumnMap, default: Target | None
) -> NetworkRow:
    for column, wanted in columns.where.items():
        if row[column] not in wanted:
            raise Misfit(f"{column} is not among those asked for", row[column], "change [where]")
    fields = dict(_fields(row, layout, columns))
    names = _names(fields)
    target = target_of(fields, default)
    batch = whole_number(fields["batch"], "batch") if fields.get("batch") else None
    size = None
    if fields.get("height") and fields.get("width"):
        size = (whole_number(fields["height"], "height"), whole_number(fields["width"], "width"))
    elif fields.get("size"):
        size = size_of(fields["size"])
    labels = {name: fields[name] for name in ("layout", "source", "note") if fields.get(name)}
    if fields.get("onnx") and fields.get("network"):
        labels["model"] = fields["network"]
    labels |= {name: row[name] for name in columns.labels if row[name]}
    if note := columns.note_of(row, labels.get("note", "")):
        labels["note"] = note
    latency_us = _latency_us(fields, layout, batch)
    return NetworkRow(where, names, target, latency_us, batch, size, labels=labels)


def _fields(
    row: Mapping[str, str], layout: Layout, columns: ColumnMap
) -> Iterator[tuple[str, str]]:
    """What a row says of each field: its own word, ours for it, or the constant."""
    for name in {**layout.columns, **columns.constants}:
        text = row[layout.columns[name]] if name in layout.columns else ""
        text = columns.values.get(name, {}).get(text, text)
        yield name, text or columns.constants.get(name, "")


def _names(fields: Mapping[str, str]) -> tuple[str, ...]:
    if fields.get("onnx"):
        return (PurePath(fields["onnx"]).name.removesuffix(".onnx"),)
    if fields.get("network"):
        return (fields["network"].removesuffix(".onnx"),)
    raise Misfit("the row names no network", "", "fill in its name")


def _latency_us(fields: Mapping[str, str], layout: Layout, batch: int | None) -> float:
    if fields.get("latency"):
        return positive_number(fields["latency"], "latency") * layout.unit_us
    if not fields.get("throughput"):
        raise Misfit("there is no latency", "", "fill it in")
    rate = positive_number(fields["throughput"], "throughput")
    if batch is None:
        raise Misfit(
            "a throughput alone, and no batch", fields["throughput"],
            "add a column batch, or a constant with --columns",
        )  # fmt: skip
    return batch / rate * 1e6
