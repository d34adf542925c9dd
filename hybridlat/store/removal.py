"""Taking records of a target or a time back, with what was cached of the target. Loads SQLAlchemy.

The one way in which records leave a store: whole, by the user's own word, and never edited.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from hybridlat.schema.measurement import Kind
from hybridlat.schema.target import Target
from hybridlat.store.cache import drop_of
from hybridlat.store.codec import KIND_CODES, chunks
from hybridlat.store.database import Database
from hybridlat.store.tables import BREAKDOWN, MEASUREMENT, PAYLOAD, TARGET


@dataclass(frozen=True, slots=True)
class Removal:
    """How many records and cached texts were taken back, or would be."""

    cells: int = 0
    networks: int = 0
    layers: int = 0
    cached: int = 0

    @property
    def records(self) -> int:
        return self.cells + self.networks + self.layers


def remove(
    database: Database,
    targets: Iterable[Target],
    since: datetime.datetime | None,
    until: datetime.datetime | None,
    dry_run: bool,
) -> Removal:
    """Remove the records that were measured at ``since`` or later, and before ``until``.

    A record without a date goes only where neither is given. A target that keeps no record loses
    its breakdowns too. With ``dry_run`` nothing is removed, and the answer says what would be.
    """
    names = [str(target) for target in targets]

    def work(connection: sa.Connection) -> Removal:
        removed = dict.fromkeys(KIND_CODES, 0)
        cached = 0
        for name in names:
            counts, entries = _remove_of(connection, database, name, since, until, dry_run)
            removed = {kind: number + counts[kind] for kind, number in removed.items()}
            cached += entries
        return Removal(removed["cell"], removed["network"], removed["layer"], cached)

    return database.write(work)


def _remove_of(
    connection: sa.Connection,
    database: Database,
    name: str,
    since: datetime.datetime | None,
    until: datetime.datetime | None,
    dry_run: bool,
) -> tuple[dict[Kind, int], int]:
    """The records by kind and the cached texts of one target."""
    number = sa.select(TARGET.c.id).where(TARGET.c.name == name).scalar_subquery()
    column = MEASUREMENT.c
    query = sa.select(column.id, column.kind, column.measured_at).where(column.target_id == number)
    rows = connection.execute(query).all()
    chosen = [(bytes(key), kind) for key, kind, at in rows if _is_between(at, since, until)]
    counts = {k: sum(kind == code for _, kind in chosen) for k, code in KIND_CODES.items()}
    if not chosen:
        return counts, 0
    if not dry_run:
        for part in chunks([key for key, _ in chosen]):
            connection.execute(
                sa.delete(MEASUREMENT).where(column.target_id == number, column.id.in_(part))
            )
            connection.execute(sa.delete(PAYLOAD).where(PAYLOAD.c.id.in_(part)))
        if len(chosen) == len(rows):
            connection.execute(sa.delete(BREAKDOWN).where(BREAKDOWN.c.target_id == number))
    return counts, drop_of(connection, database, name, dry_run)


def _is_between(
    measured_at: str, since: datetime.datetime | None, until: datetime.datetime | None
) -> bool:
    if since is None and until is None:
        return True
    try:
        at = datetime.datetime.fromisoformat(measured_at)
    except ValueError:
        return False
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return (since is None or since <= at) and (until is None or at < until)
