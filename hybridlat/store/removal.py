"""Removal of the records of a target or a time, with what was cached of the target.

The one way in which records leave a store: whole, by the user's own word, and never edited.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from hybridlat.schema.measurement import Kind
from hybridlat.schema.target import Target
from hybridlat.store.cache import drop_of
from hybridlat.store.codec import KIND_CODES
from hybridlat.store.connection import Connection
from hybridlat.store.database import Database

_RECORDS = """
SELECT measurement.target_id, signature, kind, measurement.id, measured_at
FROM measurement JOIN target ON target.id = measurement.target_id WHERE target.name = :target"""
_DELETE_ENTRY = """
DELETE FROM measurement
WHERE target_id = :target AND kind = :kind AND signature = :signature AND id = :id"""
_DELETE_BODY = "DELETE FROM payload WHERE id = :id"
_DELETE_BREAKDOWNS = "DELETE FROM breakdown WHERE target_id = :target"


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

    def work(connection: Connection) -> Removal:
        removed = dict.fromkeys(KIND_CODES, 0)
        cached = 0
        for name in names:
            counts, entries = _remove_of(connection, name, since, until, dry_run)
            removed = {kind: number + counts[kind] for kind, number in removed.items()}
            cached += entries
        return Removal(removed["cell"], removed["network"], removed["layer"], cached)

    return database.write(work)


def _remove_of(
    connection: Connection,
    name: str,
    since: datetime.datetime | None,
    until: datetime.datetime | None,
    dry_run: bool,
) -> tuple[dict[Kind, int], int]:
    """The records by kind and the cached texts of one target."""
    rows = connection.rows(_RECORDS, {"target": name})
    chosen = [
        {"target": number, "signature": signature, "kind": kind, "id": id_}
        for number, signature, kind, id_, measured_at in rows
        if _is_between(measured_at, since, until)
    ]
    counts = {k: sum(row["kind"] == code for row in chosen) for k, code in KIND_CODES.items()}
    if not chosen:
        return counts, 0
    if not dry_run:
        connection.change(_DELETE_ENTRY, chosen)
        connection.change(_DELETE_BODY, [{"id": row["id"]} for row in chosen])
        if len(chosen) == len(rows):
            connection.change(_DELETE_BREAKDOWNS, [{"target": chosen[0]["target"]}])
    return counts, drop_of(connection, name, dry_run)


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
