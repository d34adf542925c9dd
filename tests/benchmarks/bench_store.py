"""How a large store does: ``bench_store.py [--records 1000000] [--url URL]``.

Prints times; asserts nothing, since they depend on the machine. ``--url`` is an empty database; a
SQLite file unless given. Records have 60 samples, nine tenths of them are of one target.
"""

from __future__ import annotations

import argparse
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


def seconds(work: Callable[[], object]) -> float:
    """What one run takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_ms(work: Callable[[], object], repeats: int = 7) -> float:
    """Least time of several runs, in milliseconds."""
    return 1e3 * min(seconds(work) for _ in range(repeats))


def main() -> None:
    """Add, look up, count, and add a little more; then open a pack of 5,000."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--url")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Store(given.url or folder / "store.db") as store:
            hashes = judge(store, given.records)
        with Store(folder / "small.db") as small:
            source = random.Random(2)
            small.add(record(source) for _ in range(5000))
            pack = small.export(folder / "packs", TARGETS[0])[0]
        took = best_ms(lambda: PackLookup(pack).latencies(TARGETS[0], hashes[:300]))
        print(f"open a pack of 4500           {took:9.2f} ms")


def judge(store: Store, count: int) -> list[str]:
    """Print what everything takes with so many records; the hashes of some."""
    source = random.Random(1)
    made = [[record(source) for _ in range(1000)] for _ in range(count // 1000)]
    start = time.perf_counter()
    new = sum(map(store.add, made))
    spent = time.perf_counter() - start
    print(f"add {new:9d} records         {new / spent:9.0f} a second")
    hashes = sorted({r.signature for part in made for r in part if r.target == TARGETS[0]})[:20_000]
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
    return hashes


if __name__ == "__main__":
    main()
