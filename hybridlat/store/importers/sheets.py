"""Tables by their columns: what each states, by its title, its cells or a mapping."""

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from hybridlat.errors import InputError, StoreError
from hybridlat.schema.plugins import shipped_table
from hybridlat.schema.shown import phrase_of
from hybridlat.store.importers import cells
from hybridlat.store.importers.cells import US_OF_UNIT, Roles
from hybridlat.store.importers.files import LONGEST_NOTE, csv_cells, parquet_cells

FIELDS: Mapping[str, Sequence[str]] = shipped_table("names")["columns"]
"""Fields, and the names by which their columns are known without a mapping."""
_NAMES = shipped_table("names")
_TITLES, _CELLS = (
    {name: re.compile(form, re.IGNORECASE) for name, form in _NAMES[table].items()}
    for table in ("columns_alike", "cells_alike")
)
_OBJECTIONS = [
    # Of a title, of its cells, and of the title of the latency.
    (reason, *(re.compile(form, re.IGNORECASE) for form in forms))
    for reason, forms in _NAMES["objections"].items()
]
_SIDES = _NAMES["sides"]["odd"]
STATED_ONCE = ("device", "engine", "precision", "threads", "batch", "size", "height", "width")
"""Fields that have one column or constant, whatever it is called; of others the first counts."""
_UNITS = "|".join(sorted(US_OF_UNIT, key=len, reverse=True))
_UNIT_IN_NAME = re.compile(rf"(.+?)(?: in |, ?|[ _-]?[ _(\[/-])({_UNITS})[)\]]?", re.IGNORECASE)
_UNIT_OF_ALL = re.compile(
    rf"(?i)\b(?:all|latenc\w+|values|units?)(?: \w+)?(?: (?:in|are)|[:=]) (?:in )?({_UNITS})\b"
)
_RENAMED = re.compile(r"(^Unnamed: |^Column ?|[._]?(?<!\d)|_duplicated_)[0-9]+$")
"""What pandas, R, DuckDB, Excel and Polars put behind the second of two equal titles."""


class ColumnMap(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping file: the column of each field, values of rows that state none, hybridlat's words
    for the table's, and ``labels``, further columns that records keep."""

    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str | int | float] = field(default_factory=dict)
    units: Mapping[Literal["latency"], Literal["ns", "us", "ms", "s"]] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str | int | float]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()


def read_column_map(path: Path) -> ColumnMap:
    """The mapping in a TOML file; InputError names what it cannot say, and the choices."""
    try:
        read = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), ColumnMap)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path} is no mapping: {phrase_of(error)} (it may hold tables of texts, "
            "[columns], [constants], [units] with latency = ns, us, ms or s and [values.FIELD], "
            "and a list of texts, labels)"
        ) from None
    except (RecursionError, ValueError) as error:  # also of UTF-8, or of thousands of digits
        raise InputError(f"{path} is not TOML: {error}") from None
    for name in ("columns", "constants", "values"):
        known = FIELDS.keys() - ({"latency", "throughput"} if name == "constants" else ())
        for unknown in getattr(read, name).keys() - known:
            why = f"{name} knows no field {unknown!r:.60}: choose from {', '.join(FIELDS)}"
            raise InputError(f"{path}: {why}")
    return read


