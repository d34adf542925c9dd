"""The cache in a store's database: JSON documents that can be made again, so old ones may go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from hybridlat.schema import wire
from hybridlat.store import codec
from hybridlat.store.codec import chunks
from hybridlat.store.connection import Connection
from hybridlat.store.database import Database

MAX_ENTRIES = 50_000
MAX_BYTES = 200_000_000
_ROOM = 0.9  # of the bound is what is left when it was passed, so that it is not passed at once
_PAGE = 200
_SCOPE_LENGTH = 255  # of the column
_GET = "SELECT text FROM cache WHERE key = :key"
_PUT = """
INSERT INTO cache (key, text, scope, made_at_s, size_bytes)
VALUES (:key, :text, :scope, :made_at_s, :size_bytes) ON CONFLICT DO NOTHING"""
_SIZE = "SELECT count(*), coalesce(sum(size_bytes), 0) FROM cache"
_NEWEST_FIRST = "SELECT key, scope, made_at_s, size_bytes FROM cache ORDER BY made_at_s DESC, key"
_KEYS = "SELECT key FROM cache"
_ENTRIES = "SELECT key, scope, text, size_bytes FROM cache WHERE key IN :keys"
_DELETE = "DELETE FROM cache WHERE key = :key"


@dataclass(frozen=True, slots=True)
class CacheSweep:
    """What a sweep dropped and what it left; ``file_bytes`` is by how much the file shrank.

    Bytes are those of the texts. Where the space is given back later, or is no file's,
    ``file_bytes`` is None.
    """

    dropped: int = 0
    dropped_bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0
    file_bytes: int | None = None


def scope_of(key: str) -> str:
    """What keys of one kind share: all but the last of the parts between slashes."""
    return key.rpartition("/")[0][:_SCOPE_LENGTH]


def get(database: Database, key: str) -> str | None:
    """The document under a key; None where there is none."""
    rows = database.read(tuple[str], _GET, {"key": codec.digest(key)})
    return rows[0][0] if rows else None


def put(database: Database, key: str, text: str) -> None:
    """Store a document, dated now; one that is there already stays."""
    digest = codec.digest(key)
    row = {
        "key": digest, "text": text, "scope": scope_of(key), "made_at_s": int(time.time()),
        "size_bytes": len(text.encode()),
    }  # fmt: skip

    def work(connection: Connection) -> None:
        new = connection.change(_PUT, [row])
        if new and digest[0] == 0:  # one write in 256 looks, so it may be passed by a little
            _bound(connection)

    database.write(work)


def remove(database: Database, keys: Iterable[str]) -> int:
    """Drop the entries of these keys; how many there were."""
    rows = [{"key": codec.digest(key)} for key in keys]
    return database.write(lambda connection: connection.change(_DELETE, rows))


def damaged(database: Database) -> Iterator[tuple[bytes, str, str]]:
    """The key, the scope and the problem of each entry that is not as it was written."""
    keys = [key for (key,) in database.read(tuple[bytes], _KEYS)]
    for part in chunks(keys, _PAGE):
        for key, scope, text, size in database.read(
            tuple[bytes, str, str, int], _ENTRIES, {"keys": part}
        ):
            if len(text.encode()) != size:
                yield key, scope, f"it has {len(text.encode())} bytes instead of {size}"
            elif not wire.is_json(text):
                yield key, scope, "it is not a JSON document"


def drop_of(connection: Connection, target: str, dry_run: bool) -> int:
    """Drop what was cached of a target, in a transaction under way; how many entries."""

    def drops(_key: bytes, scope: str, _made_at_s: int) -> bool:
        return f"/{target}/" in f"/{scope}/"

    return _drop(connection, drops, None, None, dry_run=dry_run).dropped


def sweep(
    database: Database,
    *,
    older_than_s: float | None = None,
    max_bytes: int | None = None,
    is_outdated: Callable[[str], bool] = lambda _: False,
    dry_run: bool = False,
) -> CacheSweep:
    """Drop entries that are damaged, old or of an outdated scope, and the oldest over a size."""
    before_s = -1 if older_than_s is None else int(time.time() - older_than_s)
    broken = {key for key, _, _ in damaged(database)}
    verdicts: dict[str, bool] = {}

    def drops(key: bytes, scope: str, made_at_s: int) -> bool:
        if scope not in verdicts:
            verdicts[scope] = is_outdated(scope)
        return made_at_s < before_s or verdicts[scope] or key in broken

    done = database.write(
        lambda connection: _drop(connection, drops, max_bytes, None, dry_run=dry_run)
    )
    return done if dry_run or not done.dropped else replace(done, file_bytes=database.shrink())


def _bound(connection: Connection) -> None:
    ((entries, size),) = connection.rows(_SIZE, {})
    if entries > MAX_ENTRIES or size > MAX_BYTES:
        room = int(_ROOM * MAX_BYTES), int(_ROOM * MAX_ENTRIES)
        _drop(connection, lambda *_: False, *room, dry_run=False)


def _drop(
    connection: Connection,
    drops: Callable[[bytes, str, int], bool],
    max_bytes: int | None,
    max_entries: int | None,
    *,
    dry_run: bool,
) -> CacheSweep:
    dropped: list[dict[str, object]] = []
    dropped_bytes = kept = kept_bytes = 0
    for key, scope, made_at_s, size in connection.rows(_NEWEST_FIRST, {}):
        over = max_bytes is not None and kept_bytes + size > max_bytes
        over = over or (max_entries is not None and kept >= max_entries)
        if over or drops(bytes(key), scope, made_at_s):
            dropped.append({"key": key})
            dropped_bytes += size
        else:
            kept, kept_bytes = kept + 1, kept_bytes + size
    if not dry_run:
        connection.change(_DELETE, dropped)
    return CacheSweep(len(dropped), dropped_bytes, kept, kept_bytes)
