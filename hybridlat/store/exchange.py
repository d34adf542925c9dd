"""Packs out of a store, also without what names a person or a machine, and into one."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from hybridlat.errors import StoreError
from hybridlat.schema.files import write_text
from hybridlat.schema.measurement import Breakdown, Measurement, facts_of_note
from hybridlat.schema.plugins import shipped_files
from hybridlat.schema.shown import count_text
from hybridlat.schema.target import Target
from hybridlat.store import packs
from hybridlat.store.database import batches
from hybridlat.store.importers import ImportedRecords
from hybridlat.store.integrity import check_pack
from hybridlat.store.records import LatencyRow, Records, row_of

T = TypeVar("T", Measurement, Breakdown)
BATCH = 1000
"""Records of one transaction."""
# Facts and labels stay by a list of names: what a plug-in, a table or a board adds is left out
# unless it is known to name no one. A kernel's release may be one's own: its version alone stays.
_FACT = re.compile(
    "cache|clock_mhz|cores|cpu|cpu_family_model|driver|engine|engine_code|engine_version|gpu|jetpack|"
    "load|load_cores|max_sm_mhz|rounds_missing|model|power_limit_w|power_mode|python|runner|"
    "steal_share|virtual_machine|(sm_mhz|temperature_c)_(before|after)"
)
_LABEL = re.compile("batch|(memory_)?clock|copied_bytes|layout|lowering|repeat|role|size|sweep")
_SYSTEM = re.compile(r"[A-Za-z]+ [0-9]+\.[0-9]+")
_IDENTITY = re.compile(r"[/\\@]|(?i:GPU-)?[0-9a-f]{8}-[0-9a-f]{4}-")  # paths, addresses, UUIDs


def write_pack(
    records: Records, target: Target, folder: Path, source: str, licence: str, is_anonymous: bool
) -> Path:
    """Write all records of ``target`` as a pack, without identities where asked; the folder.

    It takes the place of an older pack there. StoreError where that holds records of others.
    """
    _require_replaceable(records, target, folder)
    known: dict[tuple[str, str], list[LatencyRow]] = {}
    hashes: set[str] = set()

    def measurements() -> Iterator[dict[str, Any]]:
        measured = records.measurements(target)
        for record in map(anonymous, measured) if is_anonymous else measured:
            hashes.add(record.signature)
            known.setdefault((record.kind, record.signature), []).append(row_of(record))
            yield record.to_json()

    def breakdowns() -> Iterator[dict[str, Any]]:
        items = records.breakdowns(target)
        for item in map(anonymous, items) if is_anonymous else items:
            hashes.update([item.signature, *(h for h, _ in (*item.cells, *item.layers))])
            yield item.to_json()

    def signatures() -> Iterator[dict[str, str]]:
        for part in batches(sorted(hashes), BATCH):
            texts = records.signature_texts(part)
            yield from ({"hash": h, "text": texts[h]} for h in part if h in texts)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / packs.INFO_FILE).unlink(missing_ok=True)
        files = {}
        for rows_of in (measurements, breakdowns, signatures):
            name = f"{rows_of.__name__}{packs.ENDING}"
            files[name] = packs.write_lines(folder / name, rows_of())
        packs.write_lines(folder / packs.LOOKUP_FILE, [packs.lookup_of(known)])
        files[packs.LOOKUP_FILE] = len(known)
        rows = [row for of_one in known.values() for row in of_one]
        times = [measured_at for _, _, measured_at, _ in rows if measured_at]
        info = {
            "format": packs.PACK_FORMAT,
            "target": str(target),
            "records": len(rows),
            "failures": sum(failure is not None for _, _, _, failure in rows),
            "first": min(times, default=""),
            "last": max(times, default=""),
            "source": source,
            "licence": licence,
            "files": {
                name: {"rows": count, "sha256": packs.file_digest(folder / name)}
                for name, count in sorted(files.items())
            },
        }
        write_text(folder / packs.INFO_FILE, json.dumps(info, indent=1) + "\n")
    except OSError as error:
        raise StoreError(f"the pack {folder} cannot be written: {error.strerror}") from error
    return folder


def _require_replaceable(records: Records, target: Target, folder: Path) -> None:
    """StoreError for a pack of records that the store has not: they would be lost."""
    key = attrgetter("kind", "signature", "measured_at", "latency_us")  # stay without identities
    held = set[tuple[object, ...]]()
    with suppress(StoreError):  # what cannot be read is no one's records any more
        held.update(map(key, packs.PackLookup(folder).measurements()))
    if held and (others := held.difference(map(key, records.measurements(target)))):
        why = f"{folder} holds a pack with {count_text(len(others), 'record')} of others"
        raise StoreError(f"{why}: import it first, or choose another folder")


def packs_at(path: Path) -> list[packs.PackLookup]:
    """The pack at a path, or those in a folder; StoreError for anything else."""
    is_one = (path / packs.INFO_FILE).exists()
    lookups = [packs.PackLookup(path)] if is_one else packs.shipped_packs(path)
    if not lookups:
        raise StoreError(f"{path} is not a pack and holds none: there is no {packs.INFO_FILE}")
    return lookups


def read(path: Path) -> Iterator[ImportedRecords]:
    """The records of a pack, or of a folder of packs, in parts."""
    lookups = packs_at(path)
    for pack in lookups:
        for problem in check_pack(pack.folder):
            raise StoreError(f"the pack {pack.folder} is not imported: {problem}")
    for pack in lookups:
        for texts in batches(pack.all_signature_texts(), BATCH):
            yield ImportedRecords(signatures=dict(texts))
        for records in pack.parts("measurements", Measurement.from_json):
            yield ImportedRecords(measurements=records)
        for items in pack.parts("breakdowns", Breakdown.from_json):
            yield ImportedRecords(breakdowns=items)


def anonymous(item: T) -> T:
    """The record without identities; names of networks that are not shipped become hashes."""
    labels = _kept(_LABEL, item.labels)
    if "network" in item.labels:
        labels["network"] = _network(item.labels["network"])
    if isinstance(item, Breakdown):
        return replace(item, network=_network(item.network), labels=labels)
    note = item.labels.get("note", "")
    if facts_of_note(note) != facts_of_note(""):
        labels["note"] = note
    facts, system = _kept(_FACT, item.environment), item.environment.get("system", "")
    if known := _SYSTEM.match(system):
        facts["system"] = known[0]
    failure = None if item.failure is None else "it failed (the reason is left out)"
    return replace(item, environment=facts, labels=labels, failure=failure)


def _kept(names: re.Pattern[str], facts: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in facts.items() if names.fullmatch(k) and not _IDENTITY.search(v)}


def _network(name: str) -> str:
    if name in shipped_files("nets", ".onnx"):
        return name
    return f"network-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