@dataclass(frozen=True)
class Table:
    """The cells of a table as texts, and the ``places`` of the columns of its fields.

    ``comments`` are those on each row: of all, and of the part that they head.
    """

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    comments: Sequence[str]
    places: Mapping[str, int]
    roles: Mapping[str, Roles]
    unit: str
    column_map: ColumnMap

    @property
    def unread(self) -> Mapping[int, str]:
        """The titles of columns that are no field and no label, by their positions."""
        read = {*self.places.values(), *map(self.header.index, self.column_map.labels)}
        return {i: title for i, title in enumerate(self.header) if i not in read}

    def refuse_second_header(self, path: Path) -> None:
        """StoreError for a row that names columns: its figures and those below mean others."""
        titles = {title.casefold() for title in self.header if title}
        known = {*FIELDS["latency"], *FIELDS["throughput"]}
        for number, row in enumerate(self.rows, start=1):
            of = {name: row[i] for name, i in self.places.items() if i < len(row)}
            figures = [of[name] for name in ("latency", "throughput") if name in of]
            names = {of[name] for name in ("network", "onnx") if name in of}
            is_second = len(titles.intersection(map(str.casefold, row))) > 1
            is_second |= not known.isdisjoint(unit_of(figure)[0] for figure in figures)
            is_second |= number == 1 and names == {""} and not any(f[:1].isdigit() for f in figures)
            units = {US_OF_UNIT.get(figure.strip("()[] ").lower()) for figure in figures}
            is_second |= not units <= {None, US_OF_UNIT[self.unit]}
            if is_second and row != self.header:
                fix = "make two tables of it, or one header"
                raise StoreError(f"{path} has a second header in row {number}: {fix}")

    def refuse_lookalikes(self, path: Path) -> None:
        """StoreError for an unread column that states what no other does, and for sizes in MB."""
        place = -1 if "size" in self.column_map.columns else self.places.get("size", -1)
        if place >= 0 and self.header[place].lower() == "size":
            plain = [cell for row in self.rows for cell in row[place : place + 1]]
            numbers = [int(cell) for cell in plain if cell.isdecimal() and len(cell) < 10]
            if odd := [n for n in numbers if n < 24 or (n % 8 > 1 and n not in _SIDES)]:
                raise StoreError(f"{path} has a size of pixels or MB: {odd[0]}; name it input_size")
        known = {*self.places, *self.column_map.constants}
        known |= {"precision", "engine", "version", "device"} if "target" in known else set()
        known |= {"size"} if "height" in known else set()
        read = {self.header[i] for i in self.places.values()}
        for place, title in self.unread.items():
            texts = {row[place] for row in self.rows if "".join(row[place : place + 1])}
            twin = _RENAMED.sub("", title)
            if not twin and texts and all(text[:1].isdigit() for text in texts):
                twin = self.header[max(place - 1, 0)]  # whose heading may span both
            if twin in read:
                fix = "drop one, or make this one a label (--columns)"
                raise StoreError(f"{path} has {twin!r:.60} twice, also as {title!r:.60}: {fix}")
            units = {US_OF_UNIT.get(text.lower()) for text in texts}
            if texts and None not in units and units != {US_OF_UNIT[self.unit]}:
                why = f"{path} holds other units than {self.unit} in its column {title!r:.60}"
                raise StoreError(f"{why}: write all latencies in {self.unit}, and drop it")
            alike = [name for name, form in _TITLES.items() if form.fullmatch(plain_title(title))]
            alike += [n for n, form in _CELLS.items() if texts and all(map(form.fullmatch, texts))]
            named = [unit_of(title)[0]] if unit_of(title)[1] else texts  # a device as a column
            alike += ["device"] if named and all(map(cells.is_device, named)) else []
            for name in alike:
                if name not in known:
                    fix = f"name it {FIELDS[name][0]}, say what it is with --columns, or drop it"
                    why = f"{path} has a column {title!r:.60} that may be the {name}"
                    raise StoreError(f"{why}, and is not known as that: {fix}")


def check_run(unread: Mapping[int, str], row: Sequence[str], timed: str) -> None:
    """Refusal for a row whose other columns say that it is no plain run of one network."""
    fix = "drop the row, or make the column a label (--columns) if it changes nothing"
    for place, title in unread.items():
        cell = "".join(row[place : place + 1])[:LONGEST_NOTE]
        if reason := _objection(plain_title(title), cell, timed):
            raise cells.Refusal(reason, f"{title}: {cell}", fix)


@functools.lru_cache(1 << 16)
def _objection(*texts: str) -> str:
    """Why a title, a cell and the title of the latency are of no plain run; empty if they may."""
    each = (reason for reason, *of in _OBJECTIONS if all(map(re.Pattern.fullmatch, of, texts)))
    return next(each, "")


def differing(unread: Iterable[int], rows: Sequence[Sequence[str]]) -> Iterator[int]:
    """The columns that say in words what sets the rows apart: numbers and times count runs."""
    for place in unread:
        texts = {row[place] for row in rows}
        if len(texts) > 1 and not all(map(_is_number_or_time, texts)):
            yield place


