"""Packs: the records of one target as a folder of files, read-only when predicting.

A pack of format 1 holds::

    pack.json              format, target, counts, dates, SHA-256 of each file, source and licence
    lookup.json.gz         hash -> [latency_us, spread_share, records] per kind, and failures: all
                           that a prediction reads, so thousands of cells load in milliseconds
    signatures.jsonl.gz    {"hash": ..., "text": ...} a line          (or .parquet)
    measurements.jsonl.gz  one record a line, raw samples and all     (or .parquet)
    breakdowns.jsonl.gz    how measured networks fall into cells      (or .parquet)

The same records give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from hybridlat.errors import StoreError, TargetError
from hybridlat.schema import wire
from hybridlat.schema.measurement import KINDS, Breakdown, Kind, Measurement
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Target
from hybridlat.store.latencies import LatencyStats

PACK_FORMAT = 1
INFO_FILE = "pack.json"
LOOKUP_FILE = "lookup.json.gz"
_Entry = tuple[
    Annotated[float, Meta(gt=0)], Annotated[float, Meta(ge=0)], Annotated[int, Meta(ge=1)]
]


class _Failures(Struct):
    """Reason by hash, for each kind."""

    cell: dict[str, str | None]
    network: dict[str, str | None]
    layer: dict[str, str | None]


class _Lookup(Struct):
    """A pack's look-up file: latency_us, spread_share and records by hash, for each kind."""

    cell: dict[str, _Entry]
    network: dict[str, _Entry]
    layer: dict[str, _Entry]
    failures: _Failures


def shipped_packs(folder: Path | None = None) -> list[PackLookup]:
    """All packs that come with hybridlat (or lie in ``folder``), by folder name."""
    folder = folder or shipped("data", "packs")
    if not folder.is_dir():
        return []
    return [PackLookup(info.parent) for info in sorted(folder.glob(f"*/{INFO_FILE}"))]


def packs_for(target: Target, folder: Path | None = None) -> list[PackLookup]:
    """The packs of a target that come with hybridlat (or lie in ``folder``)."""
    folder = folder or shipped("data", "packs")
    if not folder.is_dir():
        return []
    # Several packs of a target differ in what follows the target's name in that of the folder.
    near = [path.parent for path in sorted(folder.glob(f"{target.folder}*/{INFO_FILE}"))]
    return [pack for pack in map(PackLookup, near) if pack.target == target]


