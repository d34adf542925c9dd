"""Damage in a store or a pack: a check reads all of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hybridlat.errors import StoreError
from hybridlat.graph.signature import hash_of
from hybridlat.graph.signature_reading import read
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.store import cache, queries
from hybridlat.store.codec import KIND_CODES, plain, unpacked
from hybridlat.store.database import Database
from hybridlat.store.exchange import lookup_of
from hybridlat.store.latencies import LatencyRow
from hybridlat.store.packs import LOOKUP_FILE, PackLookup

_TARGETS = "SELECT id, name FROM target"
_ENTRIES = """
SELECT id, target_id, kind, signature, latency_us, spread_share, failure FROM measurement"""


@dataclass(frozen=True, slots=True)
class IntegrityProblem:
    """One thing that is wrong: ``where`` (a table or file, and which entry) and ``problem``."""

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


def doubts(record: Measurement) -> list[str]:
    """What makes a sound record implausible, one phrase each."""
    samples = [s for visit in record.visits for s in visit.samples_us]
    problems = []
    if any(s <= 0 for s in samples):
        problems.append("a sample is not positive")
    if samples and record.latency_us is not None:
        slowest = max(s / visit.drift for visit in record.visits for s in visit.samples_us)
        if record.latency_us > 1.01 * slowest:
            problems.append(
                f"latency_us {record.latency_us:.6g} is above its slowest sample {slowest:.6g}"
            )
    return problems


def check_text(hash_: str, text: str) -> list[str]:
    """What is wrong with a signature text and the hash it is filed under."""
    problems = []
    if hash_of(text) != hash_:
        problems.append(f"the text hashes to {hash_of(text)}")
    try:
        read(text)
    except ValueError as error:
        problems.append(f"the text cannot be read: {error}")
    return problems


@dataclass
class Orphans:
    """Records and breakdowns that name signatures whose text is missing, counted by place."""

    texts: set[str] = field(default_factory=set)
    _missing: dict[str, list[str]] = field(default_factory=dict)

    def see(self, item: Measurement | Breakdown) -> None:
        """Note what an item refers to; a breakdown describes a whole network."""
        if isinstance(item, Measurement):
            if item.kind != "network":
                self._need(f"{item.kind} records of {item.target}", [item.signature])
        else:
            hashes = [h for h, _ in (*item.cells, *item.layers)]
            self._need(f"breakdowns of {item.target}", hashes)

    def _need(self, where: str, hashes: Iterable[str]) -> None:
        missing = [h for h in hashes if h not in self.texts]
        if missing:
            self._missing.setdefault(where, []).extend(missing)

    def problems(self) -> list[IntegrityProblem]:
        """One finding per place, with a count and an example."""
        return [
            IntegrityProblem(where, f"{len(set(h))} signatures have no text, for example {h[0]}")
            for where, h in self._missing.items()
        ]


class _Entry(NamedTuple):
    id: bytes
    target_id: int
    kind: int
    signature: bytes
    latency_us: float | None
    spread_share: float
    failure: str | None


def check_database(database: Database) -> list[IntegrityProblem]:
    """Every finding in a database: the file itself, texts, records, breakdowns, orphans, cache."""
    problems = [IntegrityProblem("database", line) for line in database.damage()]
    orphans = Orphans()
    for key, text in queries.all_texts(database):
        hash_ = key.hex()
        orphans.texts.add(hash_)
        problems += [IntegrityProblem(f"signature {hash_}", p) for p in check_text(hash_, text)]
    names = dict(database.read(tuple[int, str], _TARGETS))
    entries = {entry.id: entry for entry in database.read(_Entry, _ENTRIES)}
    for key, body in queries.payloads(database):
        problems += _check_payload(key, body, entries, names, orphans)
    for key, body in queries.all_breakdowns(database):
        problems += _check_breakdown(key, body, orphans)
    problems += [
        IntegrityProblem(f"record {key.hex()}", "its raw samples are missing") for key in entries
    ]
    problems += [
        IntegrityProblem(f"cache {scope or key.hex()}", f"{problem}: `store gc` drops it")
        for key, scope, problem in cache.damaged(database)
    ]
    return problems + orphans.problems()


def _check_payload(
    key: bytes,
    body: bytes,
    entries: dict[bytes, _Entry],
    names: dict[int, str],
    orphans: Orphans,
) -> list[IntegrityProblem]:
    where = f"record {key.hex()}"
    row = entries.pop(key, None)
    try:
        record = Measurement.from_json(unpacked(body))
    except ValueError as error:
        return [IntegrityProblem(where, str(error))]
    problems = [IntegrityProblem(where, doubt) for doubt in doubts(record)]
    if record.id != key.hex():
        problems.append(IntegrityProblem(where, f"its content hashes to {record.id}"))
    if row is None:
        problems.append(IntegrityProblem(where, "it has no entry that a look-up would find"))
    else:
        _, target, kind, signature, latency, spread, failure = row
        entry = (names.get(target), kind, signature.hex(), latency, spread, failure or "")
        holds = (
            str(record.target), KIND_CODES[record.kind], record.signature,
            record.latency_us, record.spread_share, plain(record.failure or ""),
        )  # fmt: skip
        if entry != holds:
            problems.append(
                IntegrityProblem(where, "its entry for look-ups differs from the record")
            )
    orphans.see(record)
    return problems


def _check_breakdown(key: bytes, body: bytes, orphans: Orphans) -> list[IntegrityProblem]:
    where = f"breakdown {key.hex()}"
    try:
        item = Breakdown.from_json(unpacked(body))
    except ValueError as error:
        return [IntegrityProblem(where, str(error))]
    orphans.see(item)
    return (
        []
        if item.id == key.hex()
        else [IntegrityProblem(where, f"its content hashes to {item.id}")]
    )


def check_pack(folder: str | Path) -> list[IntegrityProblem]:
    """Every finding in a pack: its files, texts, records, breakdowns, orphans and look-up."""
    try:
        pack = PackLookup(folder)
    except StoreError as error:
        return [IntegrityProblem(str(folder), str(error))]
    problems = [IntegrityProblem(name, problem) for name, problem in pack.altered_files().items()]
    orphans = Orphans()
    rows: dict[tuple[str, str], list[LatencyRow]] = {}
    try:
        for hash_, text in pack.all_signature_texts():
            orphans.texts.add(hash_)
            problems += [IntegrityProblem(f"signature {hash_}", p) for p in check_text(hash_, text)]
        for record in pack.measurements():
            if record.target != pack.target:
                problems.append(
                    IntegrityProblem(f"record {record.id}", f"it is of {record.target}")
                )
            problems += [IntegrityProblem(f"record {record.id}", doubt) for doubt in doubts(record)]
            row = (record.latency_us, record.spread_share, record.measured_at, record.failure)
            rows.setdefault((record.kind, record.signature), []).append(row)
            orphans.see(record)
        for item in pack.breakdowns():
            orphans.see(item)
        if pack.lookup_table() != lookup_of(rows):
            problems.append(IntegrityProblem(LOOKUP_FILE, "it does not say what the records say"))
    except StoreError as error:
        problems.append(IntegrityProblem(str(folder), str(error)))
    return problems + orphans.problems()
