"""The cache in a store's database: JSON documents that can be made again, so old ones may go."""

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from hybridlat.errors import StoreError
from hybridlat.schema.files import decode_or_none
from hybridlat.store.connection import Connection
from hybridlat.store.database import Database

T = TypeVar("T")
_Drops = Callable[[bytes, str, int], bool]  # by an entry's key, scope and time
MAX_BYTES = 200_000_000
_ROOM = 0.9  # of the bound is what is left when it was passed, so that it is not passed at once
_log = logging.getLogger(__name__)
_GET = "SELECT text FROM cache WHERE key = :key"
_PUT = """
INSERT INTO cache (key, text, scope, made_at_s, size_bytes)
VALUES (:key, :text, :scope, :made_at_s, :size_bytes) ON CONFLICT DO NOTHING"""
_SIZE = "SELECT coalesce(sum(size_bytes), 0) FROM cache"
_NEWEST_FIRST = "SELECT key, scope, made_at_s, size_bytes FROM cache ORDER BY made_at_s DESC, key"
_KEYS = "SELECT key FROM cache"
_ENTRIES = "SELECT key, scope, text FROM cache WHERE key IN :keys"
_DELETE = "DELETE FROM cache WHERE key = :key"


@dataclass(frozen=True, slots=True)
class CacheSweep:
    """What a sweep dropped and what it left; bytes are those of the texts."""

    dropped: int = 0
    dropped_bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0


class Cache:
    """The documents by their keys. The scope of a key is all but its last part between slashes."""

    _database: Database

    def cache_read(self, key: str, read: Callable[[str], T | None]) -> T | None:
        """What ``read`` makes of the document under ``key``; None where there is none."""
        for (text,) in self._database.read(tuple[str], _GET, {"key": _digest(key)}):
            document = read(text)
            if document is not None:
                return document
            _log.warning("a damaged entry of the cache is made again: %s", key)
            with contextlib.suppress(StoreError):  # a store that takes nothing
                self.cache_remove([key])
        return None

    def cache_put(self, texts: Mapping[str, str]) -> None:
        """Keep documents by their keys, in one transaction; what is there already stays."""
        rows = list[dict[str, Any]]()
        for key, text in texts.items():
            scope = key.rpartition("/")[0][:255]  # letters of the column
            row = {"key": _digest(key), "text": text, "scope": scope}
            rows.append(row | {"made_at_s": int(time.time()), "size_bytes": len(text.encode())})

        def work(connection: Connection) -> int:
            new = connection.change(_PUT, rows)
            # One write in 256 looks, so the bound may be passed by a little.
            if new and any(row["key"][0] == 0 for row in rows):
                ((size,),) = connection.rows(_SIZE, {})
                if size > MAX_BYTES:
                    _drop(connection, lambda *_: False, _ROOM * MAX_BYTES)
            return new

        self._database.keep(work)

    def cache_remove(self, keys: Iterable[str]) -> None:
        if self._database.place.exists:
            rows = [{"key": _digest(key)} for key in keys]
            self._database.write(lambda connection: connection.change(_DELETE, rows))

    def cache_sweep(
        self,
        *,
        older_than_s: float | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
    ) -> CacheSweep:
        """Drop cached documents that are no longer useful, and give their space back.

        Dropped are damaged ones, those older than ``older_than_s``, and the oldest over
        ``max_bytes``. With ``dry_run`` nothing is, and the answer says what would be. Records all
        stay.
        """
        if not self._database.place.exists:
            return CacheSweep()
        before_s = -1 if older_than_s is None else int(time.time() - older_than_s)
        broken = {key for key, _ in damaged(self._database)}

        def drops(key: bytes, scope: str, made_at_s: int) -> bool:
            return made_at_s < before_s or key in broken

        swept = self._database.write(lambda c: _drop(c, drops, max_bytes, dry_run=dry_run))
        if swept.dropped and not dry_run:
            self._database.run(lambda connection: connection.shrink())
        return swept


def damaged(database: Database) -> Iterator[tuple[bytes, str]]:
    """The key and the scope of each entry that is no JSON document."""
    for key, scope, text in database.paged(tuple[bytes, str, str], _ENTRIES, database.keys(_KEYS)):
        if decode_or_none(text, msgspec.Raw) is None:
            yield key, scope


def drop_of(connection: Connection, target: str, dry_run: bool) -> int:
    """Drop what was cached of a target, in a transaction under way; how many entries."""
    mark = f"/{target}/"
    return _drop(connection, lambda _, scope, __: mark in f"/{scope}/", dry_run=dry_run).dropped


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()[:16]


def _drop(
    connection: Connection, drops: _Drops, max_bytes: float | None = None, dry_run: bool = False
) -> CacheSweep:
    dropped: list[dict[str, object]] = []
    dropped_bytes = kept = kept_bytes = 0
    for key, scope, made_at_s, size in connection.rows(_NEWEST_FIRST, {}):
        over = max_bytes is not None and kept_bytes + size > max_bytes
        if over or drops(bytes(key), scope, made_at_s):
            dropped.append({"key": key})
            dropped_bytes += size
        else:
            kept, kept_bytes = kept + 1, kept_bytes + size
    if not dry_run:
        connection.change(_DELETE, dropped)
    return CacheSweep(len(dropped), dropped_bytes, kept, kept_bytes)
