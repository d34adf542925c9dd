"""Tables of whole-network latencies, CSV or Parquet, and what of a row does not fit."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path, PurePath
from typing import Any

from hybridlat.errors import HybridlatError, StoreError
from hybridlat.schema.names import MODES
from hybridlat.schema.shown import visible
from hybridlat.schema.target import Target
from hybridlat.store.importers import cells
from hybridlat.store.importers.cells import Refusal as Refusal
from hybridlat.store.importers.cells import Size as Size
from hybridlat.store.importers.files import files_at
from hybridlat.store.importers.notes import checked_note, stated_by
from hybridlat.store.importers.sheets import (
    ColumnMap,
    Table,
    check_run,
    differing,
    read_table,
    unit_of,
)

ENDINGS = (".csv", ".tsv", ".parquet")
_FILLED = (*cells.PARTS, "batch", "size")  # of merged cells all but one are empty
_PREDICTED = {"latency_us", "measured_share", "rests_on"}
"""Columns of the tables that predict, recommend and sweep write."""
HELD = ("clock", "memory_clock", "power_limit")
"""Fields in MHz, of the GPU and of its memory as nvidia-smi counts it."""
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
            refusal = Refusal("the table cannot be read", error, "correct it; the others are read")
            read.refused.append(refusal.at(file.name))
    return read


def _read_into(read: Rows, file: Path, column_map: ColumnMap, default: Target | None) -> None:
    table = read_table(file, column_map)
    if _PREDICTED.issubset(table.header) and "latency" not in column_map.columns:
        fix = "name a column of measured ones with --columns"
        raise StoreError(f"{file} holds latencies that hybridlat predicted: {fix}")
    unread = table.unread
    if titles_of := visible(", ".join(filter(None, unread.values()))):
        read.notes.append(f"{file.name}: not read are the columns {titles_of}")
    noted = (table.places[name] for name in ("note", "source") if name in table.places)
    titles = {place: table.header[place] for place in noted}
    beside = {place: title for place, title in titles.items() if title not in column_map.labels}
    beside |= {**unread, len(table.header): "comment"}
    timed = unit_of(table.header[table.places["latency"]])[0] if "latency" in table.places else ""
    may_be_merged = {table.places[name] for name in _FILLED if name in table.places}
    heading, merged = "", dict[int, str]()
    alike: dict[str, list[tuple[NetworkRow, Sequence[str]]]] = defaultdict(list)
    for number, (row, comment) in enumerate(zip(table.rows, table.comments, strict=True), start=1):
        where, one = f"{file.name}, row {number}", _Row(row, table, comment)
        part, fix = one.heading(), "say in a column what it says, or drop it"
        merged |= {i: cell for i, cell in enumerate(row) if cell and i in may_be_merged}
        try:
            if heading and not part:
                raise Refusal("the row stands below a heading", heading, fix)
            heading = part or heading
            check_run(beside, (*row, comment), timed)
            network_row = one.network(where, default)
            filled = tuple(merged.get(place, cell) for place, cell in enumerate(row))
            if replace(one, cells=filled).network(where, default) != network_row:
                value = ", ".join({*filled}.difference(row))
                fix = "fill it in: it may be as above, or as --target and the file have it"
                raise Refusal("a cell is empty below a filled one", value, fix)
        except Refusal as refusal:
            read.refused.append(refusal.at(where))
            continue
        key = repr(replace(network_row, where="", latency_us=0.0))
        alike[key].append((network_row, (*row, comment)))
    fallen = _fallen(file, [one for rows in alike.values() for one, _ in rows])
    read.refused.extend(fallen.values())
    unread = {**unread, len(table.header): "comment"}
    for every in alike.values():
        rows = [(one, row) for one, row in every if one.where not in fallen]
        place = next(differing(unread, [row for _, row in rows]), None)
        if place is not None:
            title = unread[place] or "a column without title"
            why = f"rows of one network differ in {title}, not read"
            fix = "keep those that are meant, or make it a label (--columns) if it changes nothing"
            read.refused.extend(Refusal(why, row[place], fix).at(one.where) for one, row in rows)
        else:
            read.rows.extend(one for one, _ in rows)


def _fallen(file: Path, rows: Iterable[NetworkRow]) -> dict[str, Refusal]:
    """Why rows are left out whose latency falls as the batch grows, by where they stand.

    One batch alone may be wrong. StoreError where more networks fall than rise, as those do
    whose latencies are of single images.
    """
    alike: dict[str, list[NetworkRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: -row.latency_us):
        alike[repr(replace(row, where="", latency_us=0, batch=None))].append(row)
    left_out, rising, falls = dict[str, Refusal](), 0, list[str]()
    why = "the latency falls as the batch grows, as one of a single image does"
    fix = "correct it, or write that of the whole batch"
    for group in alike.values():
        us = dict(sorted({row.batch or 1: row.latency_us for row in group}.items()))
        pairs = [(one, two) for one, two in combinations(us, 2) if us[two] < _LEAST_RISE * us[one]]
        odd = set.intersection(*map(set, pairs)) if pairs else set[int]()
        odd = {one for one in odd if _rises({batch: us[batch] for batch in us if batch != one})}
        rising += bool(odd) or (not pairs and _rises(us))
        of = ", ".join(f"{us[batch] / 1e3:g} ms at {batch}" for pair in pairs[:1] for batch in pair)
        falls += [f"{group[0].names[0]}: {of}"] * bool(pairs and not odd)
        for row in group:
            if pairs and (row.batch or 1) in (odd or us):
                left_out[row.where] = Refusal(why, of, fix).at(row.where)
    if len(falls) > rising:
        raise StoreError(f"{file}: {why} ({falls[0]}): write that of the whole batch")
    return left_out


def _rises(us: Mapping[int, float]) -> bool:
    return len(us) > 1 and us[min(us)] < _LEAST_RISE * us[max(us)]


@dataclass(frozen=True)
class _Row:
    """The cells of a row by the fields of a table."""

    cells: Sequence[str]
    table: Table
    comment: str = ""

    def heading(self) -> str:
        """What a row says that names no latency, but what rows below it are of; empty for none."""
        filled = {cell for cell in self.cells if cell.strip("-")}
        if len(filled) == 1 < len({*filter(None, self.table.header)}) - 1:
            return filled.pop()
        of = {name: "".join(self.cells[i : i + 1]) for name, i in self.table.places.items()}
        for name in ("latency", "throughput"):
            figure = re.match("(?i)[^a-z0-9]*[0-9]([^a-z]*$)?", of.get(name, ""))
            if figure and (figure[1] is not None or not stated_by(of[name])[1]):
                return ""
        named = {name: of[name] for name in (*_FILLED, "network", "onnx") if name in of}
        odd = (stated_by(text)[1] - {name, "exporter"} for name, text in named.items())
        return ", ".join(filter(None, self.cells)) if any(odd) else ""

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
        note = f"{labels.get('note', '') * ('note' not in kept)}; {self.comment}"
        size, held_by = checked_note(note, target, batch, size)
        labels = {**held_by, **labels}
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
            device, slash, rest = stated[part].partition("/" if part == "target" else "\n")
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
