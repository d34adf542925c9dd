"""Tables as files: CSV in the ways that spreadsheets write it, and Parquet."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hybridlat.errors import MissingExtra, StoreError
from hybridlat.schema.files import read_bytes
from hybridlat.store.importers.cells import as_text, plain

MOST_ROWS = 1_000_000
"""What a table of networks stays far below."""


@dataclass(frozen=True)
class Sheet:
    """The cells of a table as texts, and the decimal sign that its separator stands for.

    A row may have fewer cells than the header, or more.
    """

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    decimal: str = "."


def read_sheet(file: Path) -> Sheet:
    """A CSV (comma, semicolon or tab) or Parquet file; StoreError for another."""
    sheet = _parquet(file) if file.suffix.lower() == ".parquet" else _csv(file)
    if not sheet.rows:
        what = "has no rows below its header" if sheet.header else "is empty"
        raise StoreError(f"{file} {what}: the first line names the columns, each other a network")
    return sheet


def encoding_of(data: bytes) -> str:
    """UTF-8, or UTF-16 by its mark at the start, which PowerShell may leave out."""
    if b"\0" in data[:2]:
        return "utf-16-be" if data[:1] == b"\0" else "utf-16-le"
    is_marked = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16" if is_marked else "utf-8-sig"


def text_of(file: Path) -> str:
    """A text in UTF-8 or UTF-16; StoreError for another file."""
    try:
        data = read_bytes(file)
        text = data.decode(encoding_of(data))
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StoreError(f"{file} is not text in UTF-8: save it so, or as Parquet") from None
    if "\0" in text:
        raise StoreError(f"{file} is not text in UTF-8 (it holds NUL): save it so, or as Parquet")
    return text


def _csv(file: Path) -> Sheet:
    """Excel's first line ``sep=;`` names the separator; lines that begin with # are comments."""
    text = text_of(file)
    declared = re.match(r'"?sep=([^\r\n])"?[ \t]*(?:\r\n?|\n|$)', text, re.IGNORECASE)
    text = re.sub(
        r"\A(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n?|\n))*", "", text[declared.end() if declared else 0 :]
    )
    firsts = {mark: len(next(csv.reader(_lines(text), delimiter=mark), ())) for mark in ",;\t"}
    separator = declared[1] if declared else max(firsts, key=firsts.__getitem__)
    if separator not in firsts:
        raise StoreError(f"{file} has the separator {separator!r}: use a comma, semicolon or tab")
    try:
        lines = [
            tuple(map(as_text, line))
            for line in csv.reader(_lines(text), delimiter=separator, strict=True)
        ]
    except csv.Error as error:
        raise StoreError(f"{file} cannot be read as CSV: {plain(error)}") from None
    header = _without_end(lines[0]) if lines else ()
    # A comma too many may be one of decimals: only empty cells below empty titles are dropped.
    width, most = len(header), len(lines[0]) if lines and separator == "," else None
    rows = [
        row[:width] + _without_end(row[width:most]) + row[most or len(row) :]
        for row in lines[1:]
        if any(row) and not row[0].startswith("#")
    ]
    return Sheet(header, rows, "." if separator == "," else ",")


def _lines(text: str) -> io.StringIO:
    return io.StringIO(text, newline=None)


def _without_end(cells: tuple[str, ...]) -> tuple[str, ...]:
    """The cells without the empty ones at the end."""
    return cells[: max((i for i, cell in enumerate(cells, 1) if cell), default=0)]


def _parquet(file: Path) -> Sheet:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "train", "reading Parquet") from error

    def text(scalar: pyarrow.Scalar) -> str:
        try:
            return as_text(scalar.as_py())
        except (ValueError, OverflowError, pyarrow.ArrowException):  # no UTF-8, no such date
            return "\N{REPLACEMENT CHARACTER}"

    try:
        with parquet.ParquetFile(file) as opened:
            if opened.metadata.num_rows > MOST_ROWS:
                raise StoreError(f"{file} has more than {MOST_ROWS:,} rows: split it")
            table = opened.read()
        header = tuple(name.strip() for name in table.schema.names)
        columns = [[text(scalar) for scalar in column] for column in table.columns]
    except (OSError, ValueError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
        raise StoreError(
            f"{file} cannot be read as Parquet: {plain(str(error).partition(chr(10))[0])}"
        ) from None
    return Sheet(header, list(zip(*columns, strict=True)))
