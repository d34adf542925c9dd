"""How a large store does: ``bench_store.py [--records 1000000] [--url URL]``.

Prints times; asserts nothing, since they depend on the machine. ``--url`` is an empty database; a
SQLite file unless given. Records have 60 samples,
nine tenths of them are of one target; they are written to a file first, and imported from it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from hybridlat.schema.measurement import Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.packs import PackLookup

TARGETS = [Target("fake", "fake-1.0", "fp32", threads) for threads in range(1, 12)]


def record(source: random.Random) -> Measurement:
    """A random record; one in four is of a thing that was measured before, or will be again."""
    number = source.randrange(10**9) if source.random() < 0.75 else source.randrange(100_000)
    minute = source.randrange(60 * 24 * 365)
    return Measurement(
        TARGETS[0] if source.random() < 0.9 else source.choice(TARGETS),
        f"{random.Random(number).getrandbits(128):032x}",
        "cell",
        source.uniform(1, 1000),
        0.01,
        tuple(
            Visit(tuple(round(source.uniform(1, 1000), 3) for _ in range(20)), 1.0, process)
            for process in range(3)
        ),
        protocol="twins-1",
        environment={"engine": "onnxruntime 1.31", "cpu": "made up", "threads": "1"},
        measured_at=f"2026-01-01T{minute // 60 % 24:02d}:{minute % 60:02d}:00Z",
        labels={"network": f"network {source.randrange(1000)}"},
    )


def written(path: Path, count: int) -> list[str]:
    """Write so many records as lines of JSON; the hashes of some."""
    source = random.Random(1)
    hashes: set[str] = set()
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            made = record(source)
            file.write(json.dumps(made.to_json()) + "\n")
            if made.target == TARGETS[0] and len(hashes) < 20_000:
                hashes.add(made.signature)
    return sorted(hashes)


def seconds(work: Callable[[], object]) -> float:
    """What one run takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_ms(work: Callable[[], object], repeats: int = 7) -> float:
    """Least time of several runs, in milliseconds."""
    return 1e3 * min(seconds(work) for _ in range(repeats))


def main() -> None:
    """Import, look up, count, and add a little more; then open a pack of 5,000."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--url")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "records.jsonl"
        hashes = written(file, given.records)
        with Store(given.url or folder / "store.db") as store:
            judge(store, file, hashes)
        with Store(folder / "small.db") as small:
            source = random.Random(2)
            small.add(record(source) for _ in range(5000))
            pack = small.export(folder / "packs", TARGETS[0])[0]
        took = best_ms(lambda: PackLookup(pack).latencies(TARGETS[0], hashes[:300]))
        print(f"open a pack of 4500           {took:9.2f} ms")


def judge(store: Store, file: Path, hashes: list[str]) -> None:
    """Print what everything takes with the records of ``file`` in the store."""
    source = random.Random(3)
    start = time.perf_counter()
    counts = store.import_(file)
    spent = time.perf_counter() - start
    print(f"import {counts.measurements:9d} records      {counts.read / spent:9.0f} a second")
    for number in (1, 60, 300, 5000):
        asked = source.sample(hashes, number)
        cold = 1e3 * seconds(partial(store.latencies, TARGETS[0], asked))
        warm = best_ms(partial(store.latencies, TARGETS[0], asked))
        print(f"look up {number:5d} cells           {warm:9.2f} ms   (first time {cold:.2f})")
    for what, work in (("stats", store.stats), ("revision", partial(store.revision, TARGETS[0])),
                       ("recent", partial(store.recent, TARGETS[0]))):  # fmt: skip
        first = 1e3 * seconds(work)
        print(f"{what:<27}   {best_ms(work, 3):9.0f} ms   (first time {first:.0f})")
    one = [[record(source)] for _ in range(100)]
    took = 1e3 * seconds(lambda: [store.add(part) for part in one]) / len(one)
    print(f"add a record                  {took:9.2f} ms")


if __name__ == "__main__":
    main()
