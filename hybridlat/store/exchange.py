"""Packs and files of records out of a store and into one."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from hybridlat.errors import StoreError
from hybridlat.graph.signature import hash_of
from hybridlat.schema import wire
from hybridlat.schema.measurement import KINDS, Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import changes, codec, parquet, queries
from hybridlat.store.database import Database
from hybridlat.store.latencies import LatencyRow, aggregate
from hybridlat.store.packs import INFO_FILE, LOOKUP_FILE, PACK_FORMAT, PackLookup, file_digest

T = TypeVar("T")
Form = Literal["jsonl", "parquet"]
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """How many items were new to the store; ``read`` counts the records of the source."""

    signatures: int = 0
    measurements: int = 0
    breakdowns: int = 0
    read: int = 0

    def __add__(self, other: ImportCounts) -> ImportCounts:
        return ImportCounts(
            self.signatures + other.signatures,
            self.measurements + other.measurements,
            self.breakdowns + other.breakdowns,
            self.read + other.read,
        )


# ---- out ---------------------------------------------------------------------------------------


def export(
    database: Database,
    folder: Path,
    target: Target | None,
    form: Form,
    *,
    source: str,
    licence: str,
) -> list[Path]:
    """Write one pack per target (or of ``target``) below ``folder``; the packs' folders."""
    held = queries.targets(database)
    if target is not None and target not in held:
        known = ", ".join(map(str, held)) or "none at all"
        raise StoreError(f"the store has no records of {target}: it has {known}")
    return [
        _write_pack(database, one, folder / one.folder, form, source, licence)
        for one in (held if target is None else [target])
    ]


def _write_pack(
    database: Database, target: Target, folder: Path, form: Form, source: str, licence: str
) -> Path:
    """Write all records of ``target`` as a pack; the folder.

    ``pack.json`` is written last: a pack whose writing was cut off is not a pack, or names other
    files than it finds.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INFO_FILE).unlink(missing_ok=True)
        contents = _Contents()
        records = map(contents.see_record, queries.measurements(database, target))
        breakdowns = map(contents.see_breakdown, queries.breakdowns(database, target))
        counts = {
            "measurements": _write_table(folder, "measurements", form, records),
            "breakdowns": _write_table(folder, "breakdowns", form, breakdowns),
            "signatures": _write_table(
                folder, "signatures", form, _text_rows(database, contents.hashes)
            ),
        }
        _write_gzip(folder / LOOKUP_FILE, [_compact(contents.lookup())])
        suffix = "parquet" if form == "parquet" else "jsonl.gz"
        files = {f"{table}.{suffix}": {"rows": count} for table, count in counts.items()}
        files[LOOKUP_FILE] = {"rows": len(contents.rows)}
        info = {
            "format": PACK_FORMAT,
            "target": str(target),
            "records": counts["measurements"],
            "failures": contents.failures,
            "first": min(contents.times, default=""),
            "last": max(contents.times, default=""),
            "source": source,
            "licence": licence,
            "files": {
                name: {**entry, "sha256": file_digest(folder / name)}
                for name, entry in sorted(files.items())
            },
        }
        _replace(folder / INFO_FILE, (json.dumps(info, indent=1) + "\n").encode())
        for other in ("jsonl.gz", "parquet"):  # what an earlier export in the other form left
            for table in counts:
                if other != suffix:
                    (folder / f"{table}.{other}").unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"the pack {folder} cannot be written: {error.strerror}") from error
    return folder


class _Contents:
    """Collects what the look-up file and ``pack.json`` say while a pack is written."""

    def __init__(self) -> None:
        self.hashes: set[str] = set()
        self.rows: dict[tuple[str, str], list[LatencyRow]] = {}
        self.times: set[str] = set()
        self.failures = 0

    def see_record(self, record: Measurement) -> dict[str, object]:
        self.hashes.add(record.signature)
        row = (record.latency_us, record.spread_share, record.measured_at, record.failure)
        self.rows.setdefault((record.kind, record.signature), []).append(row)
        if record.measured_at:
            self.times.add(record.measured_at)
        self.failures += record.failure is not None
        return record.to_json()

    def see_breakdown(self, item: Breakdown) -> dict[str, object]:
        self.hashes.update(h for h, _ in (*item.cells, *item.layers))
        self.hashes.add(item.signature)
        return item.to_json()

    def lookup(self) -> dict[str, object]:
        return lookup_of(self.rows)


def lookup_of(rows: Mapping[tuple[str, str], list[LatencyRow]]) -> dict[str, object]:
    """The contents of a pack's look-up file, from the rows of each (kind, signature)."""
    good: dict[str, dict[str, list[float | None]]] = {kind: {} for kind in KINDS}
    failed: dict[str, dict[str, str | None]] = {kind: {} for kind in KINDS}
    for kind, signature in sorted(rows):
        known = aggregate(rows[kind, signature])
        if known.latency_us is None:
            failed[kind][signature] = known.failure
        else:
            good[kind][signature] = [known.latency_us, known.spread_share, known.records]
    return {"format": PACK_FORMAT, **good, "failures": failed}


