"""Packs: the records of one target as a folder of files, read-only when predicting.

``docs/contributing/file-formats.md`` lists the files. The look-up file is all that a prediction
reads, so thousands of cells load in milliseconds. The same records give the same bytes.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from hybridlat.errors import StoreError, TargetError
from hybridlat.schema.files import decode, open_regular, read_bytes
from hybridlat.schema.measurement import KINDS, Breakdown, Kind, Measurement
from hybridlat.schema.plugins import shipped
from hybridlat.schema.shown import phrase_of
from hybridlat.schema.target import Target
from hybridlat.store.records import LatencyRow, LatencyStats, LatencyUs, SpreadShare, aggregate

T = TypeVar("T")
PACK_FORMAT = 2
INFO_FILE = "pack.json"
LOOKUP_FILE = "lookup.json.gz"
TABLES, ENDING = ("signatures", "measurements", "breakdowns"), ".jsonl.gz"
"""The names of the files of all other rows, and how they end."""
PART_BYTES = 4 << 20
"""Of the lines that are read, and kept in memory, at a time."""
_INFO_BYTES, _LINE_BYTES, _LOOKUP_BYTES = 1 << 20, 4 << 20, 64 << 20
_MOST_RATIO, _ANY_RATIO_BYTES = 200, 64 << 20  # records compress to a fifth; a bomb to a thousandth
_UNREADABLE = (OSError, EOFError, zlib.error, ValueError)
_Entry = tuple[LatencyUs, SpreadShare, Annotated[int, Meta(ge=1)]]


class _File(Struct):
    sha256: str


class _Info(Struct):
    format: Annotated[int, Meta(ge=1)]
    target: str
    files: dict[str, _File]


class _Text(Struct):
    hash: str
    text: str


class _Lookup(Struct):
    """A pack's look-up file: latency_us, spread_share and records by hash, for each kind."""

    cell: dict[str, _Entry]
    network: dict[str, _Entry]
    layer: dict[str, _Entry]
    failures: dict[Kind, dict[str, str | None]]


def lookup_of(known: Mapping[tuple[str, str], list[LatencyRow]]) -> dict[str, object]:
    """The contents of a pack's look-up file, from the rows of each (kind, signature)."""
    good: dict[str, dict[str, list[float | None]]] = {kind: {} for kind in KINDS}
    failed: dict[str, dict[str, str | None]] = {kind: {} for kind in KINDS}
    for kind, signature in sorted(known):
        stats = aggregate(known[kind, signature])
        if stats.latency_us is None:
            failed[kind][signature] = stats.failure
        else:
            good[kind][signature] = [stats.latency_us, stats.spread_share, stats.records]
    return {"format": PACK_FORMAT, **good, "failures": failed}


def shipped_packs(folder: Path | None = None, begins: str = "") -> "list[PackLookup]":
    """The packs that come with hybridlat (or lie in ``folder``), by folder name."""
    folders = [file.parent for file in (folder or shipped("data", "packs")).glob(f"*/{INFO_FILE}")]
    return [PackLookup(one) for one in sorted(folders) if one.name.startswith(begins)]


def packs_for(target: Target, folder: Path | None = None) -> "list[PackLookup]":
    """Those of a target; several differ in what follows the target's name in their folder's."""
    return [p for p in shipped_packs(folder, target.folder) if p.target == target]


