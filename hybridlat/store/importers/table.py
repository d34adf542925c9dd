"""Tables of whole-network latencies, CSV or Parquet, and what of a row does not fit."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from hybridlat.errors import HybridlatError, StoreError
from hybridlat.schema.names import MODES
from hybridlat.schema.shown import visible
from hybridlat.schema.target import Target
from hybridlat.store.importers import cells
from hybridlat.store.importers.cells import Refusal as Refusal
from hybridlat.store.importers.cells import Size as Size
from hybridlat.store.importers.sheets import OBJECTIONS, ColumnMap, Table, plain_title, read_table

ENDINGS = (".csv", ".tsv", ".parquet")
_FILLED = (*cells.PARTS, "batch", "size")  # of merged cells all but one are empty
_PREDICTED = {"latency_us", "measured_share", "rests_on"}
"""Columns of the tables that predict, recommend and sweep write."""
HELD = ("clock", "memory_clock", "power_limit")
"""Fields in MHz, of the GPU and of its memory as nvidia-smi counts it."""
_BESIDE = (".onnx", ".data", ".toml")  # files beside tables and logs that are none
ANY_NETWORK = re.compile("model|network|net|end2end|best|last|export|output|simplified")
"""What tools call the file of any network."""
_FAR = 10.0  # times that images a second may be off the latency beside them: hosts may wait
_LEAST_RISE = 0.7  # of the latency of a batch to that of a smaller one, but for noise
_MODE = re.compile(r"(?i)[0-9] ?w|max-?[npq]|super")


@dataclass(frozen=True)
class NetworkRow:
    """One latency of one network, microseconds for the whole batch.

    ``names`` are what its ONNX file may be called (without the ending), the likeliest first;
    ``batch`` and ``size`` (height, width) None: as the file has them. ``samples_us`` are single
    inferences, ``labels`` tell of its origin, ``facts`` are its ``launch``, ``copies`` and
    ``suspect``, ``shapes`` whole ones of inputs. Where the types of the file are the precision,
    ``typed`` holds those that it may be.
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
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    typed: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sized(self) -> tuple[object, ...]:
        """The network at its sizes, as far as the row tells: equal ones are read once."""
        return self.names, self.batch or 0, self.size or (), tuple(sorted(self.shapes.items()))


@dataclass(frozen=True)
class Rows:
    """What was read from tables or logs."""

    rows: list[NetworkRow] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_networks(
    paths: Iterable[Path], column_map: ColumnMap, default: Target | None = None
) -> Rows:
    """The rows of all tables at ``paths`` (files or folders), and those that cannot be read."""
    read = Rows()
    files = files_at(paths, ENDINGS, "tables", read.notes)
    for file in files:
        try:
            _read_into(read, file, column_map, default)
        except HybridlatError as error:
            if len(files) == 1:
                raise
            fix = "correct it; the other files are read"
            read.refused.append(Refusal("the table cannot be read", error, fix).at(file.name))
    return read


def _read_into(read: Rows, file: Path, column_map: ColumnMap, default: Target | None) -> None:
    table = read_table(file, column_map)
    if _PREDICTED.issubset(table.header) and "latency" not in column_map.columns:
        fix = "name a column of measured ones with --columns"
        raise StoreError(f"{file} holds latencies that hybridlat predicted: {fix}")
    unread = table.unread
    if titles_of := visible(", ".join(filter(None, unread.values()))):
        read.notes.append(f"{file.name}: not read are the columns {titles_of}")
    noted = table.places.get("note", -1)
    is_read = noted < 0 or table.header[noted] in column_map.labels
    beside = unread if is_read else {**unread, noted: table.header[noted]}
    heading, empty = "", Counter[str]()
    alike: dict[str, list[tuple[NetworkRow, Sequence[str]]]] = defaultdict(list)
    for number, row in enumerate(table.rows, start=1):
        where, filled = f"{file.name}, row {number}", {cell for cell in row if cell.strip("-")}
        try:
            if len(filled) == 1 < len({*filter(None, table.header)}) - 1:
                (heading,) = filled
            elif heading:
                fix = "say in a column what it says, or drop it"
                raise Refusal("the row stands below a heading", heading, fix)
            _check_run(beside, row)
            one = _Row(row, table).network(where, default)
        except Refusal as refusal:
            read.refused.append(refusal.at(where))
            continue
        alike[repr(replace(one, where="", latency_us=0.0))].append((one, row))
        empty.update(n for n in _FILLED if n in table.places and not row[table.places[n]])
    if fall := _fall(one for rows in alike.values() for one, _ in rows):
        why = "the latency falls as the batch grows, as one of a single image does"
        raise StoreError(f"{file}: {why} ({fall}): write that of the whole batch")
    for rows in alike.values():
        place = next(cells.differing(unread, [row for _, row in rows]), None)
        if place is not None:
            title = unread[place] or "a column without title"
            why = f"rows of one network differ in {title}, not read"
            fix = "keep those that are meant, or make it a label (--columns) if it changes nothing"
            read.refused.extend(Refusal(why, row[place], fix).at(one.where) for one, row in rows)
        else:
            read.rows.extend(one for one, _ in rows)
    if empty:
        counts = ", ".join(f"{count} of {name}" for name, count in empty.items())
        read.notes.append(f"{file.name}: empty cells are as --target or the file has it: {counts}")


def _fall(rows: Iterable[NetworkRow]) -> str:
    """The first latency that is well below that of the network's least batch; empty for none."""
    least: dict[str, NetworkRow] = {}
    for row in sorted(rows, key=lambda row: (row.batch or 1, row.latency_us)):
        one = least.setdefault(repr(replace(row, where="", latency_us=0, batch=None)), row)
        if row.latency_us < _LEAST_RISE * one.latency_us and row.batch != one.batch:
            of = (f"{each.latency_us / 1e3:g} ms at {each.batch or 1}" for each in (one, row))
            return f"{row.names[0]}: {', '.join(of)}"
    return ""


