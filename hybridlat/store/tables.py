"""The tables of a store, schema 1, for every database.

A look-up must not touch raw samples. So each record is two rows: a compact one in ``measurement``,
clustered by (target, kind, signature), and its whole JSON, compressed, in ``payload``.
"""

from __future__ import annotations

from typing import Final

from hybridlat.errors import StoreError
from hybridlat.store.connection import Connection

SCHEMA = 1
CACHE_SCOPE_LENGTH = 255
NAMES: Final = (
    "hybridlat_meta", "target", "signature", "measurement", "payload", "breakdown", "cache",
)  # fmt: skip
_DEFINITIONS = """
CREATE TABLE hybridlat_meta (name VARCHAR(64) PRIMARY KEY, value VARCHAR(255) NOT NULL);
CREATE TABLE target (id {number} PRIMARY KEY, name VARCHAR(255) NOT NULL UNIQUE);
CREATE TABLE signature (hash {bytes} NOT NULL PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE measurement (
    target_id INTEGER NOT NULL, kind SMALLINT NOT NULL, signature {bytes} NOT NULL,
    id {bytes} NOT NULL, latency_us DOUBLE PRECISION, spread_share DOUBLE PRECISION NOT NULL,
    measured_at VARCHAR(40) NOT NULL, failure TEXT,
    PRIMARY KEY (target_id, kind, signature, id)
) {clustered};
CREATE TABLE payload (id {bytes} NOT NULL PRIMARY KEY, body {bytes} NOT NULL);
CREATE TABLE breakdown (
    id {bytes} NOT NULL PRIMARY KEY, target_id INTEGER NOT NULL, network VARCHAR(255) NOT NULL,
    body {bytes} NOT NULL
);
CREATE INDEX ix_breakdown_target_id ON breakdown (target_id);
CREATE TABLE cache (
    key {bytes} NOT NULL PRIMARY KEY, text TEXT NOT NULL, scope VARCHAR(255) DEFAULT '' NOT NULL,
    made_at_s BIGINT DEFAULT 0 NOT NULL, size_bytes BIGINT DEFAULT 0 NOT NULL
);
CREATE INDEX cache_age ON cache (made_at_s, size_bytes);
INSERT INTO hybridlat_meta (name, value) VALUES ('schema', '{schema}')
"""


def prepare(connection: Connection, store: str) -> None:
    """Make the tables where there are none.

    StoreError, which names ``store``, where the database holds something else or a newer schema.
    """
    if _has_tables(connection, store):
        return
    with connection.transaction():
        connection.lock_tables()
        if not _has_tables(connection, store):  # another process may have been faster
            for statement in _DEFINITIONS.format(**connection.types, schema=SCHEMA).split(";"):
                connection.define(statement)


def _has_tables(connection: Connection, store: str) -> bool:
    names = connection.table_names()
    if NAMES[0] not in names:
        if names:
            raise StoreError(
                f"{store} is a database of something else (it holds "
                f"{', '.join(sorted(names)[:5])}): give a store of its own"
            )
        return False
    rows = connection.rows("SELECT value FROM hybridlat_meta WHERE name = 'schema'", {})
    value = str(rows[0][0]) if rows else ""
    if not value.isdecimal() or int(value) < 1:
        raise StoreError(f"the store {store} is damaged: its schema reads {value!r}")
    if int(value) > SCHEMA:
        raise StoreError(
            f"the store {store} has schema {value}, newer than schema {SCHEMA} that this "
            "version of hybridlat knows: upgrade hybridlat"
        )
    return True
