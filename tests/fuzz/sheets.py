"""Broken and odd data sheets of devices: seeded mutations of shipped ones."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from hybridlat import Predictor
from tests.fuzz.mutations import cut_short, flip_bytes
from tests.networks import NETS, ROOT

SHEETS = [
    ROOT / "data" / "devices" / f"{name}.toml" for name in ("v100", "orin-nano", "orin-nano-7w")
]
VALUES = (
    "0", "-1", "1e-300", "1e300", "1e29", "nan", "-inf", "true", "'x'", "[]", "{}", "[1, 'a']",
    "1" * 400, "0x" + "f" * 5000, "1979-05-27", "[" * 3000, "{a=" * 3000, "{a = {a = 1}}",
    "'" + "x" * 5000 + "'", '"\\u001b[2J"', "'''\n\n'''", "[1e-300]", "[nan, 1]", "{fp32 = 1e-300}",
    "{fp32 = 7, fp16 = inf}", "'../v100'", "'v100'", "9" * 18, "1.5", "1_000",
)  # fmt: skip
MOST_US = 1e9  # that any network of NETS takes on the slowest device that a sheet may describe


def corpus(numbers: Iterable[int], seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """The sheets of these numbers: mutations take turns, and shipped sheets do."""
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")
        path = SHEETS[number % len(SHEETS)]
        mutate = MUTATIONS[(number // len(SHEETS)) % len(MUTATIONS)]
        yield f"{number}-{path.stem}-{mutate.__name__}", mutate(path.read_bytes(), rng)


def attempt(label: str, data: bytes, folder: Path) -> str:
    """Read the sheet and predict by what it says: a latency that a clock can show."""
    del label
    file = folder / "odd.toml"
    file.write_bytes(data)
    with Predictor("odd/tensorrt-10/fp16", store="sqlite://", measure="never",
                   device=file) as predictor:  # fmt: skip
        us = predictor.predict(NETS / "squeezenet.onnx").latency_us
    is_plausible = us is not None and math.isfinite(us) and 0.1 < us < MOST_US
    return "answered" if is_plausible else f"wrong latency {us} us"


def put_nuls(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes(rng.choice((1, 50))) + data[at:]


def _line(data: bytes, rng: random.Random) -> tuple[list[str], int]:
    lines = data.decode().splitlines()
    stated = [i for i, line in enumerate(lines) if " = " in line]
    return lines, rng.choice(stated)


def _text(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def change_value(data: bytes, rng: random.Random) -> bytes:
    lines, i = _line(data, rng)
    lines[i] = f"{lines[i].partition(' = ')[0]} = {rng.choice(VALUES)}"
    return _text(lines)


def scale_number(data: bytes, rng: random.Random) -> bytes:
    lines, i = _line(data, rng)
    lines[i] += f"e{rng.choice((-300, -30, -9, -3, 3, 9, 30))}"
    return _text(lines)


def change_key(data: bytes, rng: random.Random) -> bytes:
    lines, i = _line(data, rng)
    key, _, value = lines[i].partition(" = ")
    lines[i] = f"{rng.choice((key + 'x', '', 'a.' * 3000 + 'b', key.upper()))} = {value}"
    return _text(lines)


def drop_line(data: bytes, rng: random.Random) -> bytes:
    lines, i = _line(data, rng)
    return _text(lines[:i] + lines[i + 1 :])


def repeat_line(data: bytes, rng: random.Random) -> bytes:
    lines, i = _line(data, rng)
    return _text([*lines, lines[i]])


def base_on(data: bytes, rng: random.Random) -> bytes:
    units, mhz = rng.choice((1, 7, 10**5)), rng.choice((1, 300, 20_000))
    return f"based_on = 'h100'\nunits = {units}\nclock_mhz = {mhz}\n".encode()


MUTATIONS = (change_value, scale_number, change_key, drop_line, repeat_line, base_on, cut_short,
             flip_bytes, put_nuls)  # fmt: skip