class PackLookup:
    """A pack's records, looked up the same way as in a Store."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.info = decode(read_bytes(self.folder / INFO_FILE, _INFO_BYTES), dict[str, Any])
            version = self.info.get("format")
            if isinstance(version, int) and version != PACK_FORMAT:
                fix = "upgrade hybridlat" if version > PACK_FORMAT else "export it again"
                form = f"{str(version)[:20]}, not {PACK_FORMAT} as here"
                raise StoreError(f"the pack {self.folder} has format {form}: {fix}")
            read = msgspec.convert(self.info, _Info)
            self.target, self._files = Target.parse(read.target), read.files
            if any(Path(name).name != name or "\0" in name for name in self._files):
                raise ValueError("it lists files outside the pack")
        except OSError as error:
            raise StoreError(
                f"{self.folder} is not a pack: {INFO_FILE} cannot be read ({error.strerror})"
            ) from error
        except (ValueError, TargetError) as error:
            raise self.damaged(INFO_FILE, phrase_of(error)) from error

    def damaged(self, name: str, problem: object) -> StoreError:
        words = (getattr(problem, "strerror", None) or str(problem)).strip()
        return StoreError(f"the pack {self.folder} is damaged: {name}: {words}")

    def latencies(
        self, target: Target, hashes: Iterable[str], kind: Kind = "cell"
    ) -> dict[str, LatencyStats]:
        """What is known of each hash; a hash without a record is left out."""
        if target != self.target:
            return {}
        good, failed = getattr(self._lookup, kind), self._lookup.failures.get(kind, {})
        return {
            h: LatencyStats(*good[h]) if h in good else LatencyStats(None, 0.0, 0, str(failed[h]))
            for h in hashes
            if h in good or h in failed
        }

    def signatures(self, kind: Kind) -> list[str]:
        """The hashes that it has a latency of."""
        return list(getattr(self._lookup, kind))

    def counts(self) -> dict[str, int]:
        return {kind: len(getattr(self._lookup, kind)) for kind in KINDS}

    def says(self, known: Mapping[tuple[str, str], list[LatencyRow]]) -> bool:
        """Whether the look-up file says what these rows of each (kind, signature) say."""
        return self._lookup == msgspec.convert(lookup_of(known), _Lookup)

    @cached_property
    def _lookup(self) -> _Lookup:
        try:
            with open_regular(self.folder / LOOKUP_FILE) as file, gzip.open(file) as text:
                return decode(_bounded(text.read(_LOOKUP_BYTES + 1), _LOOKUP_BYTES), _Lookup)
        except _UNREADABLE as error:
            raise self.damaged(LOOKUP_FILE, error) from error

    def measurements(
        self, target: Target | None = None, kind: Kind | None = None
    ) -> Iterator[Measurement]:
        records = self._read("measurements", Measurement.from_json, target)
        return (record for record in records if kind in (None, record.kind))

    def breakdowns(self, target: Target | None = None) -> Iterator[Breakdown]:
        return self._read("breakdowns", Breakdown.from_json, target)

    def all_signature_texts(self) -> Iterator[tuple[str, str]]:
        items = self._read("signatures", partial(msgspec.convert, type=_Text))
        return ((item.hash, item.text) for item in items)

    def _read(
        self, table: str, read: Callable[[object], T], target: Target | None = None
    ) -> Iterator[T]:
        return chain.from_iterable(self.parts(table, read) if target in (None, self.target) else ())

    def parts(self, table: str, read: Callable[[object], T]) -> Iterator[list[T]]:
        """The lines of one of ``TABLES``, as many at a time as memory always has room for."""
        number, size, part_bytes, name = 0, 0, 0, f"{table}{ENDING}"
        part: list[T] = []
        try:
            with open_regular(self.folder / name) as file, gzip.open(file) as lines:
                most = max(_ANY_RATIO_BYTES, _MOST_RATIO * os.fstat(file.fileno()).st_size)
                while line := lines.readline(_LINE_BYTES + 1):
                    number += 1
                    size += len(line)
                    if size > most:
                        raise ValueError(f"more than {_MOST_RATIO} bytes for each that is stored")
                    part.append(read(decode(_bounded(line, _LINE_BYTES), object)))
                    part_bytes += len(line)
                    if part_bytes >= PART_BYTES:
                        yield part
                        part, part_bytes = [], 0
        except _UNREADABLE as error:
            raise self.damaged(f"{name}, near line {max(number, 1)}", error) from error
        if part:
            yield part

    def signature_texts(self, hashes: Iterable[str]) -> dict[str, str]:
        chosen = set(hashes)
        return {h: text for h, text in self.all_signature_texts() if h in chosen}

    def altered_files(self) -> dict[str, str]:
        """What is wrong with the pack's files as such: missing, or not the bytes it was made of."""
        unlisted = {LOOKUP_FILE, *(f"{table}{ENDING}" for table in TABLES)} - self._files.keys()
        problems = dict.fromkeys(sorted(unlisted), f"{INFO_FILE} does not list it")
        for name, entry in self._files.items():
            try:
                if (digest := file_digest(self.folder / name)) != entry.sha256:
                    problems[name] = f"its SHA-256 is {digest}, the pack says {entry.sha256}"
            except OSError as error:
                problems[name] = f"it cannot be read ({error.strerror})"
        return problems


def file_digest(path: Path) -> str:
    """SHA-256 of a file in hex; OSError for what is no regular file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bounded(text: bytes, most_bytes: int) -> bytes:
    if len(text) > most_bytes:
        raise ValueError(f"a line or document is longer than {most_bytes >> 20} MiB")
    return text


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as compressed JSON Lines; how many."""
    count = 0
    partial = path.with_name(f"{path.name}.partial")
    with (
        partial.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as file,
    ):
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n")
            count += 1
    partial.replace(path)
    return count
