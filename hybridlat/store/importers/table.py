"""Tables of whole-network latencies, CSV or Parquet, and what of a row does not fit."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from hybridlat.errors import MissingExtra, StoreError, TargetError
from hybridlat.schema.names import device_name, engine_name, precision_name, target_named
from hybridlat.schema.target import Target
from hybridlat.store.importers.columns import US_OF_UNIT, ColumnMap, as_text, completed

ENDINGS = (".csv", ".tsv", ".parquet")
Size = tuple[int, int]
_PARTS = ("device", "engine", "precision")


@dataclass(frozen=True)
class NetworkRow:
    """One latency of one network, microseconds for the whole batch.

    ``names`` are what its ONNX file may be called (without the ending), the likeliest first;
    ``batch`` and ``size`` (height, width) None: as the file has them. ``samples_us`` are single
    inferences where they are known. ``labels`` is what a record must tell later of its origin.
    """

    where: str
    names: tuple[str, ...]
    target: Target
    latency_us: float
    batch: int | None = None
    size: Size | None = None
    protocol: str = "published table"
    samples_us: tuple[float, ...] = ()
    spread_share: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """Something that cannot be imported: why, the value, what would help, and where it stands."""

    def __init__(self, reason: str, value: object, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.value, self.fix, self.where = reason, str(value), fix, ""

    def at(self, where: str) -> Refusal:
        """The same for a list of what was left out: it keeps no frame of the reading alive."""
        self.where, self.__context__ = where, None
        return self.with_traceback(None)


@dataclass(frozen=True)
class Rows:
    """What was read from tables or logs."""

    rows: list[NetworkRow] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def target_of(fields: Mapping[str, str], default: Target | None) -> Target:
    """The target of a row's fields (target, or device, engine, version, precision, threads).

    ``default`` gives the parts that the row does not state. Raises Refusal.
    """
    try:
        if fields.get("target"):
            return target_named(fields["target"])
        device = device_name(fields["device"]) if fields.get("device") else ""
        version = fields.get("version", "")
        engine = engine_name(fields["engine"], version) if fields.get("engine") else ""
        precision = precision_name(fields["precision"]) if fields.get("precision") else ""
    except TargetError as error:
        value = fields.get("target") or ", ".join(filter(None, map(fields.get, _PARTS)))
        raise Refusal(
            "what it was measured on cannot be read", value, f"{error}; a mapping of values helps"
        ) from None
    if default is not None:
        device, engine = device or default.device, engine or default.runtime
        precision = precision or default.precision
    missing = [n for n, v in zip(_PARTS, (device, engine, precision), strict=True) if not v]
    if missing:
        raise Refusal(
            "the device, engine or precision is not stated", " and ".join(missing) + " missing",
            "name the columns or give constants with --columns, or --target for all that is not "
            "stated",
        )  # fmt: skip
    threads = _count(fields, "threads") or (default.threads if default else None)
    return Target(device, engine, precision, threads)


def _count(fields: Mapping[str, str], name: str) -> int | None:
    """A field's whole number from 1 up, None where it is empty; Refusal for another text."""
    text = fields.get(name, "")
    if not text:
        return None
    match = re.fullmatch(r"\s*([0-9]{1,9})(\.0*)?\s*", text)
    if match is None or int(match[1]) < 1:
        raise Refusal(f"{name} is not a whole number from 1 up", text, f"correct {name}")
    return int(match[1])


def _positive_number(text: str, what: str) -> float:
    """A finite number above 0, with thousands set apart or not; Refusal for another text."""
    plain = re.sub(r"(?<=\d),(?=\d{3}(\D|$))", "", text.strip())
    try:
        value = float(plain)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e15:
        raise Refusal(f"the {what} is not a positive number", text, f"correct the {what}")
    return value


