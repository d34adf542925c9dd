"""Tables of latencies in all the ways that people write them, some of them broken.

Whatever is read must be true: another number is wrong, a refusal is right.
"""

import csv
import io
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from hybridlat.errors import StoreError
from hybridlat.store.importers.sheets import read_column_map
from hybridlat.store.importers.table import read_networks
from tests.fuzz.mutations import damaged

US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6, "sec": 1e6, "ns": 1e-3}
NOT_NUMBERS = ("", "-1.5", "0", "nan", "NaN", "inf", "-inf", "1e308", "1e400", "9" * 400,
               "1_5", "55%", "٣", "½", "0x10", "1,2,3.4", "1.2.3", "--5", "5±1", "<5", "one",
               "\u22121", "1e-300", "1 2", "1/2", "5 parsecs", "TRUE", "=1+1", "#N/A",
               "\x1b[31m", "a\nb")  # fmt: skip
NUMBERS = (1.25, 0.553, 1.25e-3, 1250.0, 1250.5, 12.5, 987.654, 1.0, 2.0, 1234567.0, 1e-2, 33.125)
# What sets thousands apart, and decimals.
STYLES: dict[str, Sequence[str]] = {"german": ".,", "french": " ,", "swiss": "'.", "english": ",."}
STYLES |= {"thin": "\u202f,", "plain": ("", "."), "comma": ("", ",")}


@dataclass(frozen=True)
class Written:
    """A table's bytes and ``truth``: µs, batch and size by network, None where nothing is known."""

    data: bytes
    truth: dict[str, list[Any]] | None
    mapping: bytes = b""


def made(number: int, rng: random.Random) -> tuple[str, Written]:
    kind = KINDS[number % len(KINDS)]
    return f"{number}-{kind.__name__}", kind(rng)


def attempt(label: str, data: Written, folder: Path) -> str:
    """Read the table: what it gives is finite, positive and, where that is known, what is true."""
    del label
    (folder / "t.csv").write_bytes(data.data)
    (folder / "map.toml").write_bytes(data.mapping)
    read = read_networks([folder / "t.csv"], read_column_map(folder / "map.toml"))
    for row in read.rows:
        us, stated = row.latency_us, [row.batch, list(row.size or ())]
        known: list[Any] = [us, *stated]
        if data.truth is not None:
            known = data.truth.get(row.names[0], [math.nan])
        is_true = math.isclose(known[0], us, rel_tol=0.01) and known[1:] == stated
        if not (0 < us < math.inf and is_true):
            return f"wrong {row}: {known} was written"
    for refusal in read.refused:
        if not (f"{refusal.reason}{refusal.value}{refusal.fix}".isprintable() and refusal.where):
            return f"wrong message {refusal.reason!r} {refusal.value!r}"
    if not read.rows:
        raise StoreError("no row could be read")
    return "answered"


def written(value: float, rng: random.Random, style: str) -> str:
    """A number by the habits of a country, which a table keeps to."""
    plain = f"{Decimal(repr(value)):f}"
    if style == "science":
        return f"{value:.9e}".upper() if rng.random() < 0.5 else f"{value:.9e}"
    whole, _, part = plain.partition(".")
    part = part if part.strip("0") else ""
    if len(part) < 3 and rng.random() < 0.5 and part:
        part = part.ljust(3, "0")
    group, decimal = STYLES[style]
    grouped = f"{int(whole):,}".replace(",", group)
    return grouped + (decimal + part if part else "")


