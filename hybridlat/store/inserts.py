"""What is appended to a store's database, each call one short transaction. Loads SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from hybridlat.schema.measurement import Breakdown, Measurement, id_of
from hybridlat.store import codec
from hybridlat.store import tables as t
from hybridlat.store.database import Database, insert_missing


def add_signatures(database: Database, texts: Mapping[str, str]) -> int:
    """Keep the texts that hashes stand for; how many were new."""
    rows: dict[bytes, dict[str, object]] = {
        codec.key(h): {"hash": codec.key(h), "text": text} for h, text in texts.items()
    }
    return len(database.write(lambda c: insert_missing(c, t.SIGNATURE, "hash", rows)))


def add_measurements(database: Database, measurements: Iterable[Measurement]) -> int:
    """Append records; how many were new. StoreError for an unsound one."""
    records: dict[bytes, Measurement] = {}
    bodies: dict[bytes, dict[str, object]] = {}
    for record in measurements:
        codec.refuse(record.problems(), "measurement")
        text = record.text
        key = codec.key(id_of(text))
        records[key] = record
        bodies[key] = {"id": key, "body": codec.packed(text)}

    def work(connection: sa.Connection) -> int:
        new = insert_missing(connection, t.PAYLOAD, "id", bodies)
        targets = sorted({records[key].target for key in new}, key=str)
        ids = {target: database.made_target_id(connection, target) for target in targets}
        rows = [
            {
                "target_id": ids[m.target],
                "kind": codec.KIND_CODES[m.kind],
                "signature": codec.key(m.signature),
                "id": key,
                "latency_us": m.latency_us,
                "spread_share": m.spread_share,
                "measured_at": m.measured_at[:40],
                "failure": None if m.failure is None else codec.plain(m.failure),
            }
            for key, m in ((key, records[key]) for key in new)
        ]
        if rows:
            connection.execute(t.MEASUREMENT.insert(), rows)
        return len(rows)

    new = database.write(work)
    database.has_grown(new)
    return new


def add_breakdowns(database: Database, breakdowns: Iterable[Breakdown]) -> int:
    """Append breakdowns; how many were new. StoreError for an unsound one."""
    by_key = {codec.key(b.id): b for b in breakdowns}
    for item in by_key.values():
        codec.refuse(item.problems(), "breakdown")
    bodies = {key: codec.packed(b.text) for key, b in by_key.items()}

    def work(connection: sa.Connection) -> int:
        targets = sorted({b.target for b in by_key.values()}, key=str)
        ids = {target: database.made_target_id(connection, target) for target in targets}
        rows: dict[bytes, dict[str, object]] = {
            key: {
                "id": key,
                "target_id": ids[b.target],
                "network": codec.plain(b.network[:255]),
                "body": bodies[key],
            }
            for key, b in by_key.items()
        }
        return len(insert_missing(connection, t.BREAKDOWN, "id", rows))

    return database.write(work)