def _size(text: str) -> Size | None:
    """Height and width of ``224``, ``224x320`` or ``3x224x224``; Refusal for another text."""
    if not text:
        return None
    numbers = [int(n) for n in re.findall(r"[0-9]+", text)]
    form = r"[\s(\[]*[0-9]+([\s,x×*]+[0-9]+){0,3}[\s)\]]*"
    if not re.fullmatch(form, text, re.IGNORECASE) or min(numbers) < 1:
        raise Refusal("the size is not HEIGHTxWIDTH", text, "write it as 224x224")
    return (numbers[-2], numbers[-1]) if len(numbers) > 1 else (numbers[0], numbers[0])


def read_networks(
    paths: Iterable[Path], column_map: ColumnMap, default: Target | None = None
) -> Rows:
    """The rows of all tables at ``paths`` (files or folders), and those that cannot be read.

    ``default`` is the target of what the rows do not state. Raises StoreError for a file that is
    no such table, MissingExtra where reading Parquet needs a package.
    """
    read = Rows()
    for file in files_at(paths, ENDINGS, "tables"):
        header, lines = _read_table(file)
        columns = completed(column_map, file, header)
        for number, row in enumerate(lines, start=1):
            where = f"{file.name}, row {number}"
            try:
                read.rows.append(_row(where, row, columns, default))
            except Refusal as refusal:
                read.refused.append(refusal.at(where))
    return read


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


def _read_table(file: Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """The columns and rows of a CSV (comma, semicolon or tab) or Parquet file, as texts."""
    if file.suffix.lower() == ".parquet":
        rows = _read_parquet(file)
        texts = [{name: as_text(value) for name, value in row.items()} for row in rows]
        return tuple(rows[0] if rows else ()), texts
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StoreError(f"{file} is not text in UTF-8: save it so, or as Parquet") from None
    separator = max(",;\t", key=text.partition("\n")[0].count)
    try:
        lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        header = tuple(name.strip() for name in lines.fieldnames or ())
        lines.fieldnames = header
        table = [{name: as_text(row.get(name)) for name in header} for row in lines]
    except csv.Error as error:
        raise StoreError(f"{file} cannot be read as CSV: {error}") from None
    if not header:
        raise StoreError(f"{file} is empty: the first line names the columns")
    return header, table


def _read_parquet(file: Path) -> list[dict[str, object]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train", "reading Parquet") from error
    try:
        with parquet.ParquetFile(file) as opened:
            rows: list[dict[str, object]] = opened.read().to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        first = str(error).split("\n")[0]
        raise StoreError(f"{file} cannot be read as Parquet: {first}") from error
    return rows


def _row(
    where: str, row: Mapping[str, str], columns: ColumnMap, default: Target | None
) -> NetworkRow:
    fields = {}
    for name in {**columns.columns, **columns.constants}:
        text = row[columns.columns[name]] if name in columns.columns else ""
        text = columns.values.get(name, {}).get(text, text)
        fields[name] = text or columns.constants.get(name, "")
    name = PurePath(fields.get("onnx", "")).name or fields.get("network", "")
    if not name:
        raise Refusal("the row names no network", "", "fill in its name")
    target = target_of(fields, default)
    batch, height, width = (_count(fields, name) for name in ("batch", "height", "width"))
    size = (height, width) if height and width else _size(fields.get("size", ""))
    labels = {name: fields[name] for name in ("layout", "source", "note") if fields.get(name)}
    if fields.get("onnx") and fields.get("network"):
        labels["model"] = fields["network"]
    labels |= {name: row[name] for name in columns.labels if row[name]}
    latency_us = _latency_us(fields, columns, batch)
    names = (name.removesuffix(".onnx"),)
    return NetworkRow(where, names, target, latency_us, batch, size, labels=labels)


def _latency_us(fields: Mapping[str, str], columns: ColumnMap, batch: int | None) -> float:
    if fields.get("latency"):
        return _positive_number(fields["latency"], "latency") * US_OF_UNIT[columns.units["latency"]]
    if not fields.get("throughput"):
        raise Refusal("there is no latency", "", "fill it in")
    rate = _positive_number(fields["throughput"], "throughput")
    if batch is None:
        raise Refusal(
            "a throughput alone, and no batch", fields["throughput"],
            "add a column batch, or a constant with --columns",
        )  # fmt: skip
    return batch / rate * 1e6
