"""Tables of a store; imports SQLAlchemy, so import this module inside functions.

A look-up must not touch raw samples. So each record is two rows: a compact one in ``measurement``,
clustered by (target, kind, signature), and its whole JSON, compressed, in ``payload``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from hybridlat.schema.measurement import Kind

SCHEMA = 1
#: Steps from each older schema to the next: ``MIGRATIONS[n]`` turns schema n+1 into n+2.
MIGRATIONS: list[Callable[[sa.Connection], None]] = []
#: How long a writer waits for the others before it gives up.
BUSY_S = 60

KIND_CODES: Final[dict[Kind, int]] = {"cell": 0, "network": 1, "layer": 2}

_HASH = sa.LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")
_BLOB = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")

METADATA = sa.MetaData()
META = sa.Table(
    "hybridlat_meta",
    METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.String(255), nullable=False),
)
TARGET = sa.Table(
    "target",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
)
SIGNATURE = sa.Table(
    "signature",
    METADATA,
    sa.Column("hash", _HASH, primary_key=True),
    sa.Column("text", _TEXT, nullable=False),
)
MEASUREMENT = sa.Table(
    "measurement",
    METADATA,
    sa.Column("target_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("signature", _HASH, primary_key=True),
    sa.Column("id", _HASH, primary_key=True),
    sa.Column("latency_us", sa.Double),
    sa.Column("spread_share", sa.Double, nullable=False),
    sa.Column("measured_at", sa.String(40), nullable=False),
    sa.Column("failure", _TEXT),
    sqlite_with_rowid=False,
)
PAYLOAD = sa.Table(
    "payload",
    METADATA,
    sa.Column("id", _HASH, primary_key=True),
    sa.Column("body", _BLOB, nullable=False),
)
BREAKDOWN = sa.Table(
    "breakdown",
    METADATA,
    sa.Column("id", _HASH, primary_key=True),
    sa.Column("target_id", sa.Integer, nullable=False, index=True),
    sa.Column("network", sa.String(255), nullable=False),
    sa.Column("body", _BLOB, nullable=False),
)
CACHE = sa.Table(
    "cache",
    METADATA,
    sa.Column("key", _HASH, primary_key=True),
    sa.Column("text", _TEXT, nullable=False),
)
