"""Packs and store files that others made: seeded mutations of a small store.

What ``import`` takes, a check of the pack and of the store finds nothing wrong with. Whatever a
store's file holds, a prediction by it is a number or a sentence.
"""

import contextlib
import functools
import gzip
import hashlib
import json
import math
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from hybridlat import Predictor
from hybridlat.errors import HybridlatError
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.measurement import Measurement
from hybridlat.store import Store
from hybridlat.store.integrity import check_pack
from hybridlat.store.packs import lookup_of
from hybridlat.store.records import LatencyRow, row_of
from tests.fakes.fake_backend import FAKE
from tests.fuzz.driver import is_a_sentence
from tests.fuzz.mutations import LINK, PIPE, Files, damaged, odd_json, odd_lines, write
from tests.networks import ROOT, classifier
from tests.store.records import filled, measured

sys.path.append(str(ROOT / "tests" / "fakes" / "plugin"))  # the fake engine, as conftest.py has it
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
    "UPDATE cache SET text = ''", "DELETE FROM signature", "DROP TABLE cache",
    "UPDATE cache SET text = replace(hex(zeroblob(100000)), '0', '[')",
    "UPDATE cache SET size_bytes = -1", "UPDATE cache SET made_at_s = 9e18",
    "UPDATE hybridlat_meta SET value = '99999999999999999999'", "DELETE FROM hybridlat_meta",
    "DELETE FROM target", "DROP TABLE payload", "ALTER TABLE measurement ADD COLUMN x",
    "ALTER TABLE measurement RENAME COLUMN latency_us TO x", "PRAGMA user_version = 7",
    "CREATE TRIGGER t BEFORE INSERT ON cache BEGIN SELECT RAISE(ABORT, 'x' || char(27)); END",
)  # fmt: skip
INFO, LOOKUP = "pack.json", "lookup.json.gz"
TABLES = ("measurements.jsonl.gz", "breakdowns.jsonl.gz", "signatures.jsonl.gz", LOOKUP)


@functools.cache
def base() -> tuple[Files, bytes]:
    """A pack that knows the cells of a network, and its store's file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "store.db")
        with Predictor(FAKE, store=str(path), measure="never") as predictor:
            cells = predictor.predict(_network(), name="n").cells
            filled(predictor.store)
            predictor.store.add(measured(cell.signature, 9.0) for cell in cells)
            predictor.store.cache_put({"made/by/hand": "[1]"})
            pack = predictor.store.export(folder, predictor.target)[0]
        files = {file.name: file.read_bytes() for file in pack.iterdir()}
        return files, path.read_bytes()


@functools.cache
def _network() -> bytes:
    return to_onnx(classifier(8), seed=1)


def made(number: int, rng: random.Random) -> tuple[str, Files | bytes]:
    """A label that begins with ``store`` is of a store's file."""
    files, store = base()
    if number % 3:
        mutate = rng.choice((odd_file, records, texts, texts))
        return f"pack-{number}-{mutate.__name__}", mutate(files, rng)
    change = rng.choice((damaged, rows_by_sql, pages))
    return f"store-{number}-{change.__name__}", change(store, rng)


def attempt(label: str, data: Files | bytes, folder: Path) -> str:
    del label
    if isinstance(data, bytes):
        return _attempt_store(data, folder)
    write(pack := folder / "pack", data)
    problems = check_pack(pack)
    if unshown := [text for text in map(str, problems) if not is_a_sentence(text)]:
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
        if unshown := [text for text in map(str, problems) if not is_a_sentence(text)]:
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


def _with_text(files: Files, name: str, text: bytes) -> Files:
    """The pack with another text in a table, and its hash."""
    data, info = gzip.compress(text, 1), json.loads(files[INFO])
    info["files"][name]["sha256"] = hashlib.sha256(data).hexdigest()
    return {**files, name: data, INFO: json.dumps(info).encode()}


def texts(files: Files, rng: random.Random) -> Files:
    """A table whose text is damaged, has odd values or order, or is very long or deep."""
    name = rng.choice(TABLES)
    text = gzip.decompress(files[name])
    blank = rng.choice((b" ", b"\n", b"[", b"0", b'"')) * rng.choice((1000, 3 << 20, 20 << 20))
    makers: tuple[Callable[[bytes, random.Random], bytes], ...] = (damaged, odd_lines, odd_lines)
    odd = [make(text, rng) for make in makers]
    return _with_text(files, name, rng.choice((*odd, blank + text, text + blank, text * 30)))


def records(files: Files, rng: random.Random) -> Files:
    """Odd records with a look-up file that fits them, where they can be read at all."""
    changed = _with_text(files, TABLES[0], odd_lines(gzip.decompress(files[TABLES[0]]), rng))
    rows: dict[tuple[str, str], list[LatencyRow]] = {}
    with contextlib.suppress(ValueError):
        for line in gzip.decompress(changed[TABLES[0]]).splitlines():
            record = Measurement.from_json(json.loads(line))
            rows.setdefault((record.kind, record.signature), []).append(row_of(record))
        return _with_text(changed, LOOKUP, json.dumps(lookup_of(rows)).encode())
    return changed


def odd_file(files: Files, rng: random.Random) -> Files:
    """A file that is damaged, missing, of another name, a link or a pipe; odd facts of a pack."""
    name = rng.choice((*TABLES, INFO))
    others = {each: body for each, body in files.items() if each != name}
    more = {rng.choice(("more.gz", "\x1b[2J", "x" * 200)): b"more"}
    to = ("/dev/zero", "/dev/null", ".", "nowhere", "/proc/self/mem", name)
    where = (PIPE, *(LINK + place.encode() for place in to))
    facts = {INFO: odd_json(files[INFO], rng)}
    odd = (others, files | more, files | facts, files | {name: damaged(files[name], rng)})
    return rng.choice((*odd, files | {name: rng.choice(where)}))


def rows_by_sql(store: bytes, rng: random.Random) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(store[:18] + b"\1\1" + store[20:])
        for statement in rng.sample(SQL, rng.choice((1, 1, 2))):
            with contextlib.suppress(sqlite3.Error):  # the other has dropped what it is about
                connection.execute(statement)
        connection.commit()
        return connection.serialize()


def pages(store: bytes, rng: random.Random) -> bytes:
    page, other = (4096 * rng.randrange(len(store) // 4096) for _ in range(2))
    piece = rng.choice((bytes(4096), store[other : other + 4096], rng.randbytes(4096)))
    return store[:page] + piece + store[page + 4096 :]
