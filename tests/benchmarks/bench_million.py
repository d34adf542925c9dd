"""Requests without end: how quick they stay, and whether memory grows.

    python tests/benchmarks/bench_million.py [--requests 1000000] [--jobs 2] [--told 100000]

NAS-Bench-201 architectures drawn at random, each built as it is asked for, so that known and new
ones mix as in a search; predicted for and never measured. Memory is what this process and its
workers hold of their own, from /proc, so Linux alone tells it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201  # noqa: E402
from hybridlat.api import Predictor  # noqa: E402
from hybridlat.onnx_io import ModelSource  # noqa: E402

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"


def drawn(count: int) -> Iterator[ModelSource]:
    """So many architectures, repeats among them."""
    rng = random.Random(7)
    while count:
        arch = nasbench201.arch_from_index(rng.randrange(nasbench201.ARCHITECTURES))
        if nasbench201.live_edges(arch):
            yield nasbench201.build(arch)
            count -= 1


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
    parser.add_argument("--told", type=int, default=100_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Predictor(TARGET, store=f"sqlite:///{folder}/store.db", measure="never") as predictor,
    ):
        began = time.perf_counter()
        answers = predictor.predict_many(drawn(options.requests), jobs=options.jobs)
        for number, estimate in enumerate(answers, start=1):
            assert estimate.latency_us
            if number % options.told == 0 or number == options.requests:
                seconds = time.perf_counter() - began
                print(
                    f"{number:,} in {seconds:,.0f} s, {number / seconds:.0f} a second; "
                    f"{held_mb():.0f} MB held",
                    flush=True,
                )


if __name__ == "__main__":
    main()
