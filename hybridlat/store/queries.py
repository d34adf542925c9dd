"""What is read from a store's database. Loads SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from hybridlat.errors import StoreError, TargetError
from hybridlat.schema.measurement import Kind
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
    rows_of: dict[Target, dict[bytes, list[LatencyRow]]] = {target: {} for target in targets}
    with database.reading() as connection:
        for part in chunks(keys):
            asked = {"names": list(named), "kind": KIND_CODES[kind], "keys": part}
            for name, key, latency, spread, at, failure in connection.execute(_LOOK_UP, asked):
                row = (latency, spread, at, failure)
                rows_of[named[name]].setdefault(bytes(key), []).append(row)
    return rows_of


def measurement_bodies(
    database: Database, target: Target | None, kind: Kind | None, signature: bytes | None
) -> Iterator[bytes]:
    """Compressed JSON of records, by target, kind, signature and content."""
    column = MEASUREMENT.c
    query = (
        sa.select(column.id)
        .join(TARGET, TARGET.c.id == column.target_id)
        .order_by(TARGET.c.name, column.kind, column.signature, column.id)
    )
    if target is not None:
        query = query.where(TARGET.c.name == str(target))
    if kind is not None:
        query = query.where(column.kind == KIND_CODES[kind])
    if signature is not None:
        query = query.where(column.signature == signature)
    return _in_pages(database, query, PAYLOAD)


def recent_bodies(database: Database, target: Target, runs: int, each: int) -> Iterator[bytes]:
    """Compressed JSON of good records of the newest ``runs`` minutes, ``each`` of a minute."""
    column = MEASUREMENT.c
    query = (
        sa.select(column.measured_at, column.id)
        .join(TARGET, TARGET.c.id == column.target_id)
        .where(TARGET.c.name == str(target), column.latency_us.is_not(None))
        .order_by(column.measured_at.desc(), column.id)
        .limit(_MOST_RECENT)
    )
    chosen: dict[str, list[bytes]] = {}
    with database.reading() as connection:
        for measured_at, key in connection.execute(query):
            minute = chosen.setdefault(str(measured_at)[:16], [])
            if len(chosen) > runs:
                break
            if len(minute) < each:
                minute.append(bytes(key))
        keys = [key for minute in chosen.values() for key in minute]
        for part in chunks(keys):
            wanted = sa.select(PAYLOAD.c.body).where(PAYLOAD.c.id.in_(part)).order_by(PAYLOAD.c.id)
            yield from map(bytes, connection.scalars(wanted))


def count(database: Database, target: Target, kind: Kind) -> int:
    """How many records of this kind there are of a target."""
    asked = {"name": str(target), "kind": KIND_CODES[kind]}
    with database.reading() as connection:
        return int(connection.scalar(_COUNT, asked) or 0)


def signatures(database: Database, target: Target, kind: Kind) -> list[str]:
    """What there are records of this kind of, of a target."""
    asked = {"name": str(target), "kind": KIND_CODES[kind]}
    with database.reading() as connection:
        return [bytes(key).hex() for key in connection.scalars(_SIGNATURES, asked)]


def revision(database: Database, target: Target) -> tuple[int, str]:
    """How many records a target has, and the time of the newest: what changes with every add."""
    column = MEASUREMENT.c
    query = (
        sa.select(sa.func.count(column.id), sa.func.max(column.measured_at))
        .join(TARGET, TARGET.c.id == column.target_id)
        .where(TARGET.c.name == str(target))
    )
    with database.reading() as connection:
        count, last = connection.execute(query).one()
    return int(count), str(last or "")


def breakdown_bodies(database: Database, target: Target | None) -> Iterator[bytes]:
    """Compressed JSON of breakdowns, by target and content."""
    column = BREAKDOWN.c
    query = (
        sa.select(column.id)
        .join(TARGET, TARGET.c.id == column.target_id)
        .order_by(TARGET.c.name, column.id)
    )
    if target is not None:
        query = query.where(TARGET.c.name == str(target))
    return _in_pages(database, query, BREAKDOWN)


def _in_pages(database: Database, ids: sa.Select[bytes], table: sa.Table) -> Iterator[bytes]:
    # The ids first, then the bodies in pages, each its own transaction: whoever consumes slowly
    # or writes meanwhile holds nobody up.
    with database.reading() as connection:
        keys = [bytes(key) for key in connection.scalars(ids)]
    for part in chunks(keys, _PAGE):
        with database.reading() as connection:
            query = sa.select(table.c.id, table.c.body).where(table.c.id.in_(part))
            bodies = {bytes(key): bytes(body) for key, body in connection.execute(query)}
        yield from (bodies[key] for key in part if key in bodies)


def signature_texts(database: Database, keys: list[bytes]) -> dict[str, str]:
    """Text of each hash (hex) that has one."""
    column = SIGNATURE.c
    with database.reading() as connection:
        return {
            bytes(key).hex(): text
            for part in chunks(keys)
            for key, text in connection.execute(
                sa.select(column.hash, column.text).where(column.hash.in_(part))
            )
        }


def targets(database: Database) -> list[Target]:
    """All targets, sorted by name."""
    with database.reading() as connection:
        names = list(connection.scalars(sa.select(TARGET.c.name)))
    try:
        return sorted((Target.parse(str(name)) for name in names), key=str)
    except TargetError as error:
        raise StoreError(f"the store is damaged: {error}") from error


def stats(database: Database) -> list[TargetStats]:
    """One row per target, sorted by name."""
    column = MEASUREMENT.c

    def different(kind: Kind) -> sa.ColumnElement[int]:
        good = sa.and_(column.kind == KIND_CODES[kind], column.latency_us.is_not(None))
        return sa.func.count(sa.distinct(sa.case((good, column.signature))))

    query = (
        sa.select(
            TARGET.c.name,
            different("cell"),
            different("network"),
            different("layer"),
            sa.func.count(column.id),
            sa.func.count(column.failure),
            sa.func.min(sa.func.nullif(column.measured_at, "")),
            sa.func.max(column.measured_at),
            sa.func.coalesce(sa.func.sum(sa.func.length(PAYLOAD.c.body)), 0),
        )
        .select_from(TARGET)
        .outerjoin(MEASUREMENT, column.target_id == TARGET.c.id)
        .outerjoin(PAYLOAD, PAYLOAD.c.id == column.id)
        .group_by(TARGET.c.name)
        .order_by(TARGET.c.name)
    )
    with database.reading() as connection:
        rows = connection.execute(query).all()
    return [
        TargetStats(
            Target.parse(name), cells, networks, layers, records, failures, first or "",
            last or "", int(size),
        )
        for name, cells, networks, layers, records, failures, first, last, size in rows
    ]  # fmt: skip