def _text_rows(database: Database, hashes: Iterable[str]) -> Iterator[dict[str, str]]:
    for part in batches(sorted(hashes)):
        texts = queries.signature_texts(database, [codec.key(h) for h in part])
        yield from ({"hash": h, "text": texts[h]} for h in part if h in texts)


def _write_table(folder: Path, table: str, form: Form, rows: Iterable[Mapping[str, object]]) -> int:
    if form == "parquet":
        partial = folder / f"{table}.parquet.partial"
        count = parquet.write_rows(partial, table, rows)
        partial.replace(folder / f"{table}.parquet")
        return count
    return _write_gzip(folder / f"{table}.jsonl.gz", map(_compact, rows))


def _compact(row: Mapping[str, object]) -> str:
    return json.dumps(row, separators=(",", ":"), allow_nan=False)


def _write_gzip(path: Path, lines: Iterable[str]) -> int:
    """Write lines so that the same lines give the same bytes: no time and no name in the header."""
    partial = path.with_name(path.name + ".partial")
    count = 0
    with (
        partial.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as file,
    ):
        for line in lines:
            file.write(line.encode() + b"\n")
            count += 1
    partial.replace(path)
    return count


def _replace(path: Path, body: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(body)
    partial.replace(path)


# ---- in ----------------------------------------------------------------------------------------


def import_into(database: Database, path: Path) -> ImportCounts:
    """Add the records of a pack, a folder of packs, or a .jsonl, .jsonl.gz or .parquet file."""
    if path.is_dir():
        folders = [path] if (path / INFO_FILE).exists() else sorted(
            info.parent for info in path.glob(f"*/{INFO_FILE}")
        )  # fmt: skip
        if not folders:
            raise StoreError(f"{path} is not a pack and holds none: there is no {INFO_FILE}")
        return sum((_import_pack(database, PackLookup(f)) for f in folders), ImportCounts())
    if not path.exists():
        raise StoreError(f"{path} does not exist: give a pack folder, a .jsonl or a .parquet file")
    if path.suffix == ".parquet":
        return _import_rows(database, path, parquet.read_rows(path))
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return _import_rows(database, path, _loose_lines(path))
    raise StoreError(
        f"{path} is not something to import: give a pack folder, or a file that ends in .jsonl, "
        ".jsonl.gz or .parquet"
    )


def _import_pack(database: Database, pack: PackLookup) -> ImportCounts:
    for name, problem in pack.altered_files().items():
        raise pack.damaged(name, problem)
    texts = pack.all_signature_texts()
    counts = ImportCounts(signatures=_add_texts(database, texts, pack.folder))
    for records in batches(pack.measurements()):
        counts += ImportCounts(
            measurements=changes.add_measurements(database, records), read=len(records)
        )
    for items in batches(pack.breakdowns()):
        counts += ImportCounts(breakdowns=changes.add_breakdowns(database, items), read=len(items))
    return counts


def _add_texts(database: Database, texts: Iterable[tuple[str, str]], where: Path) -> int:
    count = 0
    for part in batches(texts):
        for hash_, text in part:
            if hash_of(text) != hash_:
                raise StoreError(
                    f"{where} is damaged: the text of signature {hash_} is not its own"
                )
        count += changes.add_signatures(database, dict(part))
    return count


def _import_rows(database: Database, path: Path, rows: Iterator[Any]) -> ImportCounts:
    """Import a loose file, whose signatures, records and breakdowns differ in their fields."""
    counts = ImportCounts()
    number = 0
    for part in batches(rows):
        texts: list[tuple[str, str]] = []
        records: list[Measurement] = []
        items: list[Breakdown] = []
        for row in part:
            number += 1
            where = f"{path}, record {number}"
            if isinstance(row, dict) and row.keys() == {"hash", "text"}:
                texts.append((str(row["hash"]), str(row["text"])))
            elif isinstance(row, dict) and "cells" in row:
                items.append(_read(Breakdown.from_json, row, where))
            else:
                records.append(_read(Measurement.from_json, row, where))
        counts += ImportCounts(
            signatures=_add_texts(database, texts, path),
            measurements=changes.add_measurements(database, records),
            breakdowns=changes.add_breakdowns(database, items),
            read=len(records) + len(items),
        )
    return counts


def _read(read: Callable[[object], T], row: object, where: str) -> T:
    try:
        return read(row)
    except ValueError as error:
        raise StoreError(f"{where} is damaged: {error}") from error


def _loose_lines(path: Path) -> Iterator[Any]:
    number = 0
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as lines:
            for line in lines:
                number += 1
                if line.strip():
                    yield wire.decode(line, object)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise StoreError(f"{path} cannot be read near line {max(number, 1)}: {error}") from error


def batches(items: Iterable[T], size: int = _BATCH) -> Iterator[list[T]]:
    """Lists of up to ``size`` items, one transaction's worth each."""
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part
