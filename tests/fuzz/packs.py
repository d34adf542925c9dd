"""Packs and store files that others made: seeded mutations of a small store.

What ``import`` takes, a check of the pack and of the store finds nothing wrong with. Whatever a
store's file holds, a prediction by it is a number or a sentence.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import math
import os
import random
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from hybridlat import Predictor
from hybridlat.errors import HybridlatError
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.measurement import Measurement
from hybridlat.store import Store
from hybridlat.store.integrity import check_pack
from hybridlat.store.packs import lookup_of
from hybridlat.store.records import LatencyRow, row_of
from tests.fakes.fake_backend import FAKE
from tests.networks import ROOT, classifier
from tests.store.records import filled, measured

sys.path.append(str(ROOT / "tests" / "fakes" / "plugin"))  # the fake engine, as conftest.py has it
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3.5, -0.001, 1e-320, 1e308, -1e308, 10**400, "", "x", "\x1b[2J\n\u202e",
    "\ud800", "../../x", "y" * 5000, "yesterday", "2026-13-45T99:99", "9999-12-31T23:59:59+00:00",
    [], [1], {}, {"a": 1}, [[[[[]]]]], "nan", "h100/tensorrt-8.6/fp16", "0" * 32, "network",
)  # fmt: skip
SQL = (
    *(f"UPDATE measurement SET latency_us = {value}" for value in (
        -5, 0, "1e308", "9e999", "5e-324", "'x'", "x'00'", "NULL", "1e11",
    )),
    *(f"UPDATE measurement SET spread_share = {value}" for value in (
        -1, "1e308", "9e999", "'x'", "x'00'", 99,
    )),
    "UPDATE measurement SET measured_at = char(27, 10, 0)", "UPDATE measurement SET failure = 'x'",
    "UPDATE measurement SET kind = 99", "UPDATE measurement SET signature = x'01'",
    "UPDATE measurement SET target_id = 99", "UPDATE measurement SET failure = char(27)",
    "UPDATE target SET name = char(27, 10)", "UPDATE target SET name = 'a/b/fp99'",
    "UPDATE target SET name = printf('%.*c', 100000, 'x')", "UPDATE payload SET body = x'00'",
    "UPDATE signature SET text = char(27)", "UPDATE signature SET hash = x'00'",
    "UPDATE breakdown SET body = 'x'", "UPDATE cache SET text = '[[['",
    "UPDATE cache SET text = ''",
    "UPDATE cache SET text = replace(hex(zeroblob(100000)), '0', '[')", "DELETE FROM signature",
    "UPDATE cache SET size_bytes = -1", "UPDATE cache SET made_at_s = 9e18", "DROP TABLE cache",
    "UPDATE hybridlat_meta SET value = '99999999999999999999'", "DELETE FROM hybridlat_meta",
    "DELETE FROM target", "DROP TABLE payload", "ALTER TABLE measurement ADD COLUMN x",
    "ALTER TABLE measurement RENAME COLUMN latency_us TO x", "PRAGMA user_version = 7",
    "CREATE TRIGGER t BEFORE INSERT ON cache BEGIN SELECT RAISE(ABORT, 'x' || char(27)); END",
)  # fmt: skip
Files = dict[str, Any]
"""Bytes by name; a text is what stands in a file's place."""
TABLES = ("measurements.jsonl.gz", "breakdowns.jsonl.gz", "signatures.jsonl.gz", "lookup.json.gz")


@functools.cache
def base() -> tuple[Files, bytes]:
    """A pack that knows the cells of a network, and its store's file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "store.db")
        with Predictor(FAKE, store=str(path), measure="never") as predictor:
            cells = predictor.predict(_network(), name="n").cells
            filled(predictor.store)
            predictor.store.add(measured(cell.signature, 9.0) for cell in cells)
            predictor.store.cache_put("made/by/hand", "[1]")
            pack = predictor.store.export(folder, predictor.target)[0]
        files = {file.name: file.read_bytes() for file in pack.iterdir()}
        return files, path.read_bytes()


@functools.cache
def _network() -> bytes:
    return to_onnx(classifier(8), seed=1)


def corpus(numbers: Iterable[int], seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Mutations take turns; a label that begins with ``store`` is of a store's file."""
    files, store = base()
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")
        turn = number % (len(OF_PACKS) + len(OF_STORES))
        if turn < len(OF_PACKS):
            name, data = OF_PACKS[turn].__name__, msgspec.msgpack.encode(OF_PACKS[turn](files, rng))
        else:
            of_store = OF_STORES[turn - len(OF_PACKS)]
            name, data = of_store.__name__, of_store(store, rng)
        yield f"{'pack' if turn < len(OF_PACKS) else 'store'}-{number}-{name}", data


