"""How hashes and records are written into a store's database."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from hybridlat.errors import StoreError
from hybridlat.schema import wire
from hybridlat.schema.measurement import Kind

T = TypeVar("T")

KIND_CODES: Final[dict[Kind, int]] = {"cell": 0, "network": 1, "layer": 2}


def key(hash_: str) -> bytes:
    """The 16 bytes that a hash is stored as; StoreError for what is no hash."""
    try:
        key = bytes.fromhex(hash_)
    except ValueError:
        key = b""
    if len(key) != 16:
        raise StoreError(f"{hash_[:60]!r} is not a signature hash: it has 32 hex digits")
    return key


def digest(key: str) -> bytes:
    """The 16 bytes that a cache key is stored as."""
    return hashlib.sha256(key.encode()).digest()[:16]


def packed(text: str) -> bytes:
    """A record's canonical JSON as it is stored: compressed."""
    return zlib.compress(text.encode())


def plain(text: str) -> str:
    """A text as every database takes it: PostgreSQL keeps no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def unpacked(body: bytes) -> object:
    """The JSON of a stored record; ValueError where it is damaged."""
    try:
        return wire.decode(zlib.decompress(body), object)
    except zlib.error as error:
        raise ValueError(f"a record cannot be unpacked ({error})") from error


def decoded(read: Callable[[object], T], body: bytes, url: str) -> T:
    """A stored record read back; StoreError where it is damaged."""
    try:
        return read(unpacked(body))
    except ValueError as error:
        raise StoreError(
            f"a record of the store {url} is damaged: {error} (`hybridlat store check` lists all)"
        ) from error


def refuse(problems: tuple[str, ...], what: str) -> None:
    """StoreError with the first problem, if there is one."""
    if problems:
        raise StoreError(f"the store takes no {what} in which {problems[0]}")


def chunks(keys: list[bytes], size: int = 900) -> Iterator[list[bytes]]:
    """Parts of a list that every database takes as the values of one ``IN``."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
