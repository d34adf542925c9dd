"""What is read from a store's database, asked in SQL that every database takes. Loads none.

A question goes to an ``Ask``: by way of SQLAlchemy, or of Python's own module where the store is a
SQLite file. Parameters are named (``:name``); a list fills ``IN :names``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from hybridlat.errors import StoreError, TargetError
from hybridlat.schema.measurement import KINDS, Kind
from hybridlat.schema.target import Target
from hybridlat.store import codec
from hybridlat.store.codec import KIND_CODES, chunks
from hybridlat.store.latencies import LatencyRow, TargetStats

Ask: TypeAlias = Callable[[str, Mapping[str, object]], list[tuple[Any, ...]]]

_PAGE = 500
_MOST_RECENT = 20_000  # rows looked through for the newest runs
_WEIGHED = 500  # records of a target and kind whose sizes stand for all of them
_OF_TARGET = """
FROM measurement JOIN target ON target.id = measurement.target_id
WHERE target.name = :target"""
_LOOK_UP = """
SELECT target.name, signature, latency_us, spread_share, measured_at, failure
FROM measurement JOIN target ON target.id = measurement.target_id
WHERE target.name IN :targets AND kind = :kind AND signature IN :keys"""
_COUNT = f"SELECT count(*) {_OF_TARGET} AND kind = :kind"
_SIGNATURES = f"SELECT DISTINCT signature {_OF_TARGET} AND kind = :kind"
_REVISION = f"SELECT count(*), max(measured_at) {_OF_TARGET}"
_RECENT = f"""
SELECT measured_at, measurement.id {_OF_TARGET} AND latency_us IS NOT NULL
ORDER BY measured_at DESC, CASE WHEN kind = :kind THEN 0 ELSE 1 END, measurement.id LIMIT :most"""
_RECORDS = "SELECT id FROM measurement WHERE target_id = :target"
_BREAKDOWNS = "SELECT id FROM breakdown WHERE target_id = :target ORDER BY id"
_BODIES = "SELECT id, body FROM payload WHERE id IN :keys"
_BREAKDOWN_BODIES = "SELECT id, body FROM breakdown WHERE id IN :keys"
_TEXTS = "SELECT hash, text FROM signature WHERE hash IN :keys"
_CACHED = "SELECT text FROM cache WHERE key = :key"
_CACHED_DIGESTS = "SELECT key FROM cache"
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


def look_up(
    ask: Ask, targets: Sequence[Target], kind: Kind, keys: list[bytes]
) -> dict[Target, dict[bytes, list[LatencyRow]]]:
    """(latency_us, spread_share, measured_at, failure) of every record of each key."""
    named = {str(target): target for target in targets}
    rows_of: dict[Target, dict[bytes, list[LatencyRow]]] = {target: {} for target in targets}
    for part in chunks(keys):
        asked = {"targets": list(named), "kind": KIND_CODES[kind], "keys": part}
        for name, key, *row in ask(_LOOK_UP, asked):
            latency, spread, at, failure = row
            rows_of[named[name]].setdefault(bytes(key), []).append((latency, spread, at, failure))
    return rows_of


def measurement_bodies(
    ask: Ask, target: Target | None, kind: Kind | None, signature: bytes | None
) -> Iterator[bytes]:
    """Compressed JSON of records, by target, kind, signature and content."""
    query, asked = _RECORDS, dict[str, object]()
    if kind is not None:
        query, asked["kind"] = f"{query} AND kind = :kind", KIND_CODES[kind]
    if signature is not None:
        query, asked["signature"] = f"{query} AND signature = :signature", signature
    for number in _target_ids(ask, target):
        ids = ask(f"{query} ORDER BY kind, signature, id", {"target": number, **asked})
        yield from _in_pages(ask, ids, _BODIES)


def recent_bodies(ask: Ask, target: Target, runs: int, each: int) -> Iterator[bytes]:
    """Compressed JSON of good records of the newest ``runs`` minutes, ``each`` of a minute.

    Whole networks come first: they are few, and tell more of how the machine ran than cells do.
    """
    asked = {"target": str(target), "kind": KIND_CODES["network"], "most": _MOST_RECENT}
    chosen: dict[str, list[bytes]] = {}
    for measured_at, key in ask(_RECENT, asked):
        minute = chosen.setdefault(str(measured_at)[:16], [])
        if len(chosen) > runs:
            break
        if len(minute) < each:
            minute.append(bytes(key))
    keys = [(key,) for minute in chosen.values() for key in minute]
    yield from _in_pages(ask, sorted(keys), _BODIES)


def count(ask: Ask, target: Target, kind: Kind) -> int:
    """How many records of this kind there are of a target."""
    return int(ask(_COUNT, {"target": str(target), "kind": KIND_CODES[kind]})[0][0])


def signatures(ask: Ask, target: Target, kind: Kind) -> list[str]:
    """What there are records of this kind of, of a target."""
    found = ask(_SIGNATURES, {"target": str(target), "kind": KIND_CODES[kind]})
    return [bytes(key).hex() for (key,) in found]


def revision(ask: Ask, target: Target) -> tuple[int, str]:
    """How many records a target has, and the time of the newest: what changes with every add."""
    ((count, last),) = ask(_REVISION, {"target": str(target)})
    return int(count), str(last or "")


def breakdown_bodies(ask: Ask, target: Target | None) -> Iterator[bytes]:
    """Compressed JSON of breakdowns, by target and content."""
    for number in _target_ids(ask, target):
        yield from _in_pages(ask, ask(_BREAKDOWNS, {"target": number}), _BREAKDOWN_BODIES)


def _in_pages(ask: Ask, ids: list[tuple[Any, ...]], bodies_of: str) -> Iterator[bytes]:
    # The ids first, then the bodies in pages, each its own transaction: whoever consumes slowly
    # or writes meanwhile holds nobody up.
    for part in chunks([bytes(key) for (key,) in ids], _PAGE):
        bodies = {bytes(key): bytes(body) for key, body in ask(bodies_of, {"keys": part})}
        yield from (bodies[key] for key in part if key in bodies)


def signature_texts(ask: Ask, keys: list[bytes]) -> dict[str, str]:
    """Text of each hash (hex) that has one."""
    found = [row for part in chunks(keys) for row in ask(_TEXTS, {"keys": part})]
    return {bytes(key).hex(): text for key, text in found}


def cached(ask: Ask, key: str) -> str | None:
    """The text that the cache keeps under a key."""
    found = ask(_CACHED, {"key": codec.digest(key)})
    return str(found[0][0]) if found else None


def cached_digests(ask: Ask) -> frozenset[bytes]:
    """The digests of all keys that the cache has: at most some ten thousand."""
    return frozenset([bytes(key) for (key,) in ask(_CACHED_DIGESTS, {})])


def targets(ask: Ask) -> list[Target]:
    """All targets, sorted by name."""
    return list(_numbered_targets(ask).values())


def _numbered_targets(ask: Ask) -> dict[int, Target]:
    """The targets by their numbers, sorted by name here: databases sort text as they like."""
    try:
        named = {int(number): Target.parse(str(name)) for number, name in ask(_TARGETS, {})}
    except TargetError as error:
        raise StoreError(f"the store is damaged: {error}") from error
    return dict(sorted(named.items(), key=lambda item: str(item[1])))


def _target_ids(ask: Ask, target: Target | None) -> list[int]:
    return [number for number, held in _numbered_targets(ask).items() if target in (None, held)]


def stats(ask: Ask) -> list[TargetStats]:
    """One row per target, sorted by name."""
    found: dict[int, list[_KindStats]] = {}
    many = {(number, kind): n for number, kind, n in ask(_THINGS, {})}
    for number, kind, records, good, first, last in ask(_KIND_STATS, {}):
        size = _bytes(ask, number, kind, records)
        row = _KindStats(
            kind, many.get((number, kind), 0), records, good, first or "", last or "", size
        )
        found.setdefault(number, []).append(row)
    return [
        _target_stats(target, found.get(number, []))
        for number, target in _numbered_targets(ask).items()
    ]


class _KindStats(NamedTuple):
    """What there is of one kind of a target."""

    kind: int
    things: int
    records: int
    good: int
    first: str
    last: str
    bytes: int


def _target_stats(target: Target, rows: list[_KindStats]) -> TargetStats:
    cells, networks, layers = (
        sum(row.things for row in rows if row.kind == KIND_CODES[kind]) for kind in KINDS
    )
    records = sum(row.records for row in rows)
    return TargetStats(
        target,
        cells,
        networks,
        layers,
        records,
        failures=records - sum(row.good for row in rows),
        first=min((row.first for row in rows if row.first), default=""),
        last=max((row.last for row in rows), default=""),
        bytes=sum(row.bytes for row in rows),
    )


def _bytes(ask: Ask, target_id: int, kind: int, records: int) -> int:
    """The size of so many records, from some of them: those with the first hashes, a fair draw.

    Reading all of a million takes a disk many seconds.
    """
    ((count, total),) = ask(_SIZES, {"target": target_id, "kind": kind, "most": _WEIGHED})
    return round(int(total) / count * records) if count else 0
