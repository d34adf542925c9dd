"""What is read from a store's database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from hybridlat.errors import StoreError, TargetError
from hybridlat.schema.measurement import KINDS, Breakdown, Kind, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import codec
from hybridlat.store.codec import KIND_CODES, chunks
from hybridlat.store.connection import Values
from hybridlat.store.database import Database
from hybridlat.store.latencies import LatencyRow, TargetStats

T = TypeVar("T")
_PAGE = 500
_MOST_RECENT = 20_000  # rows looked through for the newest runs
_WEIGHED = 500  # records of a target and kind whose sizes stand for all of them
OF_TARGET = """
FROM measurement JOIN target ON target.id = measurement.target_id
WHERE target.name = :target"""
_LOOK_UP = """
SELECT target.name, signature, latency_us, spread_share, measured_at, failure
FROM measurement JOIN target ON target.id = measurement.target_id
WHERE target.name IN :targets AND kind = :kind AND signature IN :keys"""
_RECENT = f"""
SELECT measured_at, measurement.id {OF_TARGET} AND latency_us IS NOT NULL
ORDER BY measured_at DESC, CASE WHEN kind = :kind THEN 0 ELSE 1 END, measurement.id LIMIT :most"""
_RECORDS = "SELECT id FROM measurement WHERE target_id = :target"
_BREAKDOWNS = "SELECT id FROM breakdown WHERE target_id = :target ORDER BY id"
_BODIES = "SELECT id, body FROM payload WHERE id IN :keys"
_BREAKDOWN_BODIES = "SELECT id, body FROM breakdown WHERE id IN :keys"
_TEXTS = "SELECT hash, text FROM signature WHERE hash IN :keys"
_TARGETS = """
SELECT id, name FROM target
WHERE EXISTS (SELECT 1 FROM measurement WHERE target_id = target.id)
OR EXISTS (SELECT 1 FROM breakdown WHERE target_id = target.id)"""
_KIND_STATS = """
SELECT target_id, kind, count(*), count(latency_us), min(nullif(measured_at, '')), max(measured_at)
FROM measurement GROUP BY target_id, kind"""
_THINGS = """
SELECT target_id, kind, count(*)
FROM (SELECT DISTINCT target_id, kind, signature FROM measurement WHERE latency_us IS NOT NULL)
    AS known
