"""What is added to a store's database and removed from it, each call one short transaction.

Rows are inserted in the order of their keys: writers of the same rows then wait for each other in
one order, and neighbours in an index are written together. Removal is the one way in which records
leave a store: whole, when the user says so, and never edited.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hybridlat.errors import StoreError
from hybridlat.schema.measurement import Breakdown, Kind, Measurement, id_of
from hybridlat.schema.target import Target
from hybridlat.store import codec
from hybridlat.store.cache import drop_of
from hybridlat.store.connection import Connection
from hybridlat.store.database import Database

_TARGET_ID = "SELECT id FROM target WHERE name = :name"
_TARGET = "INSERT INTO target (name) VALUES (:name) ON CONFLICT DO NOTHING"
_SIGNATURE = "INSERT INTO signature (hash, text) VALUES (:hash, :text) ON CONFLICT DO NOTHING"
_PAYLOAD = "INSERT INTO payload (id, body) VALUES (:id, :body) ON CONFLICT DO NOTHING"
_MEASUREMENT = """
INSERT INTO measurement (target_id, kind, signature, id, latency_us, spread_share, measured_at,
    failure)
VALUES (:target_id, :kind, :signature, :id, :latency_us, :spread_share, :measured_at, :failure)
ON CONFLICT DO NOTHING"""
_BREAKDOWN = """
INSERT INTO breakdown (id, target_id, network, body) VALUES (:id, :target_id, :network, :body)
ON CONFLICT DO NOTHING"""
_RECORDS = """
SELECT measurement.target_id, signature, kind, measurement.id, measured_at
FROM measurement JOIN target ON target.id = measurement.target_id WHERE target.name = :target"""
_DELETE_ENTRY = """
DELETE FROM measurement
WHERE target_id = :target AND kind = :kind AND signature = :signature AND id = :id"""
_DELETE_BODY = "DELETE FROM payload WHERE id = :id"
_DELETE_BREAKDOWNS = "DELETE FROM breakdown WHERE target_id = :target"


def add_signatures(database: Database, texts: Mapping[str, str]) -> int:
    """Keep the texts that hashes stand for; how many were new."""
    rows = [{"hash": codec.key(h), "text": text} for h, text in sorted(texts.items())]
    return database.write(lambda connection: connection.change(_SIGNATURE, rows)) if rows else 0


def add_measurements(database: Database, measurements: Iterable[Measurement]) -> int:
    """Append records; how many were new. StoreError for an unsound one."""
    texts: dict[str, str] = {}
    records: dict[str, Measurement] = {}
    for record in measurements:
        codec.refuse(record.problems(), "measurement")
        text = record.text
        texts[id_of(text)], records[id_of(text)] = text, record
    if not records:
        return 0
    bodies = [{"id": codec.key(id_), "body": codec.packed(texts[id_])} for id_ in sorted(texts)]

    def work(connection: Connection) -> int:
        targets = _target_ids(connection, records.values())
        new = connection.change(_PAYLOAD, bodies)
        rows = [
            {
                "target_id": targets[m.target],
                "kind": codec.KIND_CODES[m.kind],
                "signature": codec.key(m.signature),
                "id": codec.key(id_),
                "latency_us": m.latency_us,
                "spread_share": m.spread_share,
                "measured_at": m.measured_at[:40],
                "failure": None if m.failure is None else codec.plain(m.failure),
            }
            for id_, m in sorted(records.items())
        ]
        connection.change(_MEASUREMENT, rows)
        return new

    new = database.write(work)
    database.has_grown(new)
    return new


def add_breakdowns(database: Database, breakdowns: Iterable[Breakdown]) -> int:
    """Append breakdowns; how many were new. StoreError for an unsound one."""
    items = {item.id: item for item in breakdowns}
    for item in items.values():
        codec.refuse(item.problems(), "breakdown")
    if not items:
        return 0

    def work(connection: Connection) -> int:
        targets = _target_ids(connection, items.values())
        rows = [
            {
                "id": codec.key(id_),
                "target_id": targets[item.target],
                "network": codec.plain(item.network[:255]),
                "body": codec.packed(item.text),
            }
            for id_, item in sorted(items.items())
        ]
        return connection.change(_BREAKDOWN, rows)

    return database.write(work)


def _target_ids(
    connection: Connection, items: Iterable[Measurement | Breakdown]
) -> dict[Target, int]:
    """The number of each target; a new target gets one."""
    return {
        target: _target_id(connection, target)
        for target in sorted({item.target for item in items}, key=str)
    }


def _target_id(connection: Connection, target: Target) -> int:
    name = {"name": str(target)}
    rows = connection.rows(_TARGET_ID, name)
    if not rows:
        connection.change(_TARGET, [name])
        rows = connection.rows(_TARGET_ID, name)
    if not rows or not isinstance(rows[0][0], int):
        raise StoreError(f"the store is damaged: it gave the target {target} no number")
    return rows[0][0]


@dataclass(frozen=True, slots=True)
class Removal:
    """How many records and cached entries were removed, or would be."""

    cells: int = 0
    networks: int = 0
    layers: int = 0
    cached: int = 0

    @property
    def records(self) -> int:
        return self.cells + self.networks + self.layers


def remove_records(
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
        removed = dict.fromkeys(codec.KIND_CODES, 0)
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
    """Counts of the records by kind, and of the cached entries, of one target."""
    rows = connection.rows(_RECORDS, {"target": name})
    chosen = [
        {"target": number, "signature": signature, "kind": kind, "id": id_}
        for number, signature, kind, id_, measured_at in rows
        if _is_between(measured_at, since, until)
    ]
    counts = {k: sum(row["kind"] == code for row in chosen) for k, code in codec.KIND_CODES.items()}
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
