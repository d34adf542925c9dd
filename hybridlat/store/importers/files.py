"""Files of tables and logs: where they lie, texts, CSV as spreadsheets write it, and Parquet."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hybridlat.errors import MissingExtra, StoreError
from hybridlat.schema.files import read_bytes
from hybridlat.schema.shown import visible
from hybridlat.store.importers.cells import as_text

MOST_ROWS = 1_000_000
"""What a table of networks stays far below."""
LONGEST_NOTE = 4000  # letters, of all rows and of the part, whose comments are the last
_BESIDE = (".onnx", ".data", ".toml")  # files beside tables and logs that are none


def files_at(
    paths: Iterable[Path], endings: Sequence[str], what: str, notes: list[str]
) -> list[Path]:
    """The files at ``paths``, folders searched for these endings; StoreError for none there.

    ``notes`` gets a sentence on other files of the folders, networks and hidden ones aside.
    """
    files, others, choices = list[Path](), list[str](), ", ".join(endings)
    for path in paths:
        inside = sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else []
        known = [file for file in inside if file.suffix.lower() in endings]
        if path.is_dir() and not known:
            raise StoreError(f"{path} holds no {what}: nothing in it ends in {choices}")
        files += known or [path]
        odd = {file.name for file in inside if file.suffix.lower() not in (*endings, *_BESIDE)}
        others += sorted(name for name in odd if not name.startswith("."))
    if others:
        notes.append(f"not read are {visible(', '.join(others))}: {what} end in {choices}")
    return list(dict.fromkeys(files))


def encoding_of(data: bytes) -> str:
    """UTF-8, or UTF-16 by its mark at the start, which PowerShell may leave out."""
    if b"\0" in data[:2]:
        return "utf-16-be" if data[:1] == b"\0" else "utf-16-le"
    return "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def text_of(file: Path) -> str:
    """A text in UTF-8 or UTF-16; StoreError for another file."""
    try:
        data = read_bytes(file)
        text = data.decode(encoding_of(data))
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise StoreError(f"{file} is not text in UTF-8, or holds NUL: save it so, or as Parquet")
    return text


Cells = tuple[tuple[str, ...], list[tuple[str, ...]], list[str], str]
"""The header and the rows of a file, the comments on each, and the decimal sign of its numbers."""


def csv_cells(file: Path) -> Cells:
    """The cells between commas, semicolons or tabs; ``sep=;`` names it, # begins a comment."""
    text = text_of(file)
    declared = re.match(r'"?sep=([^\r\n])"?[ \t]*(?:\r\n?|\n|$)', text, re.IGNORECASE)
    text = text[declared.end() if declared else 0 :]
    start = re.match(r"(?:[ \t]*(?:#(?![,;\t])[^\r\n]*)?(?:\r\n?|\n))*", text)
    text, of_all = text[start.end() :] if start else text, [start[0]] if start else []
    split = list(io.StringIO(text, newline=None))
    try:
        firsts = {mark: len(next(csv.reader(split, delimiter=mark), ())) for mark in ",;\t"}
        separator = declared[1] if declared else max(firsts, key=firsts.__getitem__)
        if separator not in firsts:
            raise StoreError(f"{file} has the separator {separator!r}: use comma, semicolon or tab")
        read = csv.reader(split, delimiter=separator, strict=True)
        lines = [tuple([cell.strip() for cell in line]) for line in read]
    except csv.Error as error:  # a quote that never ends, or a field beyond csv's own limit
        raise StoreError(f"{file} cannot be read as CSV: {error}") from None
    header = _without_end(lines[0]) if lines else ()
    # A comma too many may be one of decimals: only empty cells below empty titles are dropped.
    width, most = len(header), len(lines[0]) if lines and separator == "," else None
    rows, comments, of_part, is_begun = list[tuple[str, ...]](), list[str](), list[str](), False
    for row in filter(any, lines[1:]):
        if row[0].startswith("#"):
            of_part, is_begun = [*of_part * (not is_begun), ", ".join(row)], False
        else:
            is_begun = True
            rows.append(row[:width] + _without_end(row[width:most]) + row[most or len(row) :])
            comments.append("\n".join(of_part))
    of_all += of_part * (not is_begun)  # below all rows
    whole = {one: "\n".join([*of_all, one])[-LONGEST_NOTE:] for one in {*comments}}
    whole = {one: re.sub(r"[\s#]*\n[\s#]*|^[\s#]+", "; ", text) for one, text in whole.items()}
    return header, rows, [*map(whole.__getitem__, comments)], "." if separator == "," else ","


def _without_end(cells: tuple[str, ...]) -> tuple[str, ...]:
    """The cells without the empty ones at the end."""
    return cells[: max((i for i, cell in enumerate(cells, 1) if cell), default=0)]


def parquet_cells(file: Path) -> Cells:
    """The cells of Parquet, as texts."""
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
            f"{file} cannot be read as Parquet: {str(error).partition(chr(10))[0]}"
        ) from None
    return header, list(zip(*columns, strict=True)), [""] * table.num_rows, "."
