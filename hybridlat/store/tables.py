"""Tables of a store; imports SQLAlchemy, so import this module inside functions.

A look-up must not touch raw samples. So each record is two rows: a compact one in ``measurement``,
clustered by (target, kind, signature), and its whole JSON, compressed, in ``payload``.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

#: Steps from each older schema to the next: ``MIGRATIONS[n]`` turns schema n+1 into n+2.
MIGRATIONS: list[Callable[[sa.Connection], None]] = []

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
    sa.Column("hash", sa.LargeBinary(16), primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
)
MEASUREMENT = sa.Table(
    "measurement",
    METADATA,
    sa.Column("target_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("signature", sa.LargeBinary(16), primary_key=True),
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("latency_us", sa.Double),
    sa.Column("spread_share", sa.Double, nullable=False),
    sa.Column("measured_at", sa.String(40), nullable=False),
    sa.Column("failure", sa.Text),
    sqlite_with_rowid=False,
)
PAYLOAD = sa.Table(
    "payload",
    METADATA,
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
BREAKDOWN = sa.Table(
    "breakdown",
    METADATA,
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("target_id", sa.Integer, nullable=False, index=True),
    sa.Column("network", sa.String(255), nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
CACHE_SCOPE_LENGTH = 255
CACHE = sa.Table(
    "cache",
    METADATA,
    sa.Column("key", sa.LargeBinary(16), primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    # Missing in files that were made before entries had an age: see ``cache``.
    sa.Column("scope", sa.String(CACHE_SCOPE_LENGTH), nullable=False, server_default=""),
    sa.Column("made_at_s", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("size_bytes", sa.BigInteger, nullable=False, server_default="0"),
)
CACHE_AGE = sa.Index("cache_age", CACHE.c.made_at_s, CACHE.c.size_bytes)