def _is_number_or_time(text: str) -> bool:
    for read in (float, datetime.fromisoformat):
        with suppress(ValueError):
            read(text)
            return True
    return cells.parted(text)[1] != "" or not any(map(str.isalpha, text))


def read_table(path: Path, column_map: ColumnMap) -> Table:
    """A table with the columns of a mapping, and those that its header names by itself."""
    read = parquet_cells if path.suffix.lower() == ".parquet" else csv_cells
    header, rows, comments, decimal = read(path)
    if not rows:
        what = "has no rows below its header" if header else "is empty"
        raise StoreError(f"{path} {what}: the first line names the columns, each other a network")
    mapped = column_map.columns
    for column in (*mapped.values(), *column_map.labels):
        if (times := header.count(column)) != 1:
            raise StoreError(
                f"{path} has {'no column' if not times else f'{times} columns'} {column!r:.60}, "
                f"which the mapping names: it has {', '.join(header)}"
            )
    places = {name: header.index(column) for name, column in mapped.items()}
    free = [i for i, column in enumerate(header) if column not in mapped.values()]
    titles = {i: plain_title(header[i]) for i in free}
    is_rated = not {*titles.values()}.isdisjoint(FIELDS["throughput"])
    timed = {i: t for i in free for t, unit in [unit_of(header[i])] if unit or not is_rated}
    for name in FIELDS.keys() - mapped.keys():
        named = timed if name == "latency" else titles
        known = [i for alias in FIELDS[name] for i, title in named.items() if title == alias]
        stated = [header[i] for i in known if name in STATED_ONCE or named[i] == named[known[0]]]
        if known and name in column_map.constants:
            stated = [*stated, "the constant"] if name in STATED_ONCE else []
        if len(stated) > 1:
            raise StoreError(
                f"{path} states the {name} twice, by {' and '.join(stated)}: name the "
                "column that counts with --columns, or leave the others out"
            )
        if stated:
            places[name] = known[0]
    if not {"latency", "throughput"} & places.keys():
        raise StoreError(
            f"{path} has no column of latencies (latency_ms) or images_per_second (a throughput "
            f"may be of images, or of batches as trtexec's): it has {', '.join(header)}; rename "
            "one, or name it and its unit with --columns"
        )
    column = header[places["latency"]] if "latency" in places else "latency_us"
    own = unit_of(column)[1]
    unit = column_map.units.get("latency") or own
    if not unit or US_OF_UNIT[own or unit] != US_OF_UNIT[unit]:
        state = f"another than {unit}" if unit else "not stated"
        fix = 'write it as latency_ms, or add [units] latency = "ms" to the mapping (--columns)'
        raise StoreError(f"{path}: the unit of {column!r:.60} is {state}: {fix}")
    others = {u for text in {*comments} for u in _UNIT_OF_ALL.findall(text)}
    if odd := [other for other in others if US_OF_UNIT[other.lower()] != US_OF_UNIT[unit]]:
        raise StoreError(
            f"{path}: the unit of {column!r:.60} is {odd[0]} by a comment: correct one"
        )
    if not {"network", "onnx"} & {*places, *column_map.constants}:
        raise StoreError(
            f"{path} has no column network, model or onnx: rename it, or name it with --columns"
        )
    texts = {name: [row[i] for row in rows if i < len(row)] for name, i in places.items()}
    roles = {name: cells.roles_of(texts[name], decimal) for name in places}
    table = Table(header, rows, comments, places, roles, unit, column_map)
    table.refuse_second_header(path)
    table.refuse_lookalikes(path)
    return table


def unit_of(column: str) -> tuple[str, str]:
    """``latency_ms`` or ``Latency (ms)`` as (latency, ms); no unit, no second."""
    match = _UNIT_IN_NAME.fullmatch(" ".join(column.split()))
    return (plain_title(match[1]), match[2].lower()) if match else (plain_title(column), "")


def plain_title(column: str) -> str:
    """A title as the names of fields are written: ``Batch Size`` is batch_size."""
    return re.sub(r"\.?[\s_-]+", "_", column.strip().lower())
