"""Damage in a store or a pack: a check reads all of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TypeVar

from hybridlat.errors import StoreError
from hybridlat.graph.signature import hash_of, read
from hybridlat.schema import names
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.plugins import shipped_table
from hybridlat.schema.shown import visible
from hybridlat.store import cache
from hybridlat.store.database import Database, unpacked
from hybridlat.store.importers.cells import is_device
from hybridlat.store.packs import INFO_FILE, LOOKUP_FILE, PackLookup
from hybridlat.store.records import BODIES, BREAKDOWN_BODIES, TEXTS, LatencyRow, entry_of, row_of

R = TypeVar("R", Measurement, Breakdown)
_LONGEST = 400  # letters; names in files of others have any length
_TOLERANCE = 1.01
_ENGINES = shipped_table("names")["known"]
_LEAST_US = 0.05  # what a cell that the noise hides counts as
_ENTRIES = """
SELECT measurement.id, kind, signature, latency_us, spread_share, measured_at, failure, target.name
FROM measurement LEFT JOIN target ON target.id = target_id"""


@dataclass(frozen=True, slots=True)
class IntegrityProblem:
    """One thing that is wrong: ``where`` (a table or file, and which entry) and ``problem``."""

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


class _Check:
    """Collects what is wrong while all of a store or pack is read, the texts first."""

    def __init__(self) -> None:
        self._problems: list[IntegrityProblem] = []
        self._texts: set[str] = set()
        self._without_text: dict[str, list[str]] = {}

    def note(self, where: str, *problems: str) -> None:
        where = visible(where[:_LONGEST])
        self._problems += [IntegrityProblem(where, visible(p[:_LONGEST])) for p in problems]

    def text(self, hash_: str, text: str) -> None:
        self._texts.add(hash_)
        if hash_of(text) != hash_:
            self.note(f"signature {hash_}", f"the text hashes to {hash_of(text)}")
        try:
            read(text)
        except ValueError as error:
            self.note(f"signature {hash_}", f"the text cannot be read: {error}")

    def item(self, item: Measurement | Breakdown, where: str) -> None:
        if isinstance(item, Breakdown):
            what, hashes = "breakdowns", [h for h, _ in (*item.cells, *item.layers)]
        else:
            self.note(where, *doubts(item))
            if item.measured_at > (datetime.now(UTC) + timedelta(days=1)).isoformat():
                self.note(where, f"measured_at {item.measured_at[:40]} is ahead of this clock")
            what, hashes = f"{item.kind} records", [item.signature] * (item.kind != "network")
        if missing := [h for h in hashes if h not in self._texts]:
            self._without_text.setdefault(f"{what} of {item.target}", []).extend(missing)

    def stored(
        self, what: str, bodies: Iterator[tuple[bytes, bytes]], of: Callable[[object], R]
    ) -> Iterator[tuple[bytes, str, R]]:
        """Key, name and content of those that can be read."""
        for key, body in bodies:
            where = f"{what} {key.hex()}"
            try:
                item = of(unpacked(body))
            except ValueError as error:
                self.note(where, str(error))
                continue
            if item.id != key.hex():
                self.note(where, f"its content hashes to {item.id}")
            yield key, where, item

    def problems(self) -> list[IntegrityProblem]:
        """All of them; missing texts by place, with a count and an example."""
        for where, hashes in self._without_text.items():
            self.note(where, f"signatures without text: {len(set(hashes))}, as {hashes[0]}")
        return self._problems


def check_database(database: Database) -> list[IntegrityProblem]:
    """What is wrong in a database: the file itself, texts, records, breakdowns, cache."""
    check = _Check()
    if database.place.exists:
        check.note("database", *database.run(lambda connection: connection.damage()))
    keys = database.keys("SELECT hash FROM signature ORDER BY hash")
    for key, text in database.paged(tuple[bytes, str], TEXTS, keys):
        check.text(key.hex(), text)
    rows = database.read(
        tuple[bytes, int, bytes, float | None, float, str, str | None, str | None], _ENTRIES
    )
    entries = {row[0]: row for row in rows}
    keys = database.keys("SELECT id FROM payload ORDER BY id")
    bodies = database.paged(tuple[bytes, bytes], BODIES, keys)
    for key, where, record in check.stored("record", bodies, Measurement.from_json):
        check.item(record, where)
        entry = entries.get(key)
        if entry is None:
            check.note(where, "it has no entry that a look-up would find")
        elif entry != (*entry_of(record, record.id).values(), str(record.target)):
            check.note(where, "its entry for look-ups differs from the record")
    for key in entries.keys() - set(keys):
        check.note(f"record {key.hex()}", "its raw samples are missing")
    keys = database.keys("SELECT id FROM breakdown ORDER BY id")
    bodies = database.paged(tuple[bytes, bytes], BREAKDOWN_BODIES, keys)
    for _, where, item in check.stored("breakdown", bodies, Breakdown.from_json):
        check.item(item, where)
    for key, scope in cache.damaged(database):
        check.note(f"cache {scope or key.hex()}", "it is no JSON document: `store gc` drops it")
    return check.problems()


def check_pack(folder: str | Path) -> list[IntegrityProblem]:
    """What is wrong in a pack: its files, texts, records, breakdowns and look-up."""
    check = _Check()
    rows: dict[tuple[str, str], list[LatencyRow]] = {}
    try:
        pack = PackLookup(folder)
        for name, problem in pack.altered_files().items():
            check.note(name, problem)
        for hash_, text in pack.all_signature_texts():
            check.text(hash_, text)
        items: Iterator[Measurement | Breakdown] = chain(pack.measurements(), pack.breakdowns())
        for item in items:
            where = f"{type(item).__name__.lower()} {item.id}"
            if item.target != pack.target:
                check.note(where, f"it is of {item.target}, the pack of {pack.target}")
            check.item(item, where)
            if isinstance(item, Measurement):
                rows.setdefault((item.kind, item.signature), []).append(row_of(item))
        count = sum(map(len, rows.values()))
        if (stated := pack.info.get("records", count)) != count:
            check.note(INFO_FILE, f"it states {stated!r:.40} records, and there are {count}")
        if not pack.says(rows):
            check.note(LOOKUP_FILE, "it does not say what the records say")
    except StoreError as error:
        check.note(str(folder), str(error))
    return check.problems()


def doubts(record: Measurement) -> Iterator[str]:
    """What makes a sound record implausible: no import takes it, and a check of a store names it.

    A differential protocol's samples are differences, and may be below zero.
    """
    samples = [sample for visit in record.visits for sample in visit.samples_us]
    if any(sample <= 0 for sample in samples) and "differential" not in record.protocol:
        yield "a sample is not positive"
    if samples and record.latency_us is not None:
        steady = [s / visit.drift for visit in record.visits for s in visit.samples_us]
        fastest, slowest = min(steady), max(steady)
        timed_us = record.latency_us + record.overhead_us
        if record.latency_us > max(_TOLERANCE * slowest, _LEAST_US):
            yield f"latency_us {record.latency_us:.6g} is above its slowest sample {slowest:.6g}"
        elif timed_us < fastest / _TOLERANCE:
            yield f"latency_us {record.latency_us:.6g} is below its fastest sample {fastest:.6g}"
        elif record.latency_us > _LEAST_US and record.overhead_us > max(_TOLERANCE * slowest, 0):
            yield f"overhead_us {record.overhead_us:.6g} is above its samples, {slowest:.6g}"
    target, facts = record.target, record.environment
    engine, _, version = facts.get("engine", "").partition(" ")
    version = facts.get("engine_version", version)
    is_same = not version or f"{version}.".startswith(f"{target.version}.".lstrip("."))
    if engine in _ENGINES and not (engine == target.engine and is_same):
        yield f"its engine is {engine} {version}".rstrip() + f", and not that of {target}"
    if is_device(gpu := facts.get("gpu", "")) and not names.boards_of(gpu, [target.device]):
        words, own = ({*name.split("-")} for name in (names.device_name(gpu), target.device))
        if not (words <= own or own <= words):
            yield f"its GPU is {gpu}, and not that of {target}"
    if record.measured_at:
        try:
            datetime.fromisoformat(record.measured_at)
        except ValueError:
            yield f"measured_at {record.measured_at[:40]!r} is no time in ISO 8601"
