"""What is read from a store's database. Loads SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from hybridlat.errors import StoreError, TargetError
from hybridlat.schema.measurement import KINDS, Kind
from hybridlat.schema.target import Target
from hybridlat.store.database import Database, chunks
from hybridlat.store.latencies import LatencyRow, TargetStats
from hybridlat.store.tables import (
    BREAKDOWN,
    KIND_CODES,
    MEASUREMENT,
    PAYLOAD,
    SIGNATURE,
    TARGET,
)

_PAGE = 500
_MOST_RECENT = 20_000  # rows looked through for the newest runs
_WEIGHED = 500  # records of a target and kind whose sizes stand for all of them
# Made once: building a statement takes longer than asking it.
_OF_KIND = (TARGET.c.name == sa.bindparam("name"), MEASUREMENT.c.kind == sa.bindparam("kind"))
_ON_TARGET = TARGET.c.id == MEASUREMENT.c.target_id
_COUNT = sa.select(sa.func.count(MEASUREMENT.c.id)).join(TARGET, _ON_TARGET).where(*_OF_KIND)
_SIGNATURES = (
    sa.select(MEASUREMENT.c.signature).distinct().join(TARGET, _ON_TARGET).where(*_OF_KIND)
)
_LOOK_UP = (
    sa.select(
        TARGET.c.name,
        MEASUREMENT.c.signature,
        MEASUREMENT.c.latency_us,
        MEASUREMENT.c.spread_share,
        MEASUREMENT.c.measured_at,
        MEASUREMENT.c.failure,
    )
    .join(TARGET, _ON_TARGET)
    .where(
        TARGET.c.name.in_(sa.bindparam("names", expanding=True)),
        MEASUREMENT.c.kind == sa.bindparam("kind"),
        MEASUREMENT.c.signature.in_(sa.bindparam("keys", expanding=True)),
    )
)


def look_up(
    database: Database, targets: Sequence[Target], kind: Kind, keys: list[bytes]
) -> dict[Target, dict[bytes, list[LatencyRow]]]:
    """(latency_us, spread_share, measured_at, failure) of every record of each key."""
    named = {str(target): target for target in targets}

    def work(connection: sa.Connection) -> dict[Target, dict[bytes, list[LatencyRow]]]:
        rows_of: dict[Target, dict[bytes, list[LatencyRow]]] = {target: {} for target in targets}
        for part in chunks(keys):
            asked = {"names": list(named), "kind": KIND_CODES[kind], "keys": part}
            for name, key, latency, spread, at, failure in connection.execute(_LOOK_UP, asked):
                row = (latency, spread, at, failure)
                rows_of[named[name]].setdefault(bytes(key), []).append(row)
        return rows_of

    return database.read(work)


def measurement_bodies(
    database: Database, target: Target | None, kind: Kind | None, signature: bytes | None
) -> Iterator[bytes]:
    """Compressed JSON of records, by target, kind, signature and content."""
    column = MEASUREMENT.c
    for target_id in _target_ids(database, target):
        query = sa.select(column.id).where(column.target_id == target_id)
        if kind is not None:
            query = query.where(column.kind == KIND_CODES[kind])
        if signature is not None:
            query = query.where(column.signature == signature)
        query = query.order_by(column.kind, column.signature, column.id)
        yield from _in_pages(database, query, PAYLOAD)


def recent_bodies(database: Database, target: Target, runs: int, each: int) -> Iterator[bytes]:
    """Compressed JSON of good records of the newest ``runs`` minutes, ``each`` of a minute.

    Whole networks come first: they are few, and tell more of how the machine ran than cells do.
    """
    column = MEASUREMENT.c
    is_network = column.kind == KIND_CODES["network"]
    query = (
        sa.select(column.measured_at, column.id)
        .join(TARGET, TARGET.c.id == column.target_id)
        .where(TARGET.c.name == str(target), column.latency_us.is_not(None))
        .order_by(column.measured_at.desc(), is_network.desc(), column.id)
        .limit(_MOST_RECENT)
    )

    def work(connection: sa.Connection) -> list[bytes]:
        chosen: dict[str, list[bytes]] = {}
        for measured_at, key in connection.execute(query):
            minute = chosen.setdefault(str(measured_at)[:16], [])
            if len(chosen) > runs:
                break
            if len(minute) < each:
                minute.append(bytes(key))
        bodies: list[bytes] = []
        for part in chunks([key for minute in chosen.values() for key in minute]):
            wanted = sa.select(PAYLOAD.c.body).where(PAYLOAD.c.id.in_(part)).order_by(PAYLOAD.c.id)
            bodies += map(bytes, connection.scalars(wanted))
        return bodies

    yield from database.read(work)


def count(database: Database, target: Target, kind: Kind) -> int:
    """How many records of this kind there are of a target."""
    asked = {"name": str(target), "kind": KIND_CODES[kind]}
    return int(database.read(lambda connection: connection.scalar(_COUNT, asked)) or 0)


def signatures(database: Database, target: Target, kind: Kind) -> list[str]:
    """What there are records of this kind of, of a target."""
    asked = {"name": str(target), "kind": KIND_CODES[kind]}
    found = database.read(lambda connection: connection.scalars(_SIGNATURES, asked).all())
    return [bytes(key).hex() for key in found]


def revision(database: Database, target: Target) -> tuple[int, str]:
    """How many records a target has, and the time of the newest: what changes with every add."""
    column = MEASUREMENT.c
    query = (
        sa.select(sa.func.count(column.id), sa.func.max(column.measured_at))
        .join(TARGET, TARGET.c.id == column.target_id)
        .where(TARGET.c.name == str(target))
    )
    count, last = database.read(lambda connection: connection.execute(query).one())
    return int(count), str(last or "")


def breakdown_bodies(database: Database, target: Target | None) -> Iterator[bytes]:
    """Compressed JSON of breakdowns, by target and content."""
    column = BREAKDOWN.c
    for target_id in _target_ids(database, target):
        query = sa.select(column.id).where(column.target_id == target_id).order_by(column.id)
        yield from _in_pages(database, query, BREAKDOWN)


def _in_pages(database: Database, ids: sa.Select[bytes], table: sa.Table) -> Iterator[bytes]:
    # The ids first, then the bodies in pages, each its own transaction: whoever consumes slowly
    # or writes meanwhile holds nobody up.
    keys = database.read(lambda connection: [bytes(key) for key in connection.scalars(ids)])
    for part in chunks(keys, _PAGE):
        query = sa.select(table.c.id, table.c.body).where(table.c.id.in_(part))
        rows = database.read(partial(_rows, query))
        bodies = {bytes(key): bytes(body) for key, body in rows}
        yield from (bodies[key] for key in part if key in bodies)


def _rows(query: sa.Select[Any], connection: sa.Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(query)]


def signature_texts(database: Database, keys: list[bytes]) -> dict[str, str]:
    """Text of each hash (hex) that has one."""
    column = SIGNATURE.c

    def work(connection: sa.Connection) -> dict[str, str]:
        return {
            bytes(key).hex(): text
            for part in chunks(keys)
            for key, text in connection.execute(
                sa.select(column.hash, column.text).where(column.hash.in_(part))
            )
        }

    return database.read(work)


def targets(database: Database) -> list[Target]:
    """All targets, sorted by name."""
    return list(_numbered_targets(database).values())


def _numbered_targets(database: Database) -> dict[int, Target]:
    """The targets by their numbers, sorted by name here: databases sort text as they like."""
    query = sa.select(TARGET.c.id, TARGET.c.name)
    rows = database.read(lambda connection: connection.execute(query).all())
    try:
        named = {int(number): Target.parse(str(name)) for number, name in rows}
    except TargetError as error:
        raise StoreError(f"the store is damaged: {error}") from error
    return dict(sorted(named.items(), key=lambda item: str(item[1])))


def _target_ids(database: Database, target: Target | None) -> list[int]:
    named = _numbered_targets(database)
    return [number for number, held in named.items() if target in (None, held)]


def stats(database: Database) -> list[TargetStats]:
    """One row per target, sorted by name."""
    column = MEASUREMENT.c
    whose = (column.target_id, column.kind)
    counts = sa.select(
        *whose,
        sa.func.count(),
        sa.func.count(column.latency_us),
        sa.func.min(sa.func.nullif(column.measured_at, "")),
        sa.func.max(column.measured_at),
    ).group_by(*whose)
    known = sa.select(*whose, column.signature).where(column.latency_us.is_not(None)).distinct()
    thing = known.subquery().c
    things = sa.select(thing.target_id, thing.kind, sa.func.count())
    things = things.group_by(thing.target_id, thing.kind)

    def work(connection: sa.Connection) -> dict[int, list[_KindStats]]:
        found: dict[int, list[_KindStats]] = {}
        many = {(number, kind): n for number, kind, n in connection.execute(things)}
        for number, kind, records, good, first, last in connection.execute(counts):
            size = _bytes(connection, number, kind, records)
            row = _KindStats(
                kind, many.get((number, kind), 0), records, good, first or "", last or "", size
            )
            found.setdefault(number, []).append(row)
        return found

    found = database.read(work)
    return [
        _target_stats(target, found.get(number, []))
        for number, target in _numbered_targets(database).items()
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


def _bytes(connection: sa.Connection, target_id: int, kind: int, records: int) -> int:
    """The size of so many records, from some of them: those with the first hashes, a fair draw.

    Reading all of a million takes a disk many seconds.
    """
    column = MEASUREMENT.c
    some = (
        sa.select(column.id)
        .where(column.target_id == target_id, column.kind == kind)
        .order_by(column.signature, column.id)
        .limit(_WEIGHED)
    )
    weighed = sa.select(sa.func.count(), sa.func.sum(sa.func.length(PAYLOAD.c.body)))
    count, total = connection.execute(weighed.where(PAYLOAD.c.id.in_(some))).one()
    return round(int(total) / count * records) if count else 0
