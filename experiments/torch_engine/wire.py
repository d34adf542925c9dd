"""Protocol buffers by hand: a message is a list of (field, wire type, value), order kept."""

import struct
from typing import Iterator, List, Tuple, Union

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Value = Union[int, bytes]
Field = Tuple[int, int, Value]


def read_varint(data: bytes, at: int) -> Tuple[int, int]:
    """The number that starts at ``at``, and where the next thing starts."""
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number in the file is longer than 64 bits")


def read(data: bytes) -> List[Field]:
    """All fields of one message; ValueError for bytes that are none."""
    fields: List[Field] = []
    at, end = 0, len(data)
    try:
        while at < end:
            key, at = read_varint(data, at)
            number, kind = key >> 3, key & 7
            if kind == VARINT:
                value, at = read_varint(data, at)
                fields.append((number, kind, value))
                continue
            if kind == BYTES:
                size, at = read_varint(data, at)
            elif kind in (FIXED64, FIXED32):
                size = 8 if kind == FIXED64 else 4
            else:
                raise ValueError("wire type %d is not used by ONNX" % kind)
            if at + size > end:
                raise ValueError("the file ends in the middle of a field")
            fields.append((number, kind, data[at : at + size]))
            at += size
    except IndexError:
        raise ValueError("the file ends in the middle of a number")
    return fields


def all_bytes(fields: List[Field], number: int) -> List[bytes]:
    """Every length-delimited value of field ``number``."""
    return [v for n, _, v in fields if n == number and isinstance(v, bytes)]


def text(fields: List[Field], number: int) -> str:
    """The last string of field ``number``, empty where there is none."""
    result = all_bytes(fields, number)
    return result[-1].decode("utf-8") if result else ""


def integer(fields: List[Field], number: int, default: int = 0) -> int:
    """The last number of field ``number``, signed."""
    for n, _, value in reversed(fields):
        if n == number and isinstance(value, int):
            return value - (1 << 64) if value >> 63 else value
    return default


def integers(fields: List[Field], number: int) -> List[int]:
    """A repeated number, packed or not, signed."""
    return [v - (1 << 64) if v >> 63 else v for v in _unsigned(fields, number)]


def _unsigned(fields: List[Field], number: int) -> Iterator[int]:
    for n, _, value in fields:
        if n != number:
            continue
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            one, at = read_varint(value, at)
            yield one


def floats(fields: List[Field], number: int) -> List[float]:
    """A repeated 32-bit float, packed or not."""
    result: List[float] = []
    for value in all_bytes(fields, number):
        result.extend(struct.unpack("<%df" % (len(value) // 4), value))
    return result