GROUP BY target_id, kind"""
_SIZES = """
SELECT count(*), sum(length(body)) FROM payload WHERE id IN (
    SELECT id FROM measurement WHERE target_id = :target AND kind = :kind
    ORDER BY signature, id LIMIT :most)"""


class _Entry(NamedTuple):
    target: str
    signature: bytes
    latency_us: float | None
    spread_share: float
    measured_at: str
    failure: str | None


class _KindStats(NamedTuple):
    target_id: int
    kind: int
    records: int
    good: int
    first: str | None
    last: str | None


def look_up(
    database: Database, targets: Sequence[Target], kind: Kind, keys: list[bytes]
) -> dict[Target, dict[bytes, list[LatencyRow]]]:
    """(latency_us, spread_share, measured_at, failure) of every record of each key."""
    named = {str(target): target for target in targets}
    rows_of: dict[Target, dict[bytes, list[LatencyRow]]] = {target: {} for target in targets}
    for part in chunks(keys) if targets else ():
        values = {"targets": list(named), "kind": KIND_CODES[kind], "keys": part}
        wanted = set(part)
        for row in database.read(_Entry, _LOOK_UP, values):
            if row.target in named and row.signature in wanted:  # a damaged index gives others
                rows_of[named[row.target]].setdefault(row.signature, []).append(row[2:])
    return rows_of


def measurements(
    database: Database,
    target: Target | None = None,
    kind: Kind | None = None,
    signature: str | None = None,
) -> Iterator[Measurement]:
    """The records, by target, kind, signature and content."""
    query, values = _RECORDS, dict[str, object]()
    if kind is not None:
        query, values["kind"] = f"{query} AND kind = :kind", KIND_CODES[kind]
    if signature is not None:
        query, values["signature"] = f"{query} AND signature = :signature", codec.key(signature)
    for number in _target_ids(database, target):
        sql = f"{query} ORDER BY kind, signature, id"
        yield from _records(database, _keys(database, sql, {"target": number, **values}))


def recent(database: Database, target: Target, runs: int, each: int) -> list[Measurement]:
    """Good records of the newest ``runs`` minutes, ``each`` of a minute.

    Whole networks come first: they are few, and say more about how the machine ran than cells do.
    """
    values = {"target": str(target), "kind": KIND_CODES["network"], "most": _MOST_RECENT}
    chosen: dict[str, list[bytes]] = {}
    for measured_at, key in database.read(tuple[str, bytes], _RECENT, values):
        minute = chosen.setdefault(measured_at[:16], [])
        if len(chosen) > runs:
            break
        if len(minute) < each:
            minute.append(key)
    keys = [key for minute in chosen.values() for key in minute]
    return list(_records(database, sorted(keys)))


def breakdowns(database: Database, target: Target | None = None) -> Iterator[Breakdown]:
    """The breakdowns, by target and content."""
    for number in _target_ids(database, target):
        keys = _keys(database, _BREAKDOWNS, {"target": number})
        for _, body in _paged(database, keys, _BREAKDOWN_BODIES, bytes):
            yield codec.decoded(Breakdown.from_json, body, database.shown)


def payloads(database: Database) -> Iterator[tuple[bytes, bytes]]:
    """Id and compressed JSON of every record."""
    keys = _keys(database, "SELECT id FROM payload ORDER BY id")
    return _paged(database, keys, _BODIES, bytes)


def all_breakdowns(database: Database) -> Iterator[tuple[bytes, bytes]]:
    """Id and compressed JSON of every breakdown."""
    keys = _keys(database, "SELECT id FROM breakdown ORDER BY id")
    return _paged(database, keys, _BREAKDOWN_BODIES, bytes)


def all_texts(database: Database) -> Iterator[tuple[bytes, str]]:
    """Hash and text of every signature."""
    keys = _keys(database, "SELECT hash FROM signature ORDER BY hash")
    return _paged(database, keys, _TEXTS, str)


def _records(database: Database, keys: list[bytes]) -> Iterator[Measurement]:
    for _, body in _paged(database, keys, _BODIES, bytes):
        yield codec.decoded(Measurement.from_json, body, database.shown)


def _keys(database: Database, sql: str, values: Values | None = None) -> list[bytes]:
    return [key for (key,) in database.read(tuple[bytes], sql, values)]


def _paged(
    database: Database, keys: list[bytes], items_of: str, form: type[T]
) -> Iterator[tuple[bytes, T]]:
    """What ``items_of`` gives for each key, in their order.

    The keys come first, then the items in pages, each a transaction of its own: a slow reader, or
    one that writes meanwhile, holds up no other.
    """
    for part in chunks(keys, _PAGE):
        items = dict(database.read(tuple[bytes, form], items_of, {"keys": part}))  # type: ignore[valid-type]
        yield from ((key, items[key]) for key in part if key in items)


def signature_texts(database: Database, keys: list[bytes]) -> dict[str, str]:
    """Text of each hash (hex) that has one."""
    return {key.hex(): text for key, text in _paged(database, keys, _TEXTS, str)}


def targets(database: Database) -> list[Target]:
    """All targets, sorted by name."""
    return list(_numbered_targets(database).values())


def _numbered_targets(database: Database) -> dict[int, Target]:
    """The targets by their numbers, sorted by name here: databases sort text as they like."""
    try:
        rows = database.read(tuple[int, str], _TARGETS)
        named = {number: Target.parse(name) for number, name in rows}
    except TargetError as error:
        raise StoreError(f"the store is damaged: {error}") from error
    return dict(sorted(named.items(), key=lambda item: str(item[1])))


def _target_ids(database: Database, target: Target | None) -> list[int]:
    return [
        number for number, held in _numbered_targets(database).items() if target in (None, held)
    ]


def stats(database: Database) -> list[TargetStats]:
    """One row per target, sorted by name."""
    counts = database.read(tuple[int, int, int], _THINGS)
    things = {(number, kind): n for number, kind, n in counts}
    rows_of: dict[int, list[_KindStats]] = {}
    for row in database.read(_KindStats, _KIND_STATS):
        rows_of.setdefault(row[0], []).append(row)
    result = []
    for number, target in _numbered_targets(database).items():
        rows = rows_of.get(number, [])
        cells, networks, layers = (things.get((number, KIND_CODES[kind]), 0) for kind in KINDS)
        result.append(
            TargetStats(
                target, cells, networks, layers,
                records=sum(row.records for row in rows),
                failures=sum(row.records - row.good for row in rows),
                first=min((row.first for row in rows if row.first), default=""),
                last=max((row.last or "" for row in rows), default=""),
                bytes=sum(_bytes(database, *row[:3]) for row in rows),
            )
        )  # fmt: skip
    return result


def _bytes(database: Database, target_id: int, kind: int, records: int) -> int:
    """The size of so many records, estimated from those with the first hashes, a fair sample.

    Reading all of a million takes a disk many seconds.
    """
    ((count, total),) = database.rows(_SIZES, {"target": target_id, "kind": kind, "most": _WEIGHED})
    return round(int(total) / count * records) if count else 0
