"""How fast known cells are found: ``python tests/benchmarks/bench_store.py [--records 100000]``.

Prints times; asserts nothing, since they depend on the machine. Records have 60 samples each.
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

TARGET = Target("fake", "fake-1.0", "fp32", 1)


def records(count: int, source: random.Random) -> list[Measurement]:
    """Random records of different cells."""
    return [
        Measurement(
            TARGET,
            source.randbytes(16).hex(),
            "cell",
            source.uniform(1, 1000),
            0.01,
            (Visit(tuple(round(source.uniform(1, 1000), 3) for _ in range(60))),),
            measured_at="2026-01-01T00:00:00Z",
        )
        for _ in range(count)
    ]


def best_us(work: Callable[[], object], repeats: int = 7) -> float:
    """Least time of several runs, in microseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def main() -> None:
    """Fill a store, then look up ever more of it, and do the same with a pack of 5,000."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    count = parser.parse_args().records
    source = random.Random(1)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.db") as store:
        hashes: list[str] = []
        start = time.perf_counter()
        for _ in range(count // 1000):
            part = records(1000, source)
            hashes += [r.signature for r in part]
            store.add(part)
        spent = time.perf_counter() - start
        print(f"write, 1000 a transaction   {spent / len(hashes) * 1e6:8.1f} us a record")
        one = [records(1, source) for _ in range(100)]
        start = time.perf_counter()
        for part in one:
            store.add(part)
        print(f"write, 1 a transaction      {(time.perf_counter() - start) * 1e4:8.1f} us a record")
        for number in (1, 16, 60, 300, 5000):
            asked = source.sample(hashes, number)
            took = best_us(partial(store.latencies, TARGET, asked))
            print(f"look up {number:5d} of {len(hashes):8d}   {took / number:8.1f} us a key")
        with Store(Path(folder) / "small.db") as small:
            small.add(records(5000, source))
            pack = small.export(Path(folder) / "packs")[0]
        took = best_us(lambda: PackLookup(pack).latencies(TARGET, hashes[:300]))
        print(f"open a pack of 5000         {took / 1e3:8.2f} ms")


if __name__ == "__main__":
    main()