def _check_run(unread: Mapping[int, str], row: Sequence[str]) -> None:
    """Refusal for a row whose other columns say that it is no plain run of one network."""
    fix = "drop the row, or make the column a label (--columns) if it changes nothing"
    for place, title in unread.items():
        cell, name = "".join(row[place : place + 1]), plain_title(title)
        for reason, title_form, form in OBJECTIONS:
            if title_form.fullmatch(name) and form.fullmatch(cell):
                raise Refusal(reason, f"{title}: {cell}", fix)


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


@dataclass(frozen=True)
class _Row:
    """The cells of a row by the fields of a table."""

    cells: Sequence[str]
    table: Table

    def network(self, where: str, default: Target | None) -> NetworkRow:
        table = self.table
        if (count := len(self.cells)) != (width := len(table.header)):
            why = "the row has not as many cells as the table has columns"
            value = f"{count} of {width} cells: {', '.join(self.cells)}"
            fix = "fill it up, and put cells that hold the separator in quotes"
            raise Refusal(why, value, fix)
        onnx, network = self.text("onnx"), self.text("network")
        if not (name := str(PurePath(onnx.replace("\\", "/"))) if onnx else network):
            raise Refusal("the row names no network", "", "fill in its name")
        target = cells.target_of(self.stated(default), default, self.count("threads"))
        batch, size = self.batch_and_size()
        labels = {name: text for name in ("layout", "source", "note") if (text := self.text(name))}
        if onnx and network:
            labels["model"] = network
        for held in HELD:
            if text := re.sub("(?i) ?(mhz|w)$", "", self.text(held)):
                labels[held] = f"{cells.positive(text, held, table.roles.get(held, {})):g}"
        kept = {name: self.cells[table.header.index(name)] for name in table.column_map.labels}
        labels |= {name: text for name, text in kept.items() if text}
        stated = {name: self.text(name) for name in ("copies", "suspect", "launch")}
        facts: dict[str, Any] = {name: cells.truth(text) for name, text in stated.items() if text}
        if "launch" in facts:
            facts["launch"] = "graph" if facts["launch"] else "stream"
        if labels.keys() - kept.keys() >= {"note"}:
            cells.refuse_note(labels["note"], target, batch, size)
        names, latency_us = (name.removesuffix(".onnx"),), self.latency_us(batch)
        return NetworkRow(where, names, target, latency_us, batch, size, labels=labels, facts=facts)

    def stated(self, default: Target | None) -> dict[str, str]:
        """What states the target: devices with their boards' names and power modes."""
        stated = {part: self.text(part) for part in ("target", *cells.PARTS, "version")}
        if (mode := self.text("mode")) and not _MODE.search(mode):
            raise Refusal("the power mode is not known", mode, "write it as 15W or MAXN")
        if mode and default and not (stated["target"] or stated["device"]):
            stated["device"] = MODES.sub("", default.device)
        for part in ("device", "target"):
            device, slash, rest = stated[part].partition("/")
            if device := cells.board(device, default):
                stated[part] = f"{device}{'@' * bool(mode)}{mode}{slash}{rest}"
        return stated

    def text(self, name: str) -> str:
        """What the column of a field states, else its constant."""
        places, column_map = self.table.places, self.table.column_map
        cell = self.cells[places[name]] if name in places else ""
        cell = cells.as_text(column_map.values.get(name, {}).get(cell, cell))
        return cell or cells.as_text(column_map.constants.get(name))

    def count(self, name: str) -> int | None:
        text = self.text(name)
        return cells.count(text, name, self.table.roles.get(name, {})) if text else None

    def batch_and_size(self) -> tuple[int | None, Size | None]:
        """The batch, which a size of four numbers states too, and height and width."""
        batch, height, width = map(self.count, ("batch", "height", "width"))
        size = self.text("size")
        first, sides = cells.shape(size) if size else (None, None)
        if (height is None) != (width is None):
            raise Refusal("a height or a width alone", height or width, "fill in both")
        known = (height, width) if height and width else None
        for one, other, name in ((batch, first, "batch"), (known, sides, "size")):
            if one and other and one != other:
                value = f"{name} {one}, {size}"
                raise Refusal("the row contradicts itself", value, "correct one of them")
        return batch or first, known or sides

    def latency_us(self, batch: int | None) -> float:
        """The latency, or that of a throughput at the batch."""
        roles, rate_text = self.table.roles, self.text("throughput")
        if text := self.text("latency"):
            latency_us = cells.latency_us(text, self.table.unit, roles["latency"])
            rate = cells.number(rate_text, "throughput", roles["throughput"]) if rate_text else -1.0
            images = rate * latency_us / 1e6
            # Nearer to one image in this time than to the batch, or in another unit.
            least = 1 / _FAR if batch == 1 else math.sqrt(batch or 1)
            if batch and images > 0 and not least <= images <= _FAR * batch:
                value = f"{text} for a batch of {batch}, {rate_text} images a second"
                fix = "write the latency of the whole batch, or drop one of the columns"
                raise Refusal("the row contradicts itself", value, fix)
            return latency_us
        if not (text := rate_text):
            raise Refusal("there is no latency", "", "fill it in")
        rate = cells.positive(text, "throughput", roles["throughput"])
        if batch is None:
            raise Refusal("a throughput alone, and no batch", text, "add a column batch")
        return cells.latency_us(repr(batch / rate), "s", {".": True})
