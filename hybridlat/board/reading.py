"""What others wrote, read as what it is: regular files of bounded size, JSON of one shape."""

import json
import os
import re
import stat
import zlib
from typing import Any, Callable, NamedTuple

from . import BoardError

Kind = NamedTuple("Kind", [("words", str), ("fits", Callable[[Any], bool])])
"""A single value: what it is called where another stands in its place, and whether one fits."""


def matching(words: str, pattern: str) -> Kind:
    """Text that a regular expression matches as a whole."""
    whole = re.compile("(?:%s)\\Z" % pattern)
    return Kind(words, lambda value: isinstance(value, str) and bool(whole.match(value)))


def bounded(words: str, least: float, most: float, of: Any = (int, float)) -> Kind:
    """A number between two bounds: no truth value, infinity or NaN."""

    def fits(value: Any) -> bool:
        return isinstance(value, of) and not isinstance(value, bool) and least <= value <= most

    return Kind(words, fits)


def _is_text(value: Any) -> bool:
    """Half of a surrogate pair is no character: nothing can store it."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


TEXT = Kind("text", _is_text)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = bounded("count", 0, 10**12, int)
NUMBER = bounded("number", -1e15, 1e15)
FACT = Kind("fact", lambda value: value is None or _is_text(value) or NUMBER.fits(value))
TIME = matching("time in UTC", r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def misfit(value: Any, shape: Any, at: str = "") -> str:
    """What in ``value`` is not of ``shape``, in words; empty where all of it is.

    A shape is a Kind; ``[shape]``, a list of any length; ``{Kind: shape}``, an object of any keys
    of a kind; or an object of fields, of which those whose names end with ``?`` may be missing.
    Further fields are ignored.
    """
    lacks = ""
    if isinstance(shape, Kind):
        return "" if shape.fits(value) else "%s %.60r is no %s" % (at, value, shape.words)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return "%s %.60r is no list" % (at, value)
        parts = [("%s[%d]" % (at, i), one, shape[0]) for i, one in enumerate(value)]
    elif not isinstance(value, dict):
        return "%s %.60r is no object" % (at, value)
    else:
        parts = []
        for key, part in shape.items():
            if isinstance(key, Kind):
                wrong = next((one for one in value if not key.fits(one)), None)
                if wrong is not None:
                    return "%s: %.60r is no %s" % (at, wrong, key.words)
                parts += [("%s.%.40s" % (at, name), one, part) for name, one in value.items()]
            elif key.rstrip("?") in value:
                parts.append((("%s.%s" % (at, key)).strip("?."), value[key.rstrip("?")], part))
            elif not key.endswith("?"):
                lacks = "%s lacks %s" % (at, key)
    return next(filter(None, (misfit(one, part, where) for where, one, part in parts)), lacks)


def parse(text: str) -> Any:
    """A JSON document; ValueError says what is wrong, also with NaN and nesting without end."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply")


def _refuse(name: str) -> None:
    raise ValueError("%s is no number" % name)


def read_file(path: str, most_bytes: int) -> bytes:
    """A regular file's content; BoardError for a device, a pipe, or more than ``most_bytes``."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe is waited for, a device never ends
            raise BoardError("%s is no regular file" % path)
        with open(path, "rb") as source:
            content = source.read(most_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise BoardError("%s cannot be read: %s" % (path, error.strerror))
    if len(content) > most_bytes:
        raise BoardError("%s is larger than %d MB" % (path, most_bytes >> 20))
    return content


_MIRRORED = bytes(int("{:08b}".format(byte)[::-1], 2) for byte in range(256))


def cksum(content: bytes) -> str:
    """Check sum and size as POSIX's ``cksum`` prints them: zlib's polynomial, bits mirrored."""
    size = len(content)
    length = size.to_bytes((size.bit_length() + 7) // 8, "little")
    register = zlib.crc32((content + length).translate(_MIRRORED), 0xFFFFFFFF)
    return "%d %d" % (int("{:032b}".format(register)[::-1], 2), size)
