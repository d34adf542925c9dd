"""What damages a file of any kind: its bytes, its lines, or a value of its JSON."""

import json
import os
import random
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3.5, -0.001, 1e-320, 1e300, -1e308, 2**70, 10**400, float("nan"),
    float("inf"), "", "x", "1", "a\0b", "\ud800", "\x1b[2J\n\u202e", "../../x", "/etc/passwd",
    "y" * 5000, "yesterday", "9999-12-31T23:59:59+00:00", "h100/tensorrt-8.6/fp16", "0" * 32,
    [], [1], [None], [[[[[]]]]], {}, {"a": 1}, {"": {}},
)  # fmt: skip
_PIECES = (
    b"", b"\0" * 7, b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000, b"NaN", b"1e999",
    b"-Infinity", b"\n" * 500, b'"', b"}", b"x" * (3 << 20), b"\\ud800", b"null", b"\x1b[31m",
)  # fmt: skip


Files = dict[str, bytes]
"""The files of a folder by name."""
LINK, PIPE = b"\0link ", b"\0pipe"
"""What a file's bytes begin with that is a link to the rest of them, or a pipe."""


def write(folder: Path, files: Files) -> None:
    """The files, links and pipes of a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith(LINK):
            path.symlink_to(content.removeprefix(LINK).decode())
        elif content == PIPE:
            os.mkfifo(path)
        else:
            path.write_bytes(content)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut, flipped, spliced, or with an odd piece in it."""
    if rng.random() < 0.3 and data:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 3, 300))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)
    start = rng.randrange(len(data) + 1)
    end = start + rng.randrange(1, 4000)
    piece = rng.choice((*_PIECES, data[end : end + 300], rng.randbytes(5), bytes(end - start)))
    return data[:start] + piece + data[rng.choice((start, end, len(data))) :]


def odd_value(value: Any, rng: random.Random) -> Any:
    """The value with an odd one at a random place: changed, missing, surplus or nested."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key, deed = rng.choice(list(value)), rng.random()
        if deed < 0.1:
            return {name: one for name, one in value.items() if name != key}
        if deed < 0.2:
            return {**value, rng.choice(("", "new", "\x1b")): rng.choice(ODD)}
        return {**value, key: odd_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        if rng.random() < 0.1:
            return [*value, value[place]]
        return [*value[:place], odd_value(value[place], rng), *value[place + 1 :]]
    if isinstance(value, int | float) and abs(value) < 1e9 and rng.random() < 0.5:
        return value * rng.choice((-1, 0, 2, 1000, 1e-3, 1e300, 1.001))
    return rng.choice(ODD)


def odd_json(data: bytes, rng: random.Random) -> bytes:
    return json.dumps(odd_value(json.loads(data), rng)).encode()


def odd_lines(data: bytes, rng: random.Random) -> bytes:
    """Lines of JSON in another order, twice, missing, of no use, or with an odd value."""
    lines = data.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 3))):
        place = rng.randrange(len(lines))
        lines[place] = odd_json(lines[place], rng) + b"\n"
    if rng.random() < 0.3:
        rng.shuffle(lines)
        lines = lines[rng.randrange(len(lines)) :] * rng.choice((1, 1, 2))
        lines.insert(0, rng.choice((b"[]\n", b'{"kind": "visit"}\n', b"\0" * 99)))
    return b"".join(lines) + rng.choice((b"", b"\r\n", b"\0\0"))
