"""What damages the bytes of a file of any kind."""

from __future__ import annotations

import random


def cut_short(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flip_bytes(data: bytes, rng: random.Random, most: int = 30) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, most))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)
