"""Results of boards: bytes and lines of results.jsonl, changed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hybridlat.board import BoardError
from hybridlat.board.journal import Journal, read_lines
from tests.fuzz import plans


def corpus(numbers: Iterable[int], seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Each number's results of one plan: mutations take turns."""
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")
        mutate = MUTATIONS[number % len(MUTATIONS)]
        yield f"{number}-{mutate.__name__}", mutate(plans.sound_plan()["results.jsonl"], rng)


def attempt(label: str, data: bytes, folder: Path) -> str:
    """Import them, then go on with them: what was whole is whole, and a new line joins it."""
    manifest = plans.sound_plan()["manifest.json"]
    outcome = plans.attempt(label, {"manifest.json": manifest, "results.jsonl": data}, folder)
    path = str(folder / "results.jsonl")
    before = list(read_lines(path))
    header = next(line for line in before if line["kind"] == "board")
    try:
        Journal(path, header["plan"], header["board_id"], header["board"]).write(
            {"kind": "failure", "task": "t", "round": 0, "error": "\ud800"}
        )
    except BoardError as error:
        return f"wrong imported, and not gone on with: {error}"
    after = list(read_lines(path))
    return outcome if after[: len(before)] == before and len(after) > len(before) else "wrong lost"


def change_line(data: bytes, rng: random.Random) -> bytes:
    """One line's JSON, changed."""
    lines = data.decode().splitlines()
    for _ in range(rng.choice((1, 1, 3))):
        place = rng.randrange(len(lines))
        lines[place] = json.dumps(plans.change_value(json.loads(lines[place]), rng))
    return ("\n".join(lines) + "\n").encode()


def change_lines(data: bytes, rng: random.Random) -> bytes:
    """Lines in another order, twice, missing, and of no use."""
    lines = data.splitlines()
    place = rng.randrange(len(lines))
    rng.choice((
        lambda: lines.pop(place), lambda: lines.insert(0, lines[place]), lines.reverse,
        lambda: rng.shuffle(lines), lambda: lines.insert(place, b"[]"),
        lambda: lines.insert(place, b'{"kind": "visit"}'), lambda: lines.insert(place, b"\0" * 99),
    ))()  # fmt: skip
    return b"\n".join(lines) + rng.choice((b"", b"\n", b"\r\n", b"\0\0"))


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    plans.change_bytes, change_line, change_line, change_lines,
)  # fmt: skip