class PackLookup:
    """A pack's records, looked up the same way as in a Store.

    Opening reads ``pack.json`` alone. Raises StoreError for what is not a pack, is damaged or has
    a newer format.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.info = self._read_info()
        self.target = self._target()

    def _read_info(self) -> dict[str, Any]:
        path = self.folder / INFO_FILE
        try:
            info: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise StoreError(f"{self.folder} is not a pack: {INFO_FILE} cannot be read") from error
        except ValueError as error:
            raise self.damaged(INFO_FILE, str(error)) from error
        version = info.get("format") if isinstance(info, dict) else None
        if type(version) is not int or version < 1:
            raise self.damaged(INFO_FILE, f"its format reads {version!r}")
        if version > PACK_FORMAT:
            raise StoreError(
                f"the pack {self.folder} has format {version}, newer than format {PACK_FORMAT} "
                "that this version of hybridlat knows: upgrade hybridlat"
            )
        files = info.get("files")
        if not isinstance(files, dict) or not all(
            isinstance(entry, dict) and isinstance(entry.get("sha256"), str)
            for entry in files.values()
        ):
            raise self.damaged(INFO_FILE, "it does not list the pack's files")
        if any(Path(name).name != name for name in files):
            raise self.damaged(INFO_FILE, "it lists files outside the pack")
        return info

    def _target(self) -> Target:
        try:
            return Target.parse(str(self.info.get("target")))
        except TargetError as error:
            raise self.damaged(INFO_FILE, str(error)) from error

    def damaged(self, name: str, problem: str) -> StoreError:
        """The error that says which file of the pack is wrong."""
        return StoreError(f"the pack {self.folder} is damaged: {name}: {problem}")

    # ---- what predicting needs -----------------------------------------------------------------

    def latencies(
        self, target: Target, hashes: Iterable[str], kind: Kind = "cell"
    ) -> dict[str, LatencyStats]:
        """What is known of each hash; a hash without a record is left out."""
        if target != self.target:
            return {}
        good, failed = getattr(self._lookup, kind), getattr(self._lookup.failures, kind)
        stats = {}
        for h in hashes:
            if h in good:
                stats[h] = LatencyStats(*good[h])
            elif h in failed:
                stats[h] = LatencyStats(None, 0.0, 0, str(failed[h]))
        return stats

    def signatures(self, kind: Kind) -> list[str]:
        """The hashes of this kind that have a latency, or a failure."""
        return [*getattr(self._lookup, kind), *getattr(self._lookup.failures, kind)]

    def counts(self) -> dict[str, int]:
        """How many things of each kind (cell, network, layer) have a latency."""
        return {kind: len(getattr(self._lookup, kind)) for kind in KINDS}

    @cached_property
    def _lookup(self) -> _Lookup:
        try:
            return wire.decode(self._lookup_bytes(), _Lookup)
        except ValueError as error:
            raise self.damaged(LOOKUP_FILE, f"it is not a table of latencies ({error})") from error

    def lookup_table(self) -> Any:
        """The JSON of the look-up file as it stands."""
        try:
            return json.loads(self._lookup_bytes())
        except ValueError as error:
            raise self.damaged(LOOKUP_FILE, str(error)) from error

    def _lookup_bytes(self) -> bytes:
        try:
            return gzip.decompress((self.folder / LOOKUP_FILE).read_bytes())
        except FileNotFoundError as error:
            raise self.damaged(LOOKUP_FILE, "it is missing") from error
        except (OSError, EOFError, zlib.error) as error:
            raise self.damaged(LOOKUP_FILE, str(error)) from error

    # ---- everything else -----------------------------------------------------------------------

    def rows(self, table: str) -> Iterator[Any]:
        """The JSON of each line of ``signatures``, ``measurements`` or ``breakdowns``."""
        for name in sorted(self.info["files"]):
            if name == f"{table}.jsonl.gz":
                yield from self._lines(name)
            elif name == f"{table}.parquet":
                from hybridlat.store import parquet

                yield from parquet.read_rows(self.folder / name)

    def _lines(self, name: str) -> Iterator[Any]:
        number = 0
        try:
            with gzip.open(self.folder / name, "rb") as lines:
                for line in lines:
                    number += 1
                    yield wire.decode(line, object)
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise self.damaged(f"{name} near line {number}", str(error)) from error

    def measurements(
        self,
        target: Target | None = None,
        kind: Kind | None = None,
        signature: str | None = None,
    ) -> Iterator[Measurement]:
        """The records, in a stable order."""
        if target is not None and target != self.target:
            return
        for number, row in enumerate(self.rows("measurements"), 1):
            try:
                record = Measurement.from_json(row)
            except ValueError as error:
                raise self.damaged(f"measurement {number}", str(error)) from error
            if kind in (None, record.kind) and signature in (None, record.signature):
                yield record

    def breakdowns(self, target: Target | None = None) -> Iterator[Breakdown]:
        """The breakdowns, in a stable order."""
        if target is not None and target != self.target:
            return
        for number, row in enumerate(self.rows("breakdowns"), 1):
            try:
                yield Breakdown.from_json(row)
            except ValueError as error:
                raise self.damaged(f"breakdown {number}", str(error)) from error

    def all_signature_texts(self) -> Iterator[tuple[str, str]]:
        """(hash, text) of every signature of the pack."""
        for number, row in enumerate(self.rows("signatures"), 1):
            try:
                hash_, text = row["hash"], row["text"]
            except (KeyError, TypeError):
                hash_ = text = None
            if not isinstance(hash_, str) or not isinstance(text, str):
                raise self.damaged(f"signature {number}", "it has no hash and text")
            yield hash_, text

    def signature_texts(self, hashes: Iterable[str]) -> dict[str, str]:
        """The texts of those hashes that the pack has."""
        wanted = set(hashes)
        return {h: text for h, text in self.all_signature_texts() if h in wanted}

    def altered_files(self) -> dict[str, str]:
        """What is wrong with the pack's files as such: missing, or not the bytes it was made of."""
        problems = {}
        for name, entry in self.info["files"].items():
            try:
                digest = file_digest(self.folder / name)
            except OSError as error:
                problems[name] = f"it cannot be read ({error.strerror})"
                continue
            if digest != entry["sha256"]:
                problems[name] = f"its SHA-256 is {digest}, the pack says {entry['sha256']}"
        return problems


def file_digest(path: Path) -> str:
    """SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
