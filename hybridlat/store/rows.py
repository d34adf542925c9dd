"""How rows of a store's tables are written: keys, compressed records, texts, codes of kinds."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from hybridlat.errors import StoreError
from hybridlat.schema import wire
from hybridlat.schema.measurement import Kind

T = TypeVar("T")
KIND_CODES: Final[dict[Kind, int]] = {"cell": 0, "network": 1, "layer": 2}
_RECORD_BYTES = 64 << 20  # unpacked; the longest are of some 10 kB


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of up to ``size`` items."""
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part


def key_of(hash_: str) -> bytes:
    """The 16 bytes that a hash is stored as; StoreError for what is no hash."""
    try:
        key = bytes.fromhex(hash_)
    except ValueError:
        key = b""
    if len(key) != 16:
        raise StoreError(f"{hash_[:60]!r} is not a signature hash: it has 32 hex digits")
    return key


def packed(text: str) -> bytes:
    """A record's canonical JSON as it is stored: compressed."""
    return zlib.compress(text.encode())


def unpacked(body: bytes) -> object:
    """The JSON of a stored record; ValueError where it is damaged."""
    packed = zlib.decompressobj()
    try:
        text = packed.decompress(body, _RECORD_BYTES)
    except zlib.error as error:
        raise ValueError(f"a record cannot be unpacked ({error})") from error
    if not packed.eof:
        raise ValueError(f"a record cannot be unpacked: it is cut, or above {_RECORD_BYTES} bytes")
    return wire.decode(text, object)


def plain(text: str) -> str:
    """A text as every database takes it: PostgreSQL keeps no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