def _text(rng: random.Random) -> tuple[dict[str, list[Any]], list[str], list[list[str]], str]:
    """The truth, a header, rows of cells, and a separator that stands for their decimal sign."""
    separator = rng.choice(",;\t")
    styles = ["plain", "english", "swiss", "science"]
    if separator != ",":
        styles = ["plain", "swiss", "science", "german", "french", "thin", "comma"]
    style, unit = rng.choice(styles), rng.choice(list(US))
    title = rng.choice(("latency_{}", "Latency ({})", "median_latency_{}", "Inference Time [{}]"))
    name = rng.choice(("network", "Model", "ARCHITECTURE"))
    header = [name, "target", "batch", "size", title.format(unit)]
    rows, true = list[list[str]](), dict[str, list[Any]]()
    for i in range(rng.randint(1, 6)):
        value, batch, side = rng.choice(NUMBERS), rng.choice((1, 2, 8, 1024)), rng.choice((32, 224))
        cell, is_true = written(value, rng, style), True
        if rng.random() < 0.4:
            cell, is_true = rng.choice(NOT_NUMBERS), False
        if rng.random() < 0.1:
            other = rng.choice(list(US))
            cell, is_true = f"{cell} {other}", is_true and US[other] == US[unit]
        forms = ("{s}x{s}", "3x{s}x{s}", "{s}x{s}x3", "{b}x{s}x{s}x3", "[{b}, 3, {s}, {s}]")
        shape = rng.choice(forms).format(b=batch, s=side)
        batches = written(batch, rng, "plain" if style == "science" else style)
        rows.append([f"n{i}", "t4/tensorrt-8.6/fp16", batches, shape, cell])
        if is_true:
            true[f"n{i}"] = [value * US[unit], batch, [side] * 2]
    return true, header, rows, separator


def styled(rng: random.Random) -> Written:
    """Sound cells, and cells that are no latencies, in sound files."""
    truth, header, rows, separator = _text(rng)
    order = rng.sample(range(len(header)), len(header))
    header, rows = [header[i] for i in order], [[row[i] for i in order] for row in rows]
    stream, end = io.StringIO(newline=""), rng.choice(("\n", "\r\n"))
    quoting: Literal[0, 1] = csv.QUOTE_ALL if rng.random() < 0.1 else csv.QUOTE_MINIMAL
    writer = csv.writer(stream, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerows([header, *rows])
    text = stream.getvalue()
    if rng.random() < 0.3:
        text = f"sep={separator}\n{text}"
    if rng.random() < 0.2:
        text = f"# made, by; hand\n\n{text}"
    encoding = rng.choice(("utf-8", "utf-8-sig", "utf-16"))
    return Written(text.encode(encoding), truth)


def broken_bytes(rng: random.Random) -> Written:
    """Bytes that were cut, flipped or lost: nothing is known of them."""
    return Written(damaged(styled(rng).data, rng), None)


MAPPING = b"""labels = ["note"]
[columns]
latency = "t"
[constants]
target = "t4/tensorrt-8.6/fp16"
batch = 2
size = "8x16"
[units]
latency = "ms"
[values.network]
n1 = "n0"
"""
PARTS = (b"[" * 2000 + b"]" * 2000, b"{a = 1}", b"nan", b"1979-05-27", b"9" * 5000, b"'x'",
         b"[columns.latency]", b"[[columns]]", b"\xff", b"\0", b"latency = []", b"latency",
         b'"\\u001b[31m"',
         b"[values]\nsize = 3",
         b"a." * 2000 + b"b = 1", b"inf", b"true", b"-1", b"'n\\'")  # fmt: skip


def mapped(rng: random.Random) -> Written:
    """A table with a mapping that was altered."""
    mapping = MAPPING
    for _ in range(rng.choice((0, 1, 1, 2))):
        words = mapping.split(b" ")
        at = rng.randrange(len(words))
        words[at : at + rng.choice((0, 1))] = [rng.choice(PARTS)]
        mapping = rng.choice((b" ".join(words), damaged(mapping + b" ", rng)))
    truth = {"n0": [1500.0, 2, [8, 16]]} if mapping == MAPPING else None
    return Written(b"network,t,note\nn0,1.5,x\n", truth, mapping)


KINDS = (styled, broken_bytes, mapped)