def attempt(label: str, data: bytes, folder: Path) -> str:
    return (
        _attempt_store(data, folder) if label.startswith("store") else _attempt_pack(data, folder)
    )


def _attempt_pack(data: bytes, folder: Path) -> str:
    pack = folder / "pack"
    pack.mkdir()
    for name, content in msgspec.msgpack.decode(data).items():
        if isinstance(content, bytes):
            (pack / name).write_bytes(content)
        elif content == "fifo":
            os.mkfifo(pack / name)
        else:
            (pack / name).symlink_to(content)
    problems = check_pack(pack)
    unshown = [str(one) for one in problems if not str(one).isprintable() or len(str(one)) > 900]
    if unshown:
        return f"wrong message: {unshown[0][:300]!r}"
    store = Store("sqlite://")
    try:
        store.import_(pack)
    except HybridlatError:
        if not problems:
            return "wrong: refused by import and not by check"
        raise
    if problems or (problems := store.check()):
        return f"wrong: imported with {problems[0]}"
    return _predicts(store)


def _attempt_store(data: bytes, folder: Path) -> str:
    (folder / "store.db").write_bytes(data)
    with Store(folder / "store.db") as store:
        problems = store.check()
        if unshown := [str(one) for one in problems if not str(one).isprintable()]:
            return f"wrong message: {unshown[0][:300]!r}"
        try:
            store.stats()
            return _predicts(store)
        except HybridlatError as error:
            if not problems:
                return f"wrong: nothing is wrong with it, and {error}"
            raise


def _predicts(store: Store) -> str:
    """Whether a network is answered by what the store holds, with numbers."""
    with Predictor(FAKE, store=store.url, measure="never") as predictor:
        if store.place.is_in_memory:  # its own, which no other sees
            predictor.store.add(store.measurements())
        estimate = predictor.predict(_network(), name="n")
    numbers = [estimate.latency_us, *(estimate.interval_us or ()), estimate.measured_share]
    if any(value is not None and (math.isnan(value) or value < 0) for value in numbers):
        return f"wrong: {numbers}"
    str(estimate)
    return "answered"


def repacked(files: Files, **members: Any) -> Files:
    """The pack with other members, by the names of their tables, and right hashes."""
    changed = {**files, **{name.replace("_", "."): body for name, body in members.items()}}
    info = json.loads(files["pack.json"])
    for name in info["files"]:
        if isinstance(changed.get(name), bytes):
            info["files"][name]["sha256"] = hashlib.sha256(changed[name]).hexdigest()
    return {**changed, "pack.json": json.dumps(info).encode()}


def _with_text(files: Files, name: str, text: bytes) -> Files:
    return repacked(files, **{name.replace(".", "_"): gzip.compress(text, 1)})


def _texts(files: Files, rng: random.Random) -> tuple[str, bytes]:
    name = rng.choice(TABLES)
    return name, gzip.decompress(files[name])


