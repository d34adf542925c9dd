"""Requests without end: how quick they stay, and whether memory grows.

    python tests/benchmarks/bench_million.py [--requests 1000000] [--jobs 2] [--told 50000]
        [--minutes 60] [--journal FILE]

NAS-Bench-201 architectures drawn at random from all, as the bytes of files, so that known and new
ones mix as in a search; predicted for and never measured. The files are made before the clock
starts. After ``--minutes``, or when it is interrupted, it ends and says how far it got; the journal
takes the figures as a line of JSON. Memory is what this process and its workers hold of their own,
from /proc, so Linux alone tells it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201  # noqa: E402
from hybridlat.api import Predictor  # noqa: E402
from hybridlat.onnx_io import ModelSource  # noqa: E402

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"


def written(path: Path) -> list[tuple[int, int]]:
    """The files of all architectures, one after another in one: start and length of each."""
    places = []
    with path.open("wb") as file:
        for arch in nasbench201.all_archs():
            if nasbench201.live_edges(arch):
                data = nasbench201.build(arch).SerializeToString()
                places.append((file.tell(), len(data)))
                file.write(data)
    return places


def drawn(path: Path, places: list[tuple[int, int]], count: int) -> Iterator[ModelSource]:
    """So many of them, repeats among them."""
    rng = random.Random(7)
    with path.open("rb") as file:
        for _ in range(count):
            start, length = rng.choice(places)
            file.seek(start)
            yield file.read(length)


def held_mb() -> float:
    """Resident memory of this process and all below it, in MB."""
    parents = {}
    sizes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            sizes[int(folder.name)] = int((folder / "statm").read_text().split()[1]) * 4096
            parents[int(folder.name)] = int(fields[1])
        except (OSError, IndexError):
            continue

    total, mine = 0, {os.getpid()}
    while mine:
        total += sum(sizes.get(pid, 0) for pid in mine)
        mine = {pid for pid, parent in parents.items() if parent in mine}
    return total / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Requests without end.")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--told", type=int, default=50_000, help="requests between two reports")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--journal", type=Path)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Predictor(TARGET, store=f"sqlite:///{folder}/store.db", measure="never") as predictor,
    ):
        path = Path(folder) / "architectures"
        places = written(path)
        print(f"{len(places):,} architectures in {path.stat().st_size / 1e6:.0f} MB", flush=True)
        began = time.perf_counter()
        seconds, done, memory_mb = 0.0, 0, []
        answers = predictor.predict_many(
            drawn(path, places, options.requests), jobs=options.jobs
        )  # fmt: skip
        with suppress(KeyboardInterrupt):
            for done, estimate in enumerate(answers, start=1):
                assert estimate.latency_us
                seconds = time.perf_counter() - began
                if done % options.told == 0 or done == options.requests:
                    memory_mb.append(round(held_mb()))
                    print(
                        f"{done:,} in {seconds:,.0f} s, {done / seconds:.0f} a second; "
                        f"{memory_mb[-1]} MB held",
                        flush=True,
                    )
                if seconds > 60 * options.minutes:
                    break
    short = "" if done == options.requests else f", CUT SHORT of {options.requests:,}"
    print(f"{done:,} requests{short}: {seconds:,.0f} s, {done / max(seconds, 1e-9):.0f} a second")
    if options.journal:
        row = {
            "requests": options.requests, "done": done, "jobs": options.jobs,
            "wall_s": round(seconds, 1), "told_every": options.told, "memory_mb": memory_mb,
        }  # fmt: skip
        with options.journal.open("a") as journal:
            journal.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
