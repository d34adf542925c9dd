"""Packs and files of records out of a store and into one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hybridlat.errors import StoreError
from hybridlat.graph.signature import hash_of
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import rows
from hybridlat.store.importers import ImportedRecords
from hybridlat.store.packs import (
    INFO_FILE,
    LOOKUP_FILE,
    PACK_FORMAT,
    PackLookup,
    file_digest,
    lookup_of,
)
from hybridlat.store.records import LatencyRow, Records, row_of
from hybridlat.store.rows import ENDINGS, Form, batches

T = TypeVar("T")
BATCH = 1000
"""Records of one transaction."""


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """How many items were new to the store; ``read`` counts the records of the source."""

    signatures: int = 0
    measurements: int = 0
    breakdowns: int = 0
    read: int = 0


# ---- out ---------------------------------------------------------------------------------------


def export(
    records: Records,
    folder: Path,
    target: Target | None,
    form: Form,
    *,
    source: str,
    licence: str,
) -> list[Path]:
    """Write one pack per target (or of ``target``) below ``folder``; the packs' folders."""
    held = records.targets()
    if target is not None and target not in held:
        known = ", ".join(map(str, held)) or "none at all"
        raise StoreError(f"the store has no records of {target}: it has {known}")
    return [
        _write_pack(records, one, folder / one.folder, form, source, licence)
        for one in (held if target is None else [target])
    ]


def _write_pack(
    records: Records, target: Target, folder: Path, form: Form, source: str, licence: str
) -> Path:
    """Write all records of ``target`` as a pack; the folder.

    ``pack.json`` is written last: a pack whose writing was cut off is not a pack, or names other
    files than it finds.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INFO_FILE).unlink(missing_ok=True)
        contents = _Contents()
        tables: dict[str, Iterable[dict[str, Any]]] = {
            "measurements": map(contents.see_record, records.measurements(target)),
            "breakdowns": map(contents.see_breakdown, records.breakdowns(target)),
            "signatures": contents.texts(records),
        }
        counts = {table: rows.write(folder, table, form, of) for table, of in tables.items()}
        partial = folder / f"{LOOKUP_FILE}.partial"
        rows.write_gzip(partial, [lookup_of(contents.rows)])
        partial.replace(folder / LOOKUP_FILE)
        files = {f"{table}.{ENDINGS[form]}": count for table, count in counts.items()}
        files[LOOKUP_FILE] = len(contents.rows)
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
                name: {"rows": count, "sha256": file_digest(folder / name)}
                for name, count in sorted(files.items())
            },
        }
        partial = folder / f"{INFO_FILE}.partial"
        partial.write_bytes((json.dumps(info, indent=1) + "\n").encode())
        partial.replace(folder / INFO_FILE)
        for other in ENDINGS.keys() - {form}:  # what an earlier export in the other form left
            for table in tables:
                (folder / f"{table}.{ENDINGS[other]}").unlink(missing_ok=True)
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

    def see_record(self, record: Measurement) -> dict[str, Any]:
        self.hashes.add(record.signature)
        self.rows.setdefault((record.kind, record.signature), []).append(row_of(record))
        if record.measured_at:
            self.times.add(record.measured_at)
        self.failures += record.failure is not None
        return record.to_json()

    def see_breakdown(self, item: Breakdown) -> dict[str, Any]:
        self.hashes.update(h for h, _ in (*item.cells, *item.layers))
        self.hashes.add(item.signature)
        return item.to_json()

    def texts(self, records: Records) -> Iterator[dict[str, str]]:
        for part in batches(sorted(self.hashes), BATCH):
            texts = records.signature_texts(part)
            yield from ({"hash": h, "text": texts[h]} for h in part if h in texts)


# ---- in ----------------------------------------------------------------------------------------


def read(path: Path) -> Iterator[ImportedRecords]:
    """The records of a pack, a folder of packs, or a .jsonl, .jsonl.gz or .parquet file, in parts.

    StoreError for anything else, and where some of it is damaged.
    """
    if path.is_dir():
        folders = [path] if (path / INFO_FILE).exists() else sorted(
            info.parent for info in path.glob(f"*/{INFO_FILE}")
        )  # fmt: skip
        if not folders:
            raise StoreError(f"{path} is not a pack and holds none: there is no {INFO_FILE}")
        for pack in map(PackLookup, folders):
            for name, problem in pack.altered_files().items():
                raise pack.damaged(name, problem)
            for table in ("signatures", "measurements", "breakdowns"):
                yield from _parts(pack.rows(table), f"{pack.folder}, {table}")
    elif not path.exists():
        raise StoreError(f"{path} does not exist: give a pack folder, a .jsonl or a .parquet file")
    elif path.name.endswith((".jsonl", ".jsonl.gz", ".parquet")):
        yield from _parts(rows.read(path), str(path))
    else:
        raise StoreError(
            f"{path} is not something to import: give a pack folder, or a file that ends in "
            ".jsonl, .jsonl.gz or .parquet"
        )


def _parts(items: Iterator[Any], where: str) -> Iterator[ImportedRecords]:
    """Signatures, records and breakdowns differ in their fields."""
    number = 0
    for part in batches(items, BATCH):
        read = ImportedRecords()
        for row in part:
            number += 1
            place = f"{where}, record {number}"
            if isinstance(row, dict) and row.keys() == {"hash", "text"}:
                hash_, text = str(row["hash"]), str(row["text"])
                if hash_of(text) != hash_:
                    raise StoreError(f"{place} is damaged: the text of {hash_} is not its own")
                read.signatures[hash_] = text
            elif isinstance(row, dict) and "cells" in row:
                read.breakdowns.append(_decoded(Breakdown.from_json, row, place))
            else:
                read.measurements.append(_decoded(Measurement.from_json, row, place))
        yield read


def _decoded(read: Callable[[object], T], row: object, where: str) -> T:
    try:
        return read(row)
    except ValueError as error:
        raise StoreError(f"{where} is damaged: {error}") from error