def odd(value: Any, rng: random.Random) -> Any:
    """The value with an odd one at a random place: changed, missing, surplus or nested."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        deed = rng.random()
        if deed < 0.1:
            return {name: one for name, one in value.items() if name != key}
        if deed < 0.2:
            return {**value, rng.choice(("", "new", "\x1b")): rng.choice(ODD)}
        return {**value, key: odd(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        return [*value[:place], odd(value[place], rng), *value[place + 1 :]]
    if isinstance(value, int | float) and abs(value) < 1e9 and rng.random() < 0.5:
        return value * rng.choice((-1, 0, 1000, 1e-3, 1e300, 1.001))
    return rng.choice(ODD)


def raw_bytes(files: Files, rng: random.Random) -> Files:
    name = rng.choice(list(files))
    return {**files, name: broken(files[name], rng)}


def text_bytes(files: Files, rng: random.Random) -> Files:
    name, text = _texts(files, rng)
    return _with_text(files, name, broken(text, rng))


def values(files: Files, rng: random.Random) -> Files:
    name, text = _texts(files, rng)
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 3))):
        place = rng.randrange(len(lines))
        lines[place] = json.dumps(odd(json.loads(lines[place]), rng)).encode()
    return _with_text(files, name, b"\n".join(lines) + b"\n")


def records(files: Files, rng: random.Random) -> Files:
    """Odd records with a look-up file that fits them, where they can be read at all."""
    changed = values({"measurements.jsonl.gz": files[TABLES[0]], **files}, rng)
    rows: dict[tuple[str, str], list[LatencyRow]] = {}
    try:
        for line in gzip.decompress(changed[TABLES[0]]).splitlines():
            record = Measurement.from_json(json.loads(line))
            rows.setdefault((record.kind, record.signature), []).append(row_of(record))
    except ValueError:
        return changed
    return _with_text(changed, TABLES[3], json.dumps(lookup_of(rows)).encode())


def info(files: Files, rng: random.Random) -> Files:
    return {**files, "pack.json": json.dumps(odd(json.loads(files["pack.json"]), rng)).encode()}


def nested(files: Files, rng: random.Random) -> Files:
    deep = rng.choice((b"[", b'{"a":')) * rng.choice((500, 100_000))
    name = rng.choice((*TABLES, "pack.json"))
    if name == "pack.json":
        return {**files, name: deep}
    return _with_text(files, name, rng.choice((deep, _texts(files, rng)[1] + deep)))


def long_lines(files: Files, rng: random.Random) -> Files:
    name, text = _texts(files, rng)
    blank = rng.choice((b" ", b"\n", b"[", b"0", b'"')) * rng.choice((1000, 3 << 20, 20 << 20))
    return _with_text(files, name, rng.choice((blank + text, text + blank, text * 30)))


def members(files: Files, rng: random.Random) -> Files:
    name = rng.choice((*TABLES, "pack.json"))
    kind = rng.randrange(4)
    if kind == 0:
        return {one: body for one, body in files.items() if one != name}
    if kind == 1:
        return repacked({**files, rng.choice(("more.gz", "\x1b[2J", "x" * 200)): b"more"})
    where = ("/dev/zero", "/dev/null", "fifo", ".", "nowhere", "/proc/self/mem", name)
    return {**files, name: rng.choice(where)}


def lines(files: Files, rng: random.Random) -> Files:
    name, text = _texts(files, rng)
    rows = text.splitlines(keepends=True)
    rng.shuffle(rows)
    return _with_text(
        files, name, b"".join(rows[: rng.randrange(len(rows) + 1)] * rng.choice((1, 2)))
    )


def broken(data: bytes, rng: random.Random) -> bytes:
    """Cut, flipped, spliced, or with NULs and bytes that are no text."""
    place, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    piece = rng.choice((b"", b"\0" * 7, b"\xff\xfe", rng.randbytes(5), b"1" * 400, b"1e999"))
    return rng.choice((data[:place], data[:place] + piece + data[end:], data + piece,
                       data[:place] + piece + data[place + len(piece) :]))  # fmt: skip


def rows_by_sql(store: bytes, rng: random.Random) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(store[:18] + b"\1\1" + store[20:])
        for statement in rng.sample(SQL, rng.choice((1, 1, 2))):
            try:
                connection.execute(statement)
            except sqlite3.Error:  # the other one has dropped what it is about
                continue
        connection.commit()
        return connection.serialize()


def pages(store: bytes, rng: random.Random) -> bytes:
    page = 4096 * rng.randrange(len(store) // 4096)
    other = 4096 * rng.randrange(len(store) // 4096)
    piece = rng.choice((bytes(4096), store[other : other + 4096], rng.randbytes(4096)))
    return store[:page] + piece + store[page + 4096 :]


OF_PACKS: tuple[Callable[[Files, random.Random], Files], ...] = (
    raw_bytes, text_bytes, values, records, records, info, nested, long_lines, members, lines,
)  # fmt: skip
OF_STORES: tuple[Callable[[bytes, random.Random], bytes], ...] = (broken, rows_by_sql, pages)
