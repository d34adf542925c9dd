"""Requests without end: how quick they stay, and whether memory grows.

    python tests/benchmarks/bench_million.py [--requests 1000000] [--jobs 2]

NAS-Bench-201 architectures drawn at random from all, as the bytes of files, so that known and new
ones mix as in a search; predicted for and never measured. The files are made before the clock
starts. Memory is what this process and its workers hold of their own, from Linux's /proc.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201  # noqa: E402
from hybridlat import Predictor  # noqa: E402

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"
SHOWN_EVERY = 50_000


def held_mb() -> float:
    """Resident memory of this process and all below it, in MB."""
    parents, sizes = {}, {}
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
    options = parser.parse_args()
    files = [
        nasbench201.build(arch).SerializeToString()
        for arch in nasbench201.all_archs()
        if nasbench201.live_edges(arch)
    ]
    rng = random.Random(7)
    drawn = (rng.choice(files) for _ in range(options.requests))
    print(f"{len(files):,} architectures, {sum(map(len, files)) / 1e6:.0f} MB", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Predictor(TARGET, store=f"sqlite:///{folder}/store.db", measure="never") as predictor,
    ):
        began = time.perf_counter()
        answers = predictor.predict_many(drawn, jobs=options.jobs)
        for done, estimate in enumerate(answers, start=1):
            assert estimate.latency_us
            if done % SHOWN_EVERY == 0 or done == options.requests:
                seconds = time.perf_counter() - began
                print(f"{done:,} in {seconds:,.0f} s, {done / seconds:.0f} a second; "
                      f"{held_mb():.0f} MB held", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
