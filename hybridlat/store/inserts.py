"""What is appended to a store's database, each call one short transaction.

Rows are inserted in the order of their keys: writers of the same rows then wait for each other in
one order, and neighbours in an index are written together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hybridlat.errors import StoreError
from hybridlat.schema.measurement import Breakdown, Measurement, id_of
from hybridlat.schema.target import Target
from hybridlat.store import codec
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


def add_signatures(database: Database, texts: Mapping[str, str]) -> int:
    """Keep the texts that hashes stand for; how many were new."""
    rows = [{"hash": codec.key(h), "text": text} for h, text in sorted(texts.items())]
    return database.write(lambda connection: connection.change(_SIGNATURE, rows))


def add_measurements(database: Database, measurements: Iterable[Measurement]) -> int:
    """Append records; how many were new. StoreError for an unsound one."""
    texts: dict[str, str] = {}
    records: dict[str, Measurement] = {}
    for record in measurements:
        codec.refuse(record.problems(), "measurement")
        text = record.text
        texts[id_of(text)], records[id_of(text)] = text, record
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
    """The number of each target, given now where it has none."""
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
